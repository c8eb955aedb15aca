"""Say what we wait for: whatever takes longer than two seconds is named, with whom it waits for.

A library is silent; a command turns the notes on with `show_waits`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST = 2.0
"""Seconds after which a wait is named."""
AGAIN = 30.0

_show: Callable[[str], None] | None = None
_waits: list[object] = []
"""Waits that are going on; the innermost is the last, and the only one that is shown."""
_shown: dict[str, float] = {}
_lock = threading.Lock()


def show_waits(show: Callable[[str], None] | None) -> None:
    """From now on waits are shown with this function; None = they are not."""
    global _show
    _show = show


@contextmanager
def waiting_for(whom: str) -> Iterator[None]:
    """While the block runs, whom it waits for is shown after two seconds and then every half minute."""
    show = _show
    if show is None:
        yield
        return
    own, done = object(), threading.Event()
    with _lock:
        _waits.append(own)
    thread = threading.Thread(target=_tell, args=(own, whom, show, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        with _lock:
            _waits.remove(own)


def note_wait(text: str) -> None:
    """Show a reason for waiting now; the same text at most every half minute."""
    show, now = _show, time.monotonic()
    if show is None:
        return
    with _lock:
        if now - _shown.get(text, -AGAIN) < AGAIN:
            return
        _shown[text] = now
    show(text)


def _tell(own: object, whom: str, show: Callable[[str], None], done: threading.Event) -> None:
    started, pause = time.monotonic(), FIRST
    while not done.wait(pause):
        pause = AGAIN
        with _lock:
            innermost = bool(_waits) and _waits[-1] is own
        if innermost:
            show(f"waiting for {whom} ({time.monotonic() - started:.0f} s)")
