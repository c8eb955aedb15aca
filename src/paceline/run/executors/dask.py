"""DaskExecutor: workers of a Dask cluster, `--engine dask://scheduler:8786`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from paceline.core.errors import PacelineError, UsageError
from paceline.run.executors.dask_ray_checks import OUR_VERSION, cannot_run, check_reachable, check_version, run_checked
from paceline.run.executors.executor import CrashedTask

T = TypeVar("T")
R = TypeVar("R")

CONNECT_TIMEOUT_S = 10
WORKERS_TIMEOUT_S = 15


class DaskExecutor:
    """Dask's scheduler gives the tasks of a dead worker to others, and gives up on a task that killed several."""

    is_remote = True

    def __init__(self, address: str) -> None:
        try:
            import distributed  # noqa: F401
        except ImportError as error:
            raise UsageError("Dask is not installed", hint="pip install 'paceline[dask]'") from error
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # it logs pages of tracebacks before our one-line error
        self._address, self._scheduler = address, address.replace("dask:", "tcp:", 1)
        check_reachable(address)
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
            with ThreadPoolExecutor(1) as pool:  # in a notebook this thread already runs an event loop
                pool.submit(asyncio.run, _connect(self._scheduler)).result()
            return Client(self._scheduler, timeout="10s", set_as_default=False)
        except Exception as error:  # anything may listen there; its answer may be read as a size of exabytes
            raise PacelineError(
                f"{self._address}: could not connect to a Dask scheduler ({type(error).__name__})",
                hint="use the address that `dask scheduler` prints",
            ) from error

    def _check_workers(self) -> None:
        """Ask each worker for its version with built-in functions only: a worker that cannot import its task dies silently."""
        ours = f"__import__({run_checked.__module__!r}, fromlist=['OUR_VERSION']).OUR_VERSION"
        for answer in self._client.run(eval, ours, on_error="return").values():
            if isinstance(answer, Exception):
                raise cannot_run(self._address, answer)
            check_version(answer)

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[T, R | CrashedTask]]:
        suspects: list[T] = []
        for task, result in self._run_all(work, tasks):
            if isinstance(result, CrashedTask):
                suspects.append(task)
            else:
                yield task, result
        # The scheduler blames all tasks of a dead worker: run each suspect alone to find the one that kills.
        for task in suspects:
            yield from self._run_all(work, [task])

    def _run_all(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[T, R | CrashedTask]]:
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        futures = {self._client.submit(run_checked, work, OUR_VERSION, task, pure=False): task for task in tasks}
        try:
            for future in self._completed(futures):
                task = futures.pop(future)
                try:
                    yield task, future.result()
                except KilledWorker:
                    yield task, CrashedTask()
                except (ImportError, AttributeError) as error:
                    raise cannot_run(self._address, error) from error
                except RuntimeError as error:
                    if "deserialization" not in str(error):
                        raise
                    raise cannot_run(self._address, error) from error
        except CancelledError as error:
            raise PacelineError(
                f"{self._address}: lost the connection to the scheduler",
                hint="what was read so far is stored; run the command again",
            ) from error
        finally:
            self._client.cancel(list(futures))

    def _completed(self, futures: dict[Any, T]) -> Iterator[Any]:
        """Futures as they complete, until `futures` is empty: the caller removes each from it."""
        from distributed import wait

        while futures:
            try:
                with self._client.as_current():  # `wait` uses the client of the current thread
                    done = wait(list(futures), timeout=WORKERS_TIMEOUT_S, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                self._await_workers()
                continue
            yield from done

    def _await_workers(self) -> None:
        """Dead workers are replaced within seconds; without any worker, tasks would wait for ever."""
        try:
            self._client.wait_for_workers(1, timeout=WORKERS_TIMEOUT_S)
        except TimeoutError as error:
            raise PacelineError(
                f"{self._address}: the scheduler has no workers", hint=f"start workers: dask worker {self._scheduler}"
            ) from error

    def close(self) -> None:
        self._client.close()


async def _connect(scheduler: str) -> None:
    """Checked first, because Dask's client waits for ever if something else listens there."""
    from distributed.comm.core import connect

    comm = await asyncio.wait_for(connect(scheduler, timeout=CONNECT_TIMEOUT_S), CONNECT_TIMEOUT_S)
    await comm.close()


def create_executor(address: str, *, workers: int) -> DaskExecutor:
    """Entry point `dask`; the cluster decides how many workers there are."""
    return DaskExecutor(address)
