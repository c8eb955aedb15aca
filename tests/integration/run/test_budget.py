"""Tasks that crash, never end or take all memory: they end alone, and the process that asked for them lives."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import paceline
from paceline.run.executors import budget
from paceline.run.executors.executor import CrashedTask
from paceline.run.executors.processes import ProcessExecutor
from paceline.simulate import ClusterSpec, simulate


def crash(_: int) -> int:
    os.abort()


def never_end(_: int) -> int:
    budget.SECONDS = 0.2
    with budget.task_budget(0):
        while True:
            pass


def take_all_memory(_: int) -> str:
    with budget.task_budget(0):
        try:
            bytearray(6 << 30)
        except MemoryError:
            return "refused"
    return "taken"


def answer(number: int) -> int:
    return number + 1


def alone(work: Callable[[int], object]) -> object:
    [(_, result)] = ProcessExecutor(1, isolated=True).run(work, [1])
    return result


def test_what_crashes_or_never_ends_costs_that_task_only() -> None:
    begin = time.process_time()
    assert isinstance(alone(crash), CrashedTask)
    assert isinstance(alone(never_end), CrashedTask)
    assert alone(answer) == 2
    assert time.process_time() - begin < 60


def test_memory_is_refused_before_the_machine_runs_out_of_it() -> None:
    assert alone(take_all_memory) == "refused"


def test_a_process_that_is_needed_has_no_budget() -> None:
    with budget.task_budget(0):
        assert answer(1) == 2


def test_only_a_death_leaves_the_mark_after_which_files_are_read_by_a_process_of_their_own(tmp_path: Path) -> None:
    simulate(tmp_path / "run", ClusterSpec(hosts=1, devices=2, dp=2, tp=1, pp=1, steps=2, layers=1), (), "kineto")
    with paceline.open(tmp_path / "run", store=tmp_path / "a") as run:
        rows = run.rows("kernels")
    mark = tmp_path / "b" / "being-read"
    assert not (tmp_path / "a" / "being-read").exists()
    mark.parent.mkdir()
    mark.touch()
    with paceline.open(tmp_path / "run", store=tmp_path / "b") as run:
        assert run.rows("kernels") == rows
    assert not mark.exists()
