"""Start small_training.py, wait for its output, and read checkpoints without the code under test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from paceline.storage.stores.open_store import open_store
from support.checkpoint.making import read

SCRIPT = Path(__file__).with_name("small_training.py")


class Training:
    """A small training in a child process."""

    def __init__(self, root: Path, env: dict[str, str] | None = None, **options: Any) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root, self.log = root, root.with_name(f"{root.name}.{options.get('ranks', [0])[0]}.out")
        words = [sys.executable, str(SCRIPT), json.dumps({"root": str(root), **options})]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(words, stdout=out, stderr=out, env={**os.environ, **(env or {})})

    def wait(self, seconds: float = 600) -> int:
        return self.process.wait(seconds)

    def kill(self, number: int = signal.SIGKILL) -> int:
        self.process.send_signal(number)
        return self.wait()

    @property
    def step(self) -> int:
        try:
            return int((self.root / "progress-0").read_text() or 0)
        except FileNotFoundError:
            return 0

    @property
    def output(self) -> str:
        return self.log.read_text()

    def until(self, what: Callable[[], object], seconds: float = 600) -> None:
        wait_for(lambda: what() or self._check_alive(), seconds, lambda: self.output)

    def _check_alive(self) -> None:
        assert self.process.poll() is None, self.output


def wait_for(what: Callable[[], object], seconds: float = 600, told: Callable[[], str] = str) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, told()
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def stored(url: str) -> dict[str, int]:
    """Objects at a URL, with their sizes."""
    store = open_store(url)
    try:
        return {item.key: item.size for item in store.list_files()}
    finally:
        store.close()


def fetched(url: str, key: str) -> bytes:
    store = open_store(url)
    try:
        item = store.stat(key)
        assert item is not None
        return bytes(store.read(item, 0, item.size))
    finally:
        store.close()


def weights_in(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    return read(path)


def assert_whole(path: Path, step: int) -> None:
    """Every number of a checkpoint of small_training.py is its step (moments: twice that)."""
    found = weights_in(path)
    assert np.all(found["w"] == step) and np.all(found["exp_avg.w"] == 2 * step) and np.all(found["b"] == step)
    assert int(found["global_step"]) == step
