"""What went wrong is said in the log and kept in a file that goes home with the logs; once, not at every step."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

from paceline.errors import PacelineError

log = logging.getLogger("paceline.training")
_LATEST = 20


class Told:
    """The state of one monitor as a file: what it did last, what failed, what waits."""

    def __init__(self, directory: Path | None, name: str) -> None:
        self._path = directory / f"{name}.json" if directory else None
        self._lock = threading.Lock()
        self._facts: dict[str, Any] = {}
        self._failures: list[dict[str, Any]] = []
        self._last = ""
        self.problem: PacelineError | None = None
        """What is wrong now; None again once it worked."""

    def fact(self, **facts: Any) -> None:
        with self._lock:
            self._facts.update(facts)
            self._write()

    def worked(self, **facts: Any) -> None:
        with self._lock:
            if self.problem is not None:
                log.info("%s: works again", self._name)
            self.problem, self._last = None, ""
            self._facts.update(facts)
            self._write()

    def failed(self, error: PacelineError, *, consequence: str) -> None:
        """The same problem is said once until it changes or is over; the file counts all."""
        with self._lock:
            self.problem = error
            text = str(error)
            hint = f" ({error.hint})" if error.hint else ""
            if text != self._last:
                log.warning("%s%s; %s", text, hint, consequence)
            self._last = text
            self._failures = [*self._failures, {"time": _now(), "what": text, "do": error.hint}][-_LATEST:]
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
            pass  # a full disk is what there may be to tell: the log has it


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
