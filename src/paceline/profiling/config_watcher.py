"""Polling of profiler_config.json, in a background thread of DynamicProfilerMonitor."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from paceline.core.errors import FormatError
from paceline.profiling.dynamic_config import DEFAULTS, RecordRequest, read_request
from paceline.profiling.output_files import part_path, write_json

LOGGER = logging.getLogger("paceline.profiling")
_RACY_SECONDS = 2.0
"""A file younger than this may be rewritten within the same timestamp, so it is read again."""


class ConfigFile:
    """The last valid configuration; an unreadable file is reported once and changes nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.request: RecordRequest | None = None
        self._stamp: tuple[int, int, int] | None = None
        self._may_change_unseen = True
        self._last_warning = ""

    def create(self) -> None:
        """Create the file with the documented defaults; an existing file is never overwritten."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            return
        part = part_path(self.path)
        write_json(part, DEFAULTS)
        try:
            os.link(part, self.path)
        except FileExistsError:
            pass  # another rank, or the user, created it meanwhile
        except OSError:
            write_json(self.path, DEFAULTS)
        finally:
            part.unlink(missing_ok=True)

    def poll(self) -> RecordRequest | None:
        """The request if it is new, else None."""
        try:
            status = self.path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == self._stamp and not self._may_change_unseen:
                return None
            request, corrections = read_request(self.path)
        except FileNotFoundError:
            return None
        except (OSError, FormatError) as error:
            self._warn_once(f"{self.path} {error}: the previous configuration stays in force")
            return None
        self._stamp, self._may_change_unseen = stamp, time.time() - status.st_mtime < _RACY_SECONDS
        self._last_warning = ""
        if self.request is not None and request.version == self.request.version:
            return None
        self.request = request
        for correction in corrections:
            LOGGER.warning("%s: %s", self.path, correction)
        return request

    def _warn_once(self, text: str) -> None:
        if text != self._last_warning:
            self._last_warning = text
            LOGGER.warning("%s", text)


class PollingThread:
    """Calls `poll` every `interval` seconds from start() to stop()."""

    def __init__(self, poll: Callable[[], None], interval: float) -> None:
        self._poll, self._interval = poll, interval
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paceline-profiling", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            self._poll()
