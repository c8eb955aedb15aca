"""RayExecutor: workers of a Ray cluster, `--engine ray://head:10001` (Ray's client port)."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from paceline.core.errors import PacelineError, UsageError
from paceline.run.executors.dask_ray_checks import OUR_VERSION, cannot_run, check_reachable, run_checked
from paceline.run.executors.executor import CrashedTask

T = TypeVar("T")
R = TypeVar("R")

TRIES = 3
_NOT_INSTALLED = re.compile(r"failed to import|No module named 'paceline|Can't get attribute")


class RayExecutor:
    is_remote = True

    def __init__(self, address: str) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics
        try:
            import ray  # noqa: F401
        except ImportError as error:
            raise UsageError("Ray is not installed", hint="pip install 'paceline[ray]'") from error
        self._address = address
        check_reachable(address)
        self._client = self._connected()

    def _connected(self) -> Any:
        import ray

        for attempt in range(TRIES):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # our one-line error says the same
                    return ray.init(
                        self._address, namespace="paceline", logging_level=logging.ERROR, allow_multiple=True
                    )
            except (ConnectionError, RuntimeError, TimeoutError) as error:
                # The head starts a server for every client, and sometimes that fails; the next attempt works.
                if attempt == TRIES - 1 or "client server failed" not in str(error):
                    raise PacelineError(f"{self._address}: could not connect to a Ray head ({error})") from error
        raise AssertionError("unreachable")

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[T, R | CrashedTask]]:
        import ray
        from ray.exceptions import RayError, RayTaskError

        with self._connected_client():
            remote: Any = ray.remote(max_retries=TRIES - 1)(run_checked)
            waiting = {remote.remote(work, OUR_VERSION, task): task for task in tasks}
        while waiting:
            with self._connected_client():
                ready, _ = ray.wait(list(waiting), num_returns=1)
            for reference in ready:
                task = waiting.pop(reference)
                try:
                    with self._connected_client():
                        result = ray.get(reference)
                except RayTaskError as error:
                    if _NOT_INSTALLED.search(str(error)):
                        raise cannot_run(self._address, error) from error
                    raise error.as_instanceof_cause() from error
                except RayError:
                    yield task, CrashedTask()
                else:
                    yield task, result

    @contextmanager
    def _connected_client(self) -> Iterator[None]:
        """Ray's module functions use this client's cluster; lost connections become one-line errors."""
        from ray.exceptions import RayTaskError

        try:
            with self._client:
                yield
        except (ConnectionError, ImportError, AttributeError) as error:
            if isinstance(error, RayTaskError):
                raise  # an error of the task itself
            if not isinstance(error, ConnectionError):
                raise cannot_run(self._address, error) from error
            raise PacelineError(
                f"{self._address}: lost the connection to the Ray head",
                hint="what was read so far is stored; run the command again",
            ) from error

    def close(self) -> None:
        self._client.disconnect()


def create_executor(address: str, *, workers: int) -> RayExecutor:
    """Entry point `ray`; the cluster decides how many workers there are."""
    return RayExecutor(address)
