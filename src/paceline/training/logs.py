"""log/rank_i/info.log and error.log, and the console of one rank per host."""

from __future__ import annotations

import logging
import logging.handlers
import sys
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
            file = logging.handlers.RotatingFileHandler(
                directory / name, maxBytes=_BYTES, backupCount=_FILES, encoding="utf-8", delay=True
            )
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
            handler.flush()

    def close(self) -> None:
        for handler in self.handlers:
            _ROOT.removeHandler(handler)
            handler.close()
        _ROOT.setLevel(self._level)
