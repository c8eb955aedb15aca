"""Waits for others that no operation records, on graphs small enough to be worked out by hand; ms."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.metrics.timeline.hidden_joins import with_hidden_joins
from paceline.metrics.timeline.operation_graph import Operation, OperationGraph, Recorded
from support.small_pipeline import spelled

MS = 1e6
STEPS = 4
STEP = 1000.0
"""How long a step takes, made so by the last operation."""


def graph(ends: list[list[float]], starts: list[list[float]], *, end: float = STEP) -> OperationGraph:
    """Per stage and replica: when the backward ends, and when the optimizer behind it begins; the same in every step."""

    def every_step(values: list[float]) -> np.ndarray:
        return np.repeat(np.array(values)[:, None], STEPS, axis=1) * MS

    operations = {}
    for stage, (done, begun) in enumerate(zip(ends, starts, strict=True)):
        nothing = every_step([0.0] * len(done))
        operations[Operation("backward-compute", 0, stage)] = Recorded(nothing, every_step(done), False)
        last = every_step([end] * len(done))
        operations[Operation("optimizer", 0, stage)] = Recorded(every_step(begun), last, False)
    return OperationGraph(operations)


def joins(found: OperationGraph) -> dict[str, list[float]]:
    """The joins, with the moments (of the first step) they end for each replica."""
    named = sorted(operation for operation in found.operations if operation.name.startswith("join"))
    return {spelled(join): (found.operations[join].end[:, 0] / MS).tolist() for join in named}


def test_all_replicas_begin_when_the_last_has_come() -> None:
    found = with_hidden_joins(graph([[900, 300, 500]], [[900, 900, 900]]))
    assert joins(found) == {"join-replicas 0 @0": [900, 900, 900]}
    join, optimizer = Operation("join-replicas", 0, 0), Operation("optimizer", 0, 0)
    assert found.follows[optimizer] == [join] and found.follows[join] == [Operation("backward-compute", 0, 0)]
    assert (found.operations[join].start[:, 0] / MS).tolist() == [900, 300, 500] and found.operations[join].communicates
    assert [[spelled(o) for o in together] for together in found.together] == [
        ["backward-compute 0 @0"],
        ["join-replicas 0 @0"],
        ["optimizer 0 @0"],
    ]


def test_all_stages_of_a_replica_begin_when_the_last_has_come() -> None:
    """Replica 1 does not wait for replica 0."""
    found = with_hidden_joins(graph([[900, 300], [400, 600]], [[900, 600], [900, 600]]))
    assert joins(found) == {"join-stages 0 @0": [900, 600], "join-stages 0 @1": [900, 600]}
    assert tuple(sorted(found.members(Operation("join-stages", 0, 1)))) == (
        Operation("join-stages", 0, 0),
        Operation("join-stages", 0, 1),
    )


def test_everybody_begins_when_the_last_of_all_has_come() -> None:
    found = with_hidden_joins(graph([[900, 300], [400, 600]], [[900, 900], [900, 900]]))
    assert joins(found) == {"join-all 0 @0": [900, 900], "join-all 0 @1": [900, 900]}


def test_each_stage_has_to_fit_by_itself() -> None:
    """Stage 0 waits for all its replicas, stage 1 for nobody: most cases fit everybody, but not those of stage 1."""
    found = with_hidden_joins(graph([[900, 300, 300, 300], [850, 840, 830, 820]], [[900] * 4, [860, 855, 845, 835]]))
    assert joins(found) == {"join-replicas 0 @0": [900, 900, 900, 900]}


def test_without_a_common_moment_there_is_no_join() -> None:
    before = graph([[900, 300, 500]], [[900, 600, 700]])
    assert with_hidden_joins(before) is before


def test_one_replica_of_one_stage_waits_for_nobody() -> None:
    before = graph([[300]], [[900]])
    assert with_hidden_joins(before) is before


@pytest.mark.parametrize(("begin", "accepted"), [(960, True), (967, False)])
def test_the_moment_may_be_off_by_a_tenth_of_the_gap(begin: float, accepted: bool) -> None:
    """Replica 1 ended at 300, the last at 900: its gap of 660 may be 66 ms off, and 60 ms are."""
    found = joins(with_hidden_joins(graph([[900, 300]], [[900, begin]])))
    assert bool(found) is accepted


@pytest.mark.parametrize(("fitting", "accepted"), [(7, True), (6, False)])
def test_seven_of_ten_cases_have_to_fit(fitting: int, accepted: bool) -> None:
    starts = [900.0] * (fitting + 1) + [700.0] * (10 - fitting)
    found = joins(with_hidden_joins(graph([[900.0] + [300.0] * 10], [starts])))
    assert bool(found) is accepted


@pytest.mark.parametrize(("late", "accepted"), [(5.1, False), (12.0, True)])
def test_small_gaps_are_left_alone(late: float, accepted: bool) -> None:
    """The mean gap of two replicas has to reach 0.5 % of a step of 1,000 ms: 5 ms."""
    found = joins(with_hidden_joins(graph([[900, 900 - late]], [[900, 900]])))
    assert bool(found) is accepted


def test_two_late_cases_show_no_pattern() -> None:
    before = graph([[900, 300]], [[900, 900]])
    few = {o: Recorded(r.start[:, :2], r.end[:, :2], r.communicates) for o, r in before.operations.items()}
    assert not joins(with_hidden_joins(OperationGraph(few)))


def test_a_receive_waits_for_its_message_only() -> None:
    ends, starts = np.full((2, STEPS), 900 * MS), np.full((2, STEPS), 900 * MS)
    ends[1] = 300 * MS
    zero = np.zeros((2, STEPS))
    operations = {
        Operation("forward-compute", 0, 1): Recorded(zero, ends, False),
        Operation("forward-recv", 1, 1): Recorded(starts, ends + 600 * MS, True, serves=1, message=0),
        Operation("forward-compute", 1, 1): Recorded(ends + 600 * MS, ends + 700 * MS, False),
        Operation("forward-send", 0, 0): Recorded(zero, ends + 600 * MS, True, message=0),
    }
    assert not joins(with_hidden_joins(OperationGraph(operations)))
