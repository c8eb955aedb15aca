"""HCCL's directories named after the operators of the step trace: a long window contains a short one."""

from __future__ import annotations

from paceline.formats.hccl.execution import CollectiveExecution
from paceline.formats.mindinsight.collectives import name_executions
from paceline.formats.mindinsight.steps import OperatorWindow, StepTrace

STEP = 100_000_000
LONG, SHORT = ("AllReduce-op552", 0, 6_000_000), ("AllReduce-op554", 1_000_000, 1_200_000)


def test_an_end_that_was_rounded_past_its_window_still_names_its_operator() -> None:
    """Both last tasks end 4 ns after the windows, whose ticks are 10 ns long."""
    windows = [
        OperatorWindow(name, step, step * STEP + start, step * STEP + end)
        for step in (1, 2, 3)
        for name, start, end in (LONG, SHORT)
    ]
    executions = [
        CollectiveExecution(
            directory, "all_reduce", step, start=step * STEP + start + 2_000, duration=end - start - 1_996
        )
        for step in (1, 2, 3)
        for directory, (_, start, end) in (("allReduce_1_1", SHORT), ("allReduce_2_1", LONG))
    ]
    named = name_executions(executions, StepTrace((), tuple(windows)))
    assert {one.name for one in named if one.sequence} == {LONG[0], SHORT[0]}
    assert [one.name for one in named[:2]] == [SHORT[0], LONG[0]]
    assert [one.duration for one in named[:2]] == [200_000, 6_000_000]
