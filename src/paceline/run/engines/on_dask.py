"""Workers of a Dask cluster: `--engine dask://scheduler:8786`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from paceline.errors import PacelineError, UsageError
from paceline.run.engines import Lost
from paceline.run.engines.far import OURS, cannot_run, check_answers, check_version, run_checked

T = TypeVar("T")
R = TypeVar("R")

CONNECTED_WITHIN = 10
WORKERS_WITHIN = 15
"""Seconds."""


class OnDask:
    """The scheduler gives a dead worker's tasks to others, and gives up on one that killed several."""

    far = True

    def __init__(self, address: str) -> None:
        try:
            import distributed  # noqa: F401
        except ImportError as error:
            raise UsageError("Dask is not installed", hint="pip install 'paceline[dask]'") from error
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # pages of tracebacks before our one sentence
        self._address, self._place = address, address.replace("dask:", "tcp:", 1)
        check_answers(address)
        self._client = self._connected()
        try:
            self._await_workers()
            self._check_workers()
        except BaseException:
            self._client.close()
            raise

    def _connected(self) -> Any:
        from distributed import Client

        try:
            with ThreadPoolExecutor(1) as aside:  # a notebook has a loop of its own in this thread
                aside.submit(asyncio.run, _greet(self._place)).result()
            return Client(self._place, timeout="10s", set_as_default=False)
        except Exception as error:  # whatever something else than Dask may answer, down to sizes of exabytes
            raise PacelineError(
                f"{self._address}: no Dask scheduler answers ({type(error).__name__})",
                hint="give the port that dask scheduler names",
            ) from error

    def _check_workers(self) -> None:
        """A worker that cannot import what it is given ends without a word; so each is asked in words that Python knows."""
        ours = f"__import__({run_checked.__module__!r}, fromlist=['OURS']).OURS"
        for said in self._client.run(eval, ours, on_error="return").values():
            if isinstance(said, Exception):
                raise cannot_run(self._address, said)
            check_version(said)

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

        from distributed import KilledWorker

        futures = {self._client.submit(run_checked, work, OURS, task, pure=False): task for task in tasks}
        try:
            for future in self._as_completed(futures):
                task = futures.pop(future)
                try:
                    yield task, future.result()
                except KilledWorker:
                    yield task, Lost()
                except (ImportError, AttributeError) as error:
                    raise cannot_run(self._address, error) from error
                except RuntimeError as error:
                    if "deserialization" not in str(error):
                        raise
                    raise cannot_run(self._address, error) from error
        except CancelledError as error:
            raise PacelineError(
                f"{self._address}: the scheduler went away", hint="what was read is kept; start again"
            ) from error
        finally:
            self._client.cancel(list(futures))

    def _as_completed(self, futures: dict[Any, T]) -> Iterator[Any]:
        """Those that are done, until none is left; each is taken out of `futures` by the caller."""
        from distributed import wait

        while futures:
            try:
                with self._client.as_current():  # "wait" asks the client of the thread
                    done = wait(list(futures), timeout=WORKERS_WITHIN, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                self._await_workers()
                continue
            yield from done

    def _await_workers(self) -> None:
        """Workers that died with somebody's last task are back within seconds; without any, tasks would wait for ever."""
        try:
            self._client.wait_for_workers(1, timeout=WORKERS_WITHIN)
        except TimeoutError as error:
            raise PacelineError(
                f"{self._address}: the scheduler has no workers", hint=f"start some: dask worker {self._place}"
            ) from error

    def close(self) -> None:
        self._client.close()


async def _greet(place: str) -> None:
    """The client itself would wait for ever when something else than Dask listens there."""
    from distributed.comm.core import connect

    comm = await asyncio.wait_for(connect(place, timeout=CONNECTED_WITHIN), CONNECTED_WITHIN)
    await comm.close()
