"""The ways a job ends: an exception nobody catches, SIGTERM, or the interpreter's exit. Each flushes first.

What was installed before is called afterwards: another library's handler and the usual traceback still happen.
kill -9 cannot be caught; what was recorded until half a second before lies in the log.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.profiling.recorder.recorder import Recorder

_Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


class Endings:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._pid = os.getpid()
        atexit.register(self._exit)
        self._hook: _Hook = sys.excepthook
        sys.excepthook = self._uncaught
        self._handler: Any = None
        # Only the main thread may install handlers; elsewhere the interpreter's exit has to do.
        self._on_signal = threading.current_thread() is threading.main_thread()
        if self._on_signal:
            self._handler = signal.signal(signal.SIGTERM, self._terminated)

    def remove(self) -> None:
        """Give back what is still ours; who came after us keeps his place."""
        atexit.unregister(self._exit)
        if sys.excepthook == self._uncaught:
            sys.excepthook = self._hook
        if (
            self._on_signal
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) == self._terminated
        ):
            signal.signal(signal.SIGTERM, self._handler if self._handler is not None else signal.SIG_DFL)

    @property
    def _ours(self) -> bool:
        """Forked workers inherit handlers, but the log is not theirs."""
        return os.getpid() == self._pid and self._recorder.running

    def _exit(self) -> None:
        if self._ours:
            self._recorder.close()

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if self._ours:
            self._recorder.event("exception", f"{kind.__name__}: {error}")
            self._recorder.flush()
        self._hook(kind, error, trace)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        if self._ours:
            self._recorder.event("sigterm", "")
            self._recorder.flush()
        if callable(self._handler):
            self._handler(number, frame)
        elif self._handler != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
