"""SIGTERM as the end of a session: an exception in the main thread, or, when that is deep in native code, a thread.

Python runs signal handlers only between two lines of Python; a compiled graph may compute for minutes. The wake-up pipe
is written by the C handler at once, so a thread can see the signal and bring the outputs home itself. A child that was
forked a moment ago shares that pipe: so the thread first asks the main thread, by another signal, whether it is stuck.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from paceline.training.telling import log

EXIT_CODE = 128 + signal.SIGTERM
_PROBE = signal.SIGURG
_ANSWER = 2.0
_installed: list[TermSignal] = []


class TermSignal:
    """Between `install` and `remove`; `rescue` is called in a thread when the main thread does not get out in time."""

    def __init__(self, rescue: Callable[[], None], grace: float) -> None:
        self._rescue, self._grace = rescue, grace
        self._before: Any = None
        self._wake_before = -1
        self._pipe: tuple[int, int] | None = None
        self._unwinding = threading.Event()
        self._answered = threading.Event()
        self._process = os.getpid()
        self._probe_before: Any = None

    def install(self) -> bool:
        """False outside of the main thread, where Python takes no handlers."""
        if threading.current_thread() is not threading.main_thread():
            return False
        self._before = signal.signal(signal.SIGTERM, self._handle)
        self._probe_before = signal.signal(_PROBE, lambda *_: self._answered.set())
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        self._wake_before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        os.set_blocking(self._pipe[0], True)
        _installed.append(self)
        threading.Thread(target=self._watch, args=(self._pipe[0],), name="paceline-sigterm", daemon=True).start()
        return True

    def unwinding(self) -> None:
        """The main thread is on its way out: no rescue needed."""
        self._unwinding.set()

    def remove(self) -> None:
        if self._pipe is None:
            return
        self._unwinding.set()
        _installed.remove(self)
        signal.set_wakeup_fd(self._wake_before)
        signal.signal(signal.SIGTERM, self._before if self._before is not None else signal.SIG_DFL)
        signal.signal(_PROBE, self._probe_before if self._probe_before is not None else signal.SIG_DFL)
        os.write(self._pipe[1], b"\0")  # ends the thread
        os.close(self._pipe[1])
        self._pipe = None

    def forget(self) -> None:
        """In a forked child (a data loader's worker): its SIGTERM is no business of the session."""
        signal.set_wakeup_fd(-1)
        signal.signal(_PROBE, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._pipe = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child, before it could forget
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        if self._unwinding.is_set():
            log.warning("SIGTERM again: outputs are already on their way")
            return
        self._unwinding.set()
        log.warning("SIGTERM: ending, outputs are brought home")
        raise SystemExit(EXIT_CODE)

    def _is_stuck(self) -> bool:
        self._answered.clear()
        os.kill(os.getpid(), _PROBE)
        return not self._answered.wait(_ANSWER) and not self._unwinding.is_set()

    def _watch(self, pipe: int) -> None:
        while data := os.read(pipe, 64):
            if 0 in data:
                break
            if signal.SIGTERM in data and not self._unwinding.wait(self._grace) and self._is_stuck():
                log.warning("SIGTERM: training does not get out of its step; outputs are brought home beside it")
                self._rescue()
                os._exit(EXIT_CODE)
        os.close(pipe)


def _forget_all() -> None:
    for each in _installed:
        each.forget()
    _installed.clear()


os.register_at_fork(after_in_child=_forget_all)
