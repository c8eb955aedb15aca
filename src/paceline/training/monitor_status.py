"""MonitorStatus: status file of a monitor, uploaded with the logs; repeated failures are logged once."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

from paceline.core.errors import PacelineError

_log = logging.getLogger("paceline.training")
_KEPT_FAILURES = 20


class MonitorStatus:
    """State of one monitor, kept in a JSON file: last result, failures, leftovers."""

    def __init__(self, directory: Path | None, name: str) -> None:
        self._path = directory / f"{name}.json" if directory else None
        self._lock = threading.Lock()
        self._facts: dict[str, Any] = {}
        self._failures: list[dict[str, Any]] = []
        self._last_logged = ""
        self.problem: PacelineError | None = None
        """Current problem; None after a success."""

    def update(self, **facts: Any) -> None:
        with self._lock:
            self._facts.update(facts)
            self._write()

    def succeeded(self, **facts: Any) -> None:
        with self._lock:
            if self.problem is not None:
                _log.info("%s: recovered", self._name)
            self.problem, self._last_logged = None, ""
            self._facts.update(facts)
            self._write()

    def failed(self, error: PacelineError, *, consequence: str) -> None:
        """Log a problem once until it changes or is resolved; the file counts all failures."""
        with self._lock:
            self.problem = error
            text = str(error)
            hint = f" ({error.hint})" if error.hint else ""
            if text != self._last_logged:
                _log.warning("%s%s; %s", text, hint, consequence)
            self._last_logged = text
            self._failures = [*self._failures, {"time": _now(), "what": text, "do": error.hint}][-_KEPT_FAILURES:]
            self._facts["failures"] = self._facts.get("failures", 0) + 1
            self._write()

    @property
    def _name(self) -> str:
        return self._path.stem if self._path else "monitor"

    def _write(self) -> None:
        if self._path is None:
            return
        content = {"updated": _now(), **self._facts, "latest_failures": self._failures}
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        try:
            temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False, default=str))
            temporary.replace(self._path)
        except OSError:
            pass  # the disk may be full, which may be the problem to report: the log has it


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
