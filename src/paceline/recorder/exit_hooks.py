"""Flush the recording when the process ends: uncaught exception, SIGTERM, or interpreter exit.

Hooks and handlers that were installed before are called afterwards, so another library's handler and the normal
traceback still work. kill -9 cannot be caught; everything written until about a second before is in the log.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Callable, Optional, Type

from paceline.recorder.recording_state import RecorderControl

_ExceptHook = Callable[[Type[BaseException], BaseException, Optional[TracebackType]], Any]


class ExitHooks:
    def __init__(self, recorder: RecorderControl) -> None:
        self._recorder = recorder
        self._pid = os.getpid()
        atexit.register(self._on_exit)
        self._previous_hook: _ExceptHook = sys.excepthook
        sys.excepthook = self._on_exception
        self._previous_handler: Any = None
        # Only the main thread may install signal handlers; a recorder started elsewhere flushes at interpreter exit.
        self._handles_sigterm = threading.current_thread() is threading.main_thread()
        if self._handles_sigterm:
            self._previous_handler = signal.signal(signal.SIGTERM, self._on_sigterm)

    def remove(self) -> None:
        """Restore the previous hooks, except where another library has replaced ours since."""
        atexit.unregister(self._on_exit)
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._previous_hook
        if (
            self._handles_sigterm
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) == self._on_sigterm
        ):
            previous = self._previous_handler
            signal.signal(signal.SIGTERM, previous if previous is not None else signal.SIG_DFL)

    @property
    def _is_active(self) -> bool:
        """False in forked workers: they inherit the hooks, but must not write to the parent's log."""
        return os.getpid() == self._pid and self._recorder.running

    def _on_exit(self) -> None:
        if self._is_active:
            self._recorder.close()

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if self._is_active:
            self._recorder.event("exception", f"{kind.__name__}: {error}")
            self._recorder.flush()
        self._previous_hook(kind, error, trace)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if self._is_active:
            self._recorder.event("sigterm", "")
            self._recorder.flush()
        if callable(self._previous_handler):
            self._previous_handler(number, frame)
        elif self._previous_handler != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
