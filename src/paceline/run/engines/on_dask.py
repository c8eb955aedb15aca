"""Workers of a Dask cluster: `--engine dask://scheduler:8786`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from paceline.errors import PacelineError, UsageError
from paceline.run.engines import Lost

T = TypeVar("T")
R = TypeVar("R")

WORKERS_WITHIN = 15
"""Seconds."""


class OnDask:
    """The scheduler gives a dead worker's tasks to others, and gives up on one that killed several."""

    far = True

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise UsageError("Dask is not installed", hint="pip install 'paceline[dask]'") from error
        self._address = address
        try:
            self._client = Client(f"tcp://{address}", timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise PacelineError(f"dask://{address}: no scheduler answers ({error})") from error
        try:
            # Workers that died with somebody's last task are back within seconds.
            self._client.wait_for_workers(1, timeout=WORKERS_WITHIN)
        except TimeoutError as error:
            self._client.close()
            raise PacelineError(
                f"dask://{address}: the scheduler has no workers", hint=f"start some: dask worker tcp://{address}"
            ) from error

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[T, R | Lost]]:
        suspects: list[T] = []
        for task, result in self._together(work, tasks):
            if isinstance(result, Lost):
                suspects.append(task)
            else:
                yield task, result
        # The scheduler blames all tasks a dead worker had, the innocent too; alone, each speaks for itself.
        for task in suspects:
            yield from self._together(work, [task])

    def _together(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[T, R | Lost]]:
        from concurrent.futures import CancelledError

        from distributed import KilledWorker, as_completed

        futures = {self._client.submit(work, task, pure=False): task for task in tasks}
        try:
            for future in as_completed(list(futures), loop=self._client.loop):
                task = futures.pop(future)
                try:
                    yield task, future.result()
                except KilledWorker:
                    yield task, Lost("every worker that read it died (killed, or out of memory)")
        except CancelledError as error:
            raise PacelineError(
                f"dask://{self._address}: the scheduler went away", hint="what was read is kept; start again"
            ) from error
        finally:
            self._client.cancel(list(futures))

    def close(self) -> None:
        self._client.close()
