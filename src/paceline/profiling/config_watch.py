"""The thread of a DynamicProfilerMonitor: looks at the configuration, tells the others, and keeps out of training's way."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from paceline.errors import FormatError
from paceline.profiling.dynamic_config import DEFAULTS, Request, read_request
from paceline.profiling.output import part_of, write_json

LOGGER = logging.getLogger("paceline.profiling")
_RACY_SECONDS = 2.0
"""A file as young as this may be written again without a newer time stamp: it is read again."""


class ConfigFile:
    """The configuration as last understood; what cannot be read is said once and changes nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.request: Request | None = None
        self._stamp: tuple[int, int, int] | None = None
        self._young = True
        self._complaint = ""

    def create(self) -> None:
        """With the documented defaults, unless it is there: never over somebody's file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            return
        beside = part_of(self.path)
        write_json(beside, DEFAULTS)
        try:
            os.link(beside, self.path)
        except FileExistsError:
            pass  # another rank, or the user, was faster
        except OSError:
            write_json(self.path, DEFAULTS)
        finally:
            beside.unlink(missing_ok=True)

    def poll(self) -> Request | None:
        """A request that is new, else None."""
        try:
            status = self.path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == self._stamp and not self._young:
                return None
            request, corrections = read_request(self.path)
        except FileNotFoundError:
            return None
        except (OSError, FormatError) as error:
            self._complain(f"{self.path} {error}: the configuration before stays in force")
            return None
        self._stamp, self._young = stamp, time.time() - status.st_mtime < _RACY_SECONDS
        self._complaint = ""
        if self.request is not None and request.version == self.request.version:
            return None
        self.request = request
        for correction in corrections:
            LOGGER.warning("%s: %s", self.path, correction)
        return request

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            LOGGER.warning("%s", text)


class Watcher:
    """Calls `look` every `interval` seconds until stopped; started when asked, never before."""

    def __init__(self, look: Callable[[], None], interval: float) -> None:
        self._look, self._interval = look, interval
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paceline-profiling", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._done.wait(self._interval):
            self._look()
