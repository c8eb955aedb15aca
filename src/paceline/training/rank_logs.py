"""Log files log/rank_i/info.log and error.log; console output for one rank per host."""

from __future__ import annotations

import logging
import logging.handlers
import sys
from contextlib import suppress
from pathlib import Path

from paceline.training.ranks import Ranks

_FORMAT = "%(asctime)s - %(name)s[rank {rank}] - %(levelname)s - %(message)s"
_BYTES, _FILES = 50 << 20, 5
_ROOT = logging.getLogger("paceline")


class RankLog:
    """Handlers of Paceline's logger; a script can add them to its own loggers."""

    def __init__(self, directory: Path, ranks: Ranks) -> None:
        self.handlers: list[logging.Handler] = []
        self._level = _ROOT.level
        for name, level in (("info.log", logging.INFO), ("error.log", logging.ERROR)):
            file = LogFile(directory / name)
            file.setLevel(level)
            self.handlers.append(file)
        if not _ROOT.handlers and not logging.getLogger().handlers:
            console = logging.StreamHandler(sys.stdout)
            # Info messages from one rank per host, warnings from every rank.
            console.setLevel(logging.INFO if ranks.is_leader else logging.WARNING)
            self.handlers.append(console)
        if _ROOT.level == logging.NOTSET or _ROOT.level > logging.INFO:
            _ROOT.setLevel(logging.INFO)
        for handler in self.handlers:
            handler.setFormatter(logging.Formatter(_FORMAT.format(rank=ranks.rank)))
            _ROOT.addHandler(handler)

    def flush(self) -> None:
        for handler in self.handlers:
            with suppress(OSError):  # reported when the line was written
                handler.flush()

    def close(self) -> None:
        for handler in self.handlers:
            _ROOT.removeHandler(handler)
            with suppress(OSError):
                handler.close()
        _ROOT.setLevel(self._level)


class LogFile(logging.handlers.RotatingFileHandler):
    """Reports a full disk once on stderr until writing works again, instead of a traceback per line."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=_BYTES, backupCount=_FILES, encoding="utf-8", delay=True)
        self._failing = self._reported = False

    def emit(self, record: logging.LogRecord) -> None:
        self._failing = False
        super().emit(record)
        self._reported = self._failing

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._failing = True
        if not self._reported:
            reason = (error.strerror or str(error)).lower()
            print(f"paceline: {self.baseFilename}: {reason}; log lines are lost, training continues", file=sys.stderr)
