"""ProcessExecutor: processes of this machine; with one worker, this process itself, unless tasks are to be isolated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from paceline.run.executors.budget import mark_expendable
from paceline.run.executors.executor import CrashedTask

# Most sources are read by this process alone, and importing process pools takes 25 ms.
if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

T = TypeVar("T")
R = TypeVar("R")


class ProcessExecutor:
    is_remote = False

    def __init__(self, workers: int, *, isolated: bool = False) -> None:
        """`isolated`: no task runs in this process, whatever it costs to start another one: a server must not die of a file."""
        self._workers, self.is_isolated = workers, isolated

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[T, R | CrashedTask]]:
        if not self.is_isolated and (self._workers == 1 or len(tasks) == 1):
            yield from ((task, work(task)) for task in tasks)
            return
        waiting = list(tasks)
        while waiting:
            unfinished: list[T] = []
            yield from self._run_in_pool(work, waiting, unfinished)
            # A process died. Tasks are handed out in order, one ahead, so it had one of the first: run each of them alone.
            for task in unfinished[: self._workers + 1]:
                yield task, self._run_alone(work, task)
            waiting = unfinished[self._workers + 1 :]

    def close(self) -> None:
        pass

    def _run_in_pool(
        self, work: Callable[[T], R], tasks: Sequence[T], unfinished: list[T]
    ) -> Iterator[tuple[T, R | CrashedTask]]:
        """Results until all tasks are done, or until a process dies, which breaks the pool; the rest goes to `unfinished`."""
        from concurrent.futures import as_completed
        from concurrent.futures.process import BrokenProcessPool

        with _pool(self._workers) as pool:
            futures = {pool.submit(work, task): task for task in tasks}
            returned = set()
            try:
                for future in as_completed(futures):
                    result = future.result()
                    returned.add(future)
                    yield futures[future], result
            except BrokenProcessPool:
                unfinished += [task for future, task in futures.items() if future not in returned]
            finally:
                for future in futures:
                    future.cancel()

    def _run_alone(self, work: Callable[[T], R], task: T) -> R | CrashedTask:
        from concurrent.futures.process import BrokenProcessPool

        with _pool(1) as pool:
            try:
                return pool.submit(work, task).result()
            except BrokenProcessPool:
                return CrashedTask()


def create_executor(address: str, *, workers: int) -> ProcessExecutor:
    """Entry point `local`."""
    return ProcessExecutor(workers)


def _pool(workers: int) -> ProcessPoolExecutor:
    from concurrent.futures import ProcessPoolExecutor

    from paceline.run.executors.spawning import OwnSpawnContext

    return ProcessPoolExecutor(workers, mp_context=OwnSpawnContext(), initializer=mark_expendable)
