"""Processes of this machine; with one worker, this process itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from paceline.run.engines import Lost

# Most sources are read by this process alone; pools take a fortieth of a second to import.
if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

T = TypeVar("T")
R = TypeVar("R")


class Processes:
    far = False

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[T, R | Lost]]:
        if self._workers == 1 or len(tasks) == 1:
            yield from ((task, work(task)) for task in tasks)
            return
        waiting = list(tasks)
        while waiting:
            unfinished: list[T] = []
            yield from self._together(work, waiting, unfinished)
            # A process died. Tasks are handed out in order, one ahead: it had one of the first; alone, each speaks for itself.
            for task in unfinished[: self._workers + 1]:
                yield task, self._alone(work, task)
            waiting = unfinished[self._workers + 1 :]

    def close(self) -> None:
        pass

    def _together(
        self, work: Callable[[T], R], tasks: Sequence[T], unfinished: list[T]
    ) -> Iterator[tuple[T, R | Lost]]:
        """Results until all are done or a process dies, which breaks the pool; then the rest is `unfinished`."""
        from concurrent.futures import as_completed
        from concurrent.futures.process import BrokenProcessPool

        with _pool(self._workers) as pool:
            futures = {pool.submit(work, task): task for task in tasks}
            given = set()
            try:
                for future in as_completed(futures):
                    result = future.result()
                    given.add(future)
                    yield futures[future], result
            except BrokenProcessPool:
                unfinished += [task for future, task in futures.items() if future not in given]
            finally:
                for future in futures:
                    future.cancel()

    def _alone(self, work: Callable[[T], R], task: T) -> R | Lost:
        from concurrent.futures.process import BrokenProcessPool

        with _pool(1) as pool:
            try:
                return pool.submit(work, task).result()
            except BrokenProcessPool:
                return Lost()


def _pool(workers: int) -> ProcessPoolExecutor:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # Spawned, because forking a process that has run DuckDB threads can deadlock.
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
