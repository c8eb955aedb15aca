"""Call monitors so that none of them ends the training: what fails is reported, the other monitors are still called."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from paceline.core.errors import PacelineError, UsageError

_log = logging.getLogger("paceline.training")


class Called(Protocol):
    """A Monitor; the other hooks are called by name."""

    def close(self) -> None: ...


class StopTraining(PacelineError):
    """A monitor raises this to end training on purpose. Every other error is reported, and training goes on."""


@dataclass
class _Failures:
    count: int = 0
    first: str = ""
    known: set[str] = field(default_factory=set)


class MonitorCalls:
    def __init__(self, monitors: Sequence[Called]) -> None:
        self.monitors = list(monitors)
        self._failures: dict[int, _Failures] = {}

    def call(self, hook: str, *arguments: Any) -> None:
        """Call a method of every monitor. A UsageError of train_begin is raised: nothing is lost yet, and it is quickly fixed."""
        for monitor in self.monitors:
            try:
                getattr(monitor, hook)(*arguments)
            except StopTraining:
                raise
            except Exception as error:  # whatever a monitor raises must not end the training
                if hook == "train_begin" and isinstance(error, UsageError):
                    raise
                if any(getattr(each, "error", None) is error for each in arguments):
                    raise  # of the training itself
                self._report(monitor, hook, error)

    def close(self) -> None:
        """Close every monitor, say once what failed, then raise the first StopTraining."""
        stop: StopTraining | None = None
        for monitor in self.monitors:
            try:
                monitor.close()
            except StopTraining as error:
                stop = stop or error
            except Exception as error:  # the other monitors are closed too
                self._report(monitor, "close", error)
        self._summarise()
        if stop is not None:
            raise stop

    def _report(self, monitor: Called, hook: str, error: Exception) -> None:
        """Log an error when it is new; `_summarise` counts them."""
        name = type(monitor).__name__
        what = f"{hook}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        failures = self._failures.setdefault(id(monitor), _Failures())
        failures.count += 1
        failures.first = failures.first or what
        if hook in failures.known:
            return
        failures.known.add(hook)
        # The traceback of our errors says nothing that the message does not.
        trace = None if isinstance(error, PacelineError) else error
        _log.warning("%s failed in %s; training continues without what it does", name, what, exc_info=trace)

    def _summarise(self) -> None:
        for monitor in self.monitors:
            failures = self._failures.pop(id(monitor), None)
            if failures is not None and failures.count > 1:
                _log.warning(
                    "%s failed %d times during training, first in %s",
                    type(monitor).__name__,
                    failures.count,
                    failures.first,
                )
