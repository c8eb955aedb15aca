"""The timeline of traces that name every operation, worked out by hand; in units of 10 µs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.metrics.timeline.operation_timeline import FORMAT, SAME_NS, UNRECORDED, operation_timeline
from paceline.metrics.timeline.rank_timeline import Timeline
from support.fake_run import FakeRun

U = 10_000
"""ns; more than what counts as one moment."""
COMPUTING = ("forward-compute", "backward-compute", "optimizer")

Program = list[tuple[str, float, float]]
"""(operation, begin, end)."""


def traced(programs: dict[tuple[int, int, int], Program], *, formats: tuple[str, ...] = (FORMAT,)) -> FakeRun:
    """From programs by (rank, stage, step)."""
    kernels, calls = [], []
    for (rank, _, step), program in programs.items():
        for name, begin, end in program:
            row = {
                "rank": rank,
                "step": step,
                "name": name,
                "start": round(begin * U),
                "duration": round((end - begin) * U),
            }
            (kernels if name in COMPUTING else calls).append(row)
    ranks = [{"rank": rank, "stage": stage, "format": FORMAT} for rank, stage in sorted({key[:2] for key in programs})]
    run = FakeRun(ranks=ranks, kernels=kernels, collectives=calls)
    run.formats = list(formats)
    return run


def timeline(programs: dict[tuple[int, int, int], Program], steps: tuple[int, ...] | None = None) -> Timeline:
    line = operation_timeline(traced(programs), steps)
    assert line is not None
    return line


def columns(line: Timeline, *names: str) -> list[tuple[Any, ...]]:
    """Rows of op and these columns, times in units."""
    times = {"start", "end", "work", "lag", "overlap", "self_time_until"}
    found = []
    for name in names:
        values = getattr(line.events if name in ("start", "end", "rank", "group_key", "instance") else line, name)
        found.append((values / U if name in times else values).tolist())
    return list(zip(line.events.op.tolist(), *found, strict=True))


def alone(at: float) -> Program:
    """One worker: launch delays of 2 before backward and 1 before the gradients, which take 5."""
    return [
        ("forward-compute", at, at + 10),
        ("backward-compute", at + 12, at + 32),
        ("grads-all-reduce", at + 33, at + 38),
        ("optimizer", at + 38, at + 42),
    ]


ALONE = {(0, 0, 1): alone(0), (0, 0, 2): alone(50)}


def test_computing_covers_its_duration_and_what_lies_before_it_is_work() -> None:
    line = timeline(ALONE)
    assert columns(line, "start", "end", "anchor", "work", "overlap", "self_time_until") == [
        ("forward-compute", 0, 0, -1, 0, 10, 0),
        ("backward-compute", 12, 12, 0, 2, 20, 12),
        ("grads-all-reduce", 33, 38, 1, 1, 0, 33),
        ("optimizer", 38, 38, 2, 0, 4, 33),
        ("step_end", 42, 42, 3, 0, 0, 37),
        ("forward-compute", 50, 50, 4, 4, 10, 41),  # 8 after the end of the step before, where 4 are usual
        ("backward-compute", 62, 62, 5, 2, 20, 53),
        ("grads-all-reduce", 83, 88, 6, 1, 0, 74),
        ("optimizer", 88, 88, 7, 0, 4, 74),
        ("step_end", 92, 92, 8, 0, 0, 78),
    ]
    assert (line.self_time() / U).tolist() == [[37, 41]]
    assert (line.unknown / U).tolist() == [0, 0, 0, 0, 0, 4, 0, 0, 0, 0]
    assert line.steps.tolist() == [1, 2] and line.step.tolist() == [0] * 5 + [1] * 5 and line.begin.tolist() == [0]
    assert line.events.step.tolist() == [1] * 5 + [2] * 5 and line.events.ranks.tolist() == [0]
    assert line.is_end.tolist() == [False] * 4 + [True] + [False] * 4 + [True]
    assert line.lag.tolist() == line.work.tolist() and line.known.tolist() == [[True, True]]


def test_equal_operations_have_one_place_in_the_program_and_ends_have_none() -> None:
    line = timeline(ALONE)
    assert line.place.tolist() == [1, 2, 3, 4, 0] * 2
    assert sorted(line.events.instance.tolist()) == list(range(10))  # each alone
    assert columns(line, "group_key")[:5] == [
        ("forward-compute", "computing"),
        ("backward-compute", "computing"),
        ("grads-all-reduce", "dp-stage0"),
        ("optimizer", "computing"),
        ("step_end", None),
    ]
    assert set(line.events.bytes.tolist()) == {-1} and not line.side_stream.any() and (line.after == -1).all()


def test_a_choice_of_steps_begins_with_its_first() -> None:
    line = timeline(ALONE, steps=(2, 3))
    assert line.steps.tolist() == [2] and (line.begin / U).tolist() == [50]
    assert (line.work / U).tolist() == [0, 2, 1, 0, 0] and line.anchor.tolist() == [-1, 0, 1, 2, 3]


PIPELINE = {
    (0, 0, 1): [
        ("forward-compute", 0, 10),
        ("forward-send", 10, 14),
        ("backward-recv", 11, 50),
        ("backward-compute", 52, 72),
    ],
    (1, 1, 1): [
        ("forward-recv", 3, 14),
        ("forward-compute", 15, 25),
        ("backward-compute", 25, 45),
        ("backward-send", 45, 50),
    ],
}


def test_a_message_is_waited_for_beside_the_computing_before() -> None:
    line = timeline(PIPELINE)
    assert columns(line, "anchor", "after", "work", "side_stream", "self_time_until") == [
        ("forward-compute", -1, -1, 0, False, 0),
        ("send", 0, -1, 0, True, 10),
        ("receive", 0, -1, 0, True, 10),  # posted 1 after the forward, which costs nothing: it would have waited
        ("backward-compute", 0, 2, 2, False, 12),  # begins 2 after the message came
        ("step_end", 3, -1, 0, False, 32),
        ("receive", -1, -1, 0, True, 0),
        ("forward-compute", -1, 5, 1, False, 1),
        ("backward-compute", 6, -1, 0, False, 11),
        ("send", 7, -1, 0, True, 31),
        ("step_end", 8, -1, 0, False, 31),
    ]
    together = line.events.instance
    assert together[1] == together[5] and together[2] == together[8] and len(set(together.tolist())) == 8
    assert line.events.group_key[[1, 2, 5, 8]].tolist() == ["pp-dp0"] * 4
    assert line.events.rank.tolist() == [0] * 5 + [1] * 5 and (line.begin / U).tolist() == [0, 3]
    assert not line.unknown.any()


def test_gaps_longer_than_usual_are_unknown_waiting_and_no_work() -> None:
    """Before the optimizer one of three replicas has a gap of 7, the others 1 and 3."""
    programs = {
        (rank, 0, 1): [("forward-compute", 0, 10), ("optimizer", 10 + gap, 20 + gap)]
        for rank, gap in enumerate((7, 1, 3))
    }
    line = timeline(programs)
    optimizer = np.flatnonzero(line.events.op == "optimizer")
    assert (line.work[optimizer] / U).tolist() == (line.lag[optimizer] / U).tolist() == [3, 1, 3]
    assert (line.unknown[optimizer] / U).tolist() == [4, 0, 0]
    assert (line.self_time()[:, 0] / U).tolist() == [23, 21, 23]


def test_a_wait_for_other_replicas_that_no_operation_records_is_a_join() -> None:
    """The optimizer of all replicas begins when the slowest has ended its backward."""
    programs = {
        (rank, 0, step): [
            ("forward-compute", at, at + 10),
            ("backward-compute", at + 10, at + end),
            ("optimizer", at + 3000, at + 3010),
        ]
        for rank, end in enumerate((3000, 1000))
        for step, at in ((1, 0), (2, 3010), (3, 6020))
    }
    line = timeline(programs)
    first = np.flatnonzero(line.step == 0)
    assert (
        line.events.op[first].tolist()
        == [
            *("forward-compute", "backward-compute", "join-replicas", "optimizer", "step_end"),
        ]
        * 2
    )
    joins = np.flatnonzero(line.events.op == "join-replicas")
    assert len(set(line.events.instance[joins].tolist())) == 3 and set(line.events.group_key[joins]) == {UNRECORDED}
    assert (line.events.start[joins[[0, 3]]] / U).tolist() == [3000, 1000]
    assert (line.events.end[joins[[0, 3]]] / U).tolist() == [3000, 3000]
    assert not line.work.any() and not line.unknown.any()
    assert (line.self_time() / U).tolist() == [[3010] * 3, [1010] * 3]


@pytest.mark.parametrize(("early", "anchor"), [(0, 0), (SAME_NS, 0), (1_001, -1)])
def test_a_receive_is_posted_after_the_computing_that_had_just_ended(early: int, anchor: int) -> None:
    """The forward ends at 10; what begins up to a microsecond before that comes after it."""
    first, send, (name, _, end), backward = PIPELINE[0, 0, 1]
    line = timeline({**PIPELINE, (0, 0, 1): [first, send, (name, 10 - early / U, end), backward]})
    [receive] = np.flatnonzero((line.events.op == "receive") & (line.events.rank == 0))
    assert line.anchor[receive] == anchor


def test_gradients_summed_before_the_last_backward_begins_run_beside_it() -> None:
    program = [
        ("forward-compute", 0, 10),
        ("backward-compute", 10, 20),
        ("grads-reduce-scatter", 20, 45),
        ("backward-compute", 22, 40),
        ("separate-grads-all-reduce", 46, 50),
        ("layernorm-grads-all-reduce", 45, 46),
        ("optimizer", 50, 55),
    ]
    line = timeline({(0, 0, 1): program})
    beside = {op for op, aside in columns(line, "side_stream") if aside}
    assert beside == {"grads-reduce-scatter"}
    later = [*program[:2], ("grads-reduce-scatter", 22, 45), *program[3:]]
    assert not timeline({(0, 0, 1): later}).side_stream.any()


def test_replicas_sum_together_and_send_apart() -> None:
    programs = {}
    for stage in (0, 1):
        for replica in (0, 1):
            message = ("forward-send", 10, 14) if stage == 0 else ("forward-recv", 10, 14)
            compute = ("forward-compute", 0, 10) if stage == 0 else ("forward-compute", 14, 20)
            ends = [
                ("grads-all-reduce", 30, 32),
                ("layernorm-grads-all-reduce", 28, 30),
                ("embedding-grads-all-reduce", 26, 28),
            ]
            for step in (1, 2):
                shift = 100 * step + replica
                program = [compute, message, *ends, ("optimizer-clip-main-grad", 40, 41)]
                programs[2 * stage + replica + 4, stage, step] = [(n, a + shift, b + shift) for n, a, b in program]
    line = timeline(programs)
    events = line.events
    assert events.ranks.tolist() == [4, 5, 6, 7]
    members: dict[tuple[str, str], set[frozenset[tuple[int, int]]]] = {}
    for number in range(events.instances):
        rows = np.flatnonzero(events.instance == number)
        who = frozenset((int(events.ranks[events.rank[i]]), int(events.step[i])) for i in rows)
        members.setdefault((str(events.op[rows[0]]), str(events.group_key[rows[0]])), set()).add(who)

    def both(*ranks: int) -> set[frozenset[tuple[int, int]]]:
        return {frozenset((rank, step) for rank in ranks) for step in (1, 2)}

    assert members["grads-all-reduce", "dp-stage0"] == both(4, 5)
    assert members["grads-all-reduce", "dp-stage1"] == both(6, 7)
    assert members["optimizer-clip-main-grad", "world"] == both(4, 5, 6, 7)
    assert members["embedding-grads-all-reduce", "embedding-dp1"] == both(5, 7)
    assert members["layernorm-grads-all-reduce", "tp-dp0-stage1"] == both(6)
    assert members["send", "pp-dp0"] == both(4, 6) and members["send", "pp-dp1"] == both(5, 7)
    assert line.begin.tolist() == [1_000_000, 1_010_000, 1_100_000, 1_110_000]


def test_only_the_studys_format_has_such_a_timeline() -> None:
    assert operation_timeline(traced(ALONE, formats=("paceline",))) is not None  # re-encoded: ranks tell
    other = traced(ALONE, formats=("kineto",))
    other.connection.execute("UPDATE ranks SET format = 'kineto'")
    assert operation_timeline(other) is None
    other.formats = [FORMAT]
    assert operation_timeline(other) is not None


def test_without_a_whole_step_or_one_that_was_chosen_there_is_none() -> None:
    assert operation_timeline(traced({(0, 0, 1): []})) is None
    assert operation_timeline(traced(ALONE), (3,)) is None
