"""log/rank_i/info.log and error.log, and the console of one rank per host."""

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
    """Of Paceline's own logger; a script's loggers can be given the same handlers."""

    def __init__(self, directory: Path, ranks: Ranks) -> None:
        self.handlers: list[logging.Handler] = []
        self._level = _ROOT.level
        for name, level in (("info.log", logging.INFO), ("error.log", logging.ERROR)):
            file = LogFile(directory / name)
            file.setLevel(level)
            self.handlers.append(file)
        if not _ROOT.handlers and not logging.getLogger().handlers:
            console = logging.StreamHandler(sys.stdout)
            # One voice per host; every rank's warnings are heard.
            console.setLevel(logging.INFO if ranks.is_leader else logging.WARNING)
            self.handlers.append(console)
        if _ROOT.level == logging.NOTSET or _ROOT.level > logging.INFO:
            _ROOT.setLevel(logging.INFO)
        for handler in self.handlers:
            handler.setFormatter(logging.Formatter(_FORMAT.format(rank=ranks.rank)))
            _ROOT.addHandler(handler)

    def flush(self) -> None:
        for handler in self.handlers:
            with suppress(OSError):  # said when the line was written
                handler.flush()

    def close(self) -> None:
        for handler in self.handlers:
            _ROOT.removeHandler(handler)
            with suppress(OSError):
                handler.close()
        _ROOT.setLevel(self._level)


class LogFile(logging.handlers.RotatingFileHandler):
    """A disk that takes nothing is said once on stderr until it takes lines again, not with a traceback for every line."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=_BYTES, backupCount=_FILES, encoding="utf-8", delay=True)
        self._fails = self._said = False

    def emit(self, record: logging.LogRecord) -> None:
        self._fails = False
        super().emit(record)
        self._said = self._fails

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._fails = True
        if not self._said:
            why = (error.strerror or str(error)).lower()
            print(f"paceline: {self.baseFilename}: {why}; lines are missing there, training goes on", file=sys.stderr)
