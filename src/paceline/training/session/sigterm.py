"""Handle SIGTERM in a session: raise in the main thread, or upload from a thread if that one is stuck in native code.

Python runs signal handlers only between bytecodes; a compiled graph may compute for minutes. The C-level handler writes
to the wake-up pipe immediately, so a thread sees the signal and can upload the outputs itself. A child process that was
just forked shares that pipe; therefore the thread first probes the main thread with another signal.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_log = logging.getLogger("paceline.training")


EXIT_CODE = 128 + signal.SIGTERM
_PROBE = signal.SIGURG
_PROBE_SECONDS = 2.0
_installed: list[TermSignal] = []


class TermSignal:
    """Active between `install` and `remove`; calls `rescue` in a thread if the main thread does not exit in time."""

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
        """False outside of the main thread, where Python allows no handlers."""
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
        """The main thread is exiting: no rescue needed."""
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
        """In a forked child (a data loader's worker), whose SIGTERM does not concern the session."""
        signal.set_wakeup_fd(-1)
        signal.signal(_PROBE, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._pipe = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child that has not called forget() yet
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        if self._unwinding.is_set():
            _log.warning("SIGTERM again: outputs are already being uploaded")
            return
        self._unwinding.set()
        _log.warning("SIGTERM: exiting, outputs are uploaded first")
        raise SystemExit(EXIT_CODE)

    def _is_stuck(self) -> bool:
        self._answered.clear()
        os.kill(os.getpid(), _PROBE)
        return not self._answered.wait(_PROBE_SECONDS) and not self._unwinding.is_set()

    def _watch(self, pipe: int) -> None:
        while data := os.read(pipe, 64):
            if 0 in data:
                break
            if signal.SIGTERM in data and not self._unwinding.wait(self._grace) and self._is_stuck():
                _log.warning("SIGTERM: the training step does not return; uploading outputs from another thread")
                self._rescue()
                os._exit(EXIT_CODE)
        os.close(pipe)


def _forget_all() -> None:
    for each in _installed:
        each.forget()
    _installed.clear()


os.register_at_fork(after_in_child=_forget_all)
