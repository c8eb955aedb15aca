"""Workers of a Ray cluster: `--engine ray://head:10001` (Ray's client port)."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from paceline.errors import PacelineError, UsageError
from paceline.run.engines import Lost
from paceline.run.engines.far import OURS, cannot_run, check_answers, run_checked

T = TypeVar("T")
R = TypeVar("R")

TRIES = 3
_NOT_INSTALLED = re.compile(r"failed to import|No module named 'paceline|Can't get attribute")


class OnRay:
    far = True

    def __init__(self, address: str) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would phone home
        try:
            import ray  # noqa: F401
        except ImportError as error:
            raise UsageError("Ray is not installed", hint="pip install 'paceline[ray]'") from error
        self._address = address
        check_answers(address)
        self._client = self._connected()

    def _connected(self) -> Any:
        import ray

        for attempt in range(TRIES):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # it says at length what our error says in a line
                    return ray.init(
                        self._address, namespace="paceline", logging_level=logging.ERROR, allow_multiple=True
                    )
            except (ConnectionError, RuntimeError, TimeoutError) as error:
                # The head forks a server for every client, and now and then that one is born dead; the next is not.
                if attempt == TRIES - 1 or "client server failed" not in str(error):
                    raise PacelineError(f"{self._address}: no Ray head answers ({error})") from error
        raise AssertionError("unreachable")

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[T, R | Lost]]:
        import ray
        from ray.exceptions import RayError, RayTaskError

        with self._asked():
            remote: Any = ray.remote(max_retries=TRIES - 1)(run_checked)
            waiting = {remote.remote(work, OURS, task): task for task in tasks}
        while waiting:
            with self._asked():
                ready, _ = ray.wait(list(waiting), num_returns=1)
            for reference in ready:
                task = waiting.pop(reference)
                try:
                    with self._asked():
                        result = ray.get(reference)
                except RayTaskError as error:
                    if _NOT_INSTALLED.search(str(error)):
                        raise cannot_run(self._address, error) from error
                    raise error.as_instanceof_cause() from error
                except RayError:
                    yield task, Lost()
                else:
                    yield task, result

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """This client's cluster is the one that Ray's functions speak to."""
        from ray.exceptions import RayTaskError

        try:
            with self._client:
                yield
        except (ConnectionError, ImportError, AttributeError) as error:
            if isinstance(error, RayTaskError):
                raise  # a reader's own trouble, say with some other server
            if not isinstance(error, ConnectionError):
                raise cannot_run(self._address, error) from error
            raise PacelineError(
                f"{self._address}: the Ray head went away", hint="what was read is kept; start again"
            ) from error

    def close(self) -> None:
        self._client.disconnect()
