"""Worker processes that do not run the user's script again.

A spawned process imports the main module of its parent before it works. A script without `if __name__ == "__main__"` would open
the same run in it, and wait for ever for the lock that its parent holds. Our workers need nothing of that module.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any


class OwnSpawnProcess(SpawnProcess):
    def start(self) -> None:
        with hidden_main():
            super().start()


class OwnSpawnContext(SpawnContext):
    """Spawned, because forking a process with DuckDB threads can deadlock."""

    Process = OwnSpawnProcess


@contextmanager
def hidden_main() -> Iterator[None]:
    """While the main module has neither name nor file, nobody can import it."""
    main = vars(sys.modules["__main__"])
    known: dict[str, Any] = {name: main[name] for name in ("__spec__", "__file__") if name in main}
    main.update(dict.fromkeys(known))
    try:
        yield
    finally:
        main.update(known)
