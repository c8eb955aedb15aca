"""The Executor protocol: runs one function over many tasks and survives workers that die."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from paceline.core.message import Sentence, message

T = TypeVar("T")
R = TypeVar("R")


_DIED = message("reader_died")


@dataclass(frozen=True)
class CrashedTask:
    """In place of a result: every worker that ran the task died."""

    reason: Sentence = _DIED
    """The same for all executors, because it is stored as a warning and stores do not depend on the executor."""


class Executor(Protocol):
    is_remote: bool
    """Whether workers may run on other machines; they fetch what they read themselves."""

    def run(self, work: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[T, R | CrashedTask]]:
        """Each task with the result of `work`, in any order.

        Tasks of a worker that died are tried again elsewhere, a few times; an exception of `work` is raised here.
        """
        ...

    def close(self) -> None: ...


class ExecutorFactory(Protocol):
    """What an entry point of the group `paceline.executors` names."""

    def __call__(self, address: str, *, workers: int) -> Executor:
        """An executor at "<name of the entry point>://…"; `workers` is what --workers says."""
        ...
