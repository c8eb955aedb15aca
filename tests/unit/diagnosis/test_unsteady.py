"""Steps that differ from each other: stalls, work that is distributed unevenly, and jitter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule_finding import MeasuredValue, PredictedGain, Quantity, RuleFinding
from paceline.diagnosis.rules.unsteady import unsteady_steps
from paceline.metrics.timeline.operation_timeline import FORMAT
from support.fake_run import FakeRun
from support.small_cluster import MS, SmallCluster, slower, steady_cluster

Times = list[list[float]]
"""Ranks × steps, ms."""


def found(times: Times, *, tables: Mapping[str, Any] | None = None, **more: Any) -> list[RuleFinding]:
    return unsteady_steps(steady_cluster(times, **more).context(**(tables or {})))


def with_stalls(ranks: int, steps: int, stalls: Mapping[tuple[int, int], float]) -> Times:
    """100 ms, but for some (rank, step)."""
    return [[stalls.get((rank, step), 100) for step in range(1, steps + 1)] for rank in range(ranks)]


def taking_turns(more: float, ranks: int = 8) -> Times:
    """As many steps as ranks; in each of them another rank needs `more` than 100 ms."""
    return with_stalls(ranks, ranks, {(rank, rank + 1): 100 + more for rank in range(ranks)})


def alternating(pattern: str, *, usual: float = 100, more: float = 10, steps: int = 4) -> Times:
    """One letter per rank: it needs `more` in even steps (e), in odd ones (o), or never (-)."""
    return [[usual + more * ("eo-".index(letter) == step % 2) for step in range(steps)] for letter in pattern]


def in_two_parts(first: Times, second: Times) -> SmallCluster:
    """A collective of 5 ms after each part of a step."""
    cluster = SmallCluster(len(first))
    for both in zip(zip(*first, strict=True), zip(*second, strict=True), strict=True):
        for times in both:
            cluster.work(times)
            cluster.meet(range(len(first)), 5)
        cluster.end_step()
    return cluster


def grouped(kind: str, *groups: Sequence[int], name: str = "group") -> list[dict[str, Any]]:
    return [
        {"group": f"{name}{number}", "kind": kind, "index": index, "rank": rank}
        for number, ranks in enumerate(groups)
        for index, rank in enumerate(ranks)
    ]


def pairs(ranks: int) -> list[dict[str, Any]]:
    """Tensor parallel pairs."""
    return grouped("tp", *[(rank, rank + 1) for rank in range(0, ranks, 2)])


# -- stalls -----------------------------------------------------------------------------------------------------------


def test_a_rank_that_stalled_once() -> None:
    [finding] = found(with_stalls(8, 6, {(3, 4): 130}), host=["a"] * 3 + ["b"] * 5)
    assert (finding.id, finding.chronic, finding.min_severity) == ("one-off-stall", False, "medium")
    assert finding.subject == Subject(ranks=(3,), hosts=("b",), steps=(4,))
    assert str(finding.amount) == "30 ms"
    assert finding.gain == PredictedGain(pytest.approx(115), pytest.approx(110))  # 30 ms in six steps
    assert finding.evidence == (MeasuredValue("step_time", 140.0, 110.0, "ms"),)


def offset_ranks(stall: float) -> Times:
    """Half of the ranks at 101 ms; |over| is 1 / 101 for most, so that 10 · noise = 10 · 1.4826 / 101 = 0.1468."""
    times = slower(8, 6, {4: 101, 5: 101, 6: 101, 7: 101})
    times[0][3] = stall
    return times


def noisy_fast_half(stall: float, *, speed: float = 1) -> Times:
    """Ranks 0 to 3 at 97 or 103 ms, the others quiet, of which rank 8 stalls while the others work at `speed`.

    The reference is 100.2 ms, the median of ranks 0 to 4; their median |excess| is 2.8 / 100.2, and the noise 1.4826 times that
    = 0.04143. Five of nine ranks are as fast as the median of the others or nearly, so that |over| tells less.
    """
    times = [[97, 103] * 4, [97, 103] * 4, [103, 97] * 4, [103, 97] * 4, [100.2] * 8, *[[100.5] * 8 for _ in range(4)]]
    for row in times:
        row[5] *= speed
    times[8][5] = stall
    return times


def faster_peers(stall: float) -> Times:
    """The others need only 90 ms while rank 3 stalls; 100 ms is the first quartile of its five steps."""
    times = slower(8, 5, {})
    for row in times:
        row[4] = 90
    times[3] = [97, 100, 102, 102, stall]
    return times


@pytest.mark.parametrize(
    ("below", "above"),
    [
        (with_stalls(8, 6, {(3, 4): 107.9}), with_stalls(8, 6, {(3, 4): 108.1})),  # 8 % over the others
        (offset_ranks(115.7), offset_ranks(115.9)),  # 101 · 1.1468 = 115.83
        (noisy_fast_half(142.0), noisy_fast_half(142.3)),  # 100.5 · (1 + 10 · 0.04143) = 142.14
        (faster_peers(107.9), faster_peers(108.1)),  # 8 % over its own other steps
        (noisy_fast_half(112.9, speed=0.6), noisy_fast_half(113.1, speed=0.6)),  # 100.5 · (1 + 3 · 0.04143) = 112.99
        (with_stalls(8, 1, {(3, 1): 150}), with_stalls(8, 2, {(3, 2): 150})),  # it needs other steps to compare with
    ],
)
def test_a_stall_stands_out_of_the_peers_and_of_the_other_steps_of_the_rank(below: Times, above: Times) -> None:
    assert found(below) == []
    assert [finding.id for finding in found(above)] == ["one-off-stall"]


def test_a_persistently_slow_rank_does_not_stall() -> None:
    times = slower(8, 7, {3: 120})
    times[3][4] = 170
    assert found(times) == []


def at_once(ranks: int, step: int = 2, first: int = 0) -> dict[tuple[int, int], float]:
    return {(rank, step): 150 for rank in range(first, first + ranks)}


@pytest.mark.parametrize(
    ("ranks", "stalls", "count"),
    [
        (6, at_once(2), 1),
        (6, at_once(3), 0),
        (16, at_once(4), 1),  # a quarter of the ranks
        (16, at_once(5), 0),
        # More than an eighth of the ranks, in more than a third of the seven steps.
        (8, at_once(2) | at_once(2, 3), 1),
        (14, at_once(2) | at_once(2, 3) | at_once(2, 4), 0),
        (8, at_once(1) | at_once(1, 3) | at_once(1, 4), 1),
        (4, at_once(1) | at_once(1, 3) | at_once(1, 4), 1),
        (16, at_once(2) | at_once(2, 3) | at_once(2, 4), 1),
        (16, at_once(3) | at_once(3, 3) | at_once(3, 4), 0),
        # Ranks that stall in different steps are different findings.
        (8, at_once(1) | at_once(1, 3, first=5), 2),
    ],
)
def test_what_happens_to_many_ranks_in_many_steps_is_no_stall(
    ranks: int, stalls: dict[tuple[int, int], float], count: int
) -> None:
    findings = found(with_stalls(ranks, 7, stalls))
    assert len(findings) == count
    assert {(rank, step) for each in findings for rank in each.subject.ranks for step in each.subject.steps} == (
        set(stalls) if count else set()
    )


@pytest.mark.parametrize(("time", "steps", "lost"), [(152.3, (2, 5), "52.3"), (152.1, (5,), "52.1")])
def test_a_stall_counts_where_the_step_lost_two_per_cent(time: float, steps: tuple[int, ...], lost: str) -> None:
    # In step 2 rank 4 alone cost what it stalled longer than rank 3; 2 % are 2.2 ms. Without rank 3 nothing is gained.
    [finding] = found(with_stalls(8, 7, {(3, 2): 150, (4, 2): time, (4, 5): 150}))
    assert (finding.subject.ranks, finding.subject.steps) == ((4,), steps)
    assert finding.amount is not None and f"{finding.amount.value:.1f}" == lost


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        (70, 50, 1),
        (60, 60, 0),
        # Over the mean of the peers by half of 20 %: x / ((350 + x) / 8) = 1.1 for x = 55.8 ms.
        (64.3, 55.7, 1),
        (64.1, 55.9, 0),
        (55.7, 64.3, 1),
        (55.9, 64.1, 0),
    ],
)
def test_a_step_longer_in_both_parts_had_more_work(first: float, second: float, count: int) -> None:
    parts = [slower(8, 5, {}, usual=50) for _ in range(2)]
    parts[0][3][2], parts[1][3][2] = first, second
    cluster = in_two_parts(*parts)
    assert len(unsteady_steps(cluster.context())) == count
    # Ranks of one replica would all have more work.
    assert len(unsteady_steps(cluster.context(groups=pairs(8)))) == 1


def on_equal_shapes(ranks: int, steps: int) -> list[dict[str, object]]:
    return [
        {"rank": rank, "step": step + 1, "type": kind, "core": "AI_CORE", "duration": MS, "input_shapes": shape}
        for rank in range(ranks)
        for step in range(steps)
        for kind, shape in (("MatMul", "100,64"), ("Add", "64"))
    ]


def test_ranks_that_take_turns_in_few_steps_do_not_stall() -> None:
    """However many others there are: four of 32, in all of four steps."""
    findings = found(with_stalls(32, 4, {(3, 1): 140, (10, 2): 135, (19, 3): 145, (27, 4): 130}))
    assert "one-off-stall" not in [finding.id for finding in findings]


@pytest.mark.parametrize(
    ("late", "id", "steps"),
    [((2,), "one-off-stall", (3,)), ((2, 5), "slow-rank", (3, 6)), ((1, 4, 6), "slow-rank", (2, 5, 7))],
)
def test_a_rank_whose_computing_takes_longer_in_some_steps_is_slow_in_these(
    late: tuple[int, ...], id: str, steps: tuple[int, ...]
) -> None:
    """50 and 50 ms, in some steps 75 and 75, on equal shapes: no more work, and no pause unless it happened once."""
    parts = [slower(8, 8, {}, usual=50) for _ in range(2)]
    for part in parts:
        for step in late:
            part[3][step] = 75
    [finding] = unsteady_steps(in_two_parts(*parts).context(kernels=on_equal_shapes(8, 8)))
    assert (finding.id, finding.subject.ranks, finding.subject.steps) == (id, (3,), steps)
    assert not finding.chronic
    assert finding.gain.step_ms_now - finding.gain.step_ms_fixed == pytest.approx(50 * len(late) / 8)
    if id == "slow-rank":
        assert finding.amount == Quantity(pytest.approx(50), "%")
        assert finding.evidence[0] == MeasuredValue("self_time", 150, pytest.approx(100), "ms")
        assert finding.confidence == 0.98  # 8 ranks × 8 steps agree: 65 / 66


@pytest.mark.parametrize(
    ("wait", "late", "id"),
    [(30, (2, 5), "input-bound"), (29.9, (2, 5), "periodic-stall"), (50, (2,), "one-off-stall")],
)
def test_input_that_is_late_in_some_steps(wait: float, late: tuple[int, ...], id: str) -> None:
    """Steps of 100 ms, some of 150 on rank 1; from 30 of these 50 on it is the input that was waited for."""
    cluster = SmallCluster(4)
    for step in range(8):
        cluster.work({rank: 150 if rank == 1 and step in late else 100 for rank in range(4)})
        cluster.meet(range(4), 1)
        cluster.end_step(data_wait=[wait if rank == 1 and step in late else 0 for rank in range(4)])
    [finding] = unsteady_steps(cluster.context())
    assert (finding.id, finding.subject.ranks) == (id, (1,))
    assert finding.subject.steps == tuple(step + 1 for step in late)
    if id == "input-bound":
        assert finding.amount == Quantity(pytest.approx(100 * (50 * 2 / 8) / (101 + 50 * 2 / 8)), "%")


def with_transfers(times: Times, transfers: Sequence[float]) -> list[RuleFinding]:
    cluster = SmallCluster(len(times))
    for works, transfer in zip(zip(*times, strict=True), transfers, strict=True):
        cluster.work(works)
        cluster.meet(range(len(times)), transfer)
        cluster.end_step()
    return unsteady_steps(cluster.context())


def test_transfers_are_looked_at_where_no_rank_stalled() -> None:
    once = [10, 10, 60, *[10] * 5]
    [stall] = with_transfers(with_stalls(8, 8, {(3, 5): 150}), once)
    assert (stall.subject.ranks, stall.subject.steps) == ((3,), (5,))
    transfer, jitter = with_transfers(taking_turns(20), once)
    assert (transfer.id, transfer.subject.steps, jitter.id) == ("one-off-stall", (3,), "jitter")


# -- jitter -----------------------------------------------------------------------------------------------------------


def test_another_rank_is_slow_in_every_step() -> None:
    [finding] = found(taking_turns(20))
    assert (finding.id, finding.subject, finding.confidence) == ("jitter", Subject(), 0.9)  # 8 of 8 steps
    assert finding.gain == PredictedGain(130, pytest.approx(110))
    assert finding.evidence == (MeasuredValue("slowest_over_mean", 17.1, unit="%"),)  # 120 / 102.5
    assert finding.amount is not None and finding.amount.value == pytest.approx(100 * (120 / 102.5 - 1))
    assert (finding.amount.unit, finding.max_severity) == ("%", "low")


@pytest.mark.parametrize(
    ("more", "severities"),
    # (100 + x) / (100 + x / 8) = 1.04 for x = 4.6 ms, 1.08 for x = 9.25 ms.
    [(4.5, []), (4.7, ["info"]), (9.2, ["info"]), (9.3, ["low"])],
)
def test_jitter_is_reported_from_four_per_cent_and_low_from_eight(more: float, severities: list[str]) -> None:
    assert [finding.min_severity for finding in found(taking_turns(more))] == severities


def test_jitter_takes_more_than_one_step() -> None:
    assert found([[100], [106], [112], [118]]) == []


def test_steps_that_a_rank_did_not_record_are_left_out_of_the_mean() -> None:
    cluster = steady_cluster(taking_turns(20))
    for rows in (cluster.steps, cluster.collectives):
        rows[:] = [row for row in rows if row["step"] - 1 != (row["rank"] + 1) % 8]
    [finding] = unsteady_steps(cluster.context())
    assert finding.evidence[0].value == 16.7  # 120 / (720 / 7)


def test_ranks_without_peers_are_not_judged() -> None:
    lonely = [100.0, 200] * 4
    assert found([*slower(8, 8, {}), lonely], stage=[0] * 8 + [1]) == []
    assert found([lonely, lonely[::-1]], stage=[0, 1]) == []


def test_a_persistently_slow_rank_may_vary_too() -> None:
    times = taking_turns(20)
    times[3] = [150] * 8
    assert found(times) == []


def with_input_waits(times: Times, waits: Times) -> list[RuleFinding]:
    cluster = SmallCluster(len(times))
    for works, waited in zip(zip(*times, strict=True), zip(*waits, strict=True), strict=True):
        cluster.work(works)
        cluster.meet(range(len(times)), 10)
        cluster.end_step(data_wait=waited)
    return unsteady_steps(cluster.context())


@pytest.mark.parametrize(
    ("more", "slow", "severities"),
    [(9.2, 100, []), (9.3, 100, ["low"]), (20, 100, ["low"]), (20, 130, [])],  # 8 %; one is persistently slow
)
def test_how_late_steps_begin_counts_from_eight_per_cent(more: float, slow: float, severities: list[str]) -> None:
    times = taking_turns(more)
    waits = [[time - 100 for time in row] for row in times]
    times[7] = [time - 100 + slow for time in times[7]]
    findings = with_input_waits(times, waits)
    assert [finding.min_severity for finding in findings] == severities
    for finding in findings:
        assert (finding.id, finding.subject) == ("jitter", Subject())
        assert finding.gain == PredictedGain(pytest.approx(110 + more), pytest.approx(110))
        assert finding.evidence[0].value == round(100 * ((100 + more) / (100 + more / 8) - 1), 1)


# -- uneven work ------------------------------------------------------------------------------------------------------

REPLICAS = [(rank, rank + 4, rank + 8) for rank in range(4)]


def uneven(slow: float = 1) -> Times:
    """Four replicas of three ranks get more work in turn, the third the most; rank 11 needs `slow` times as long."""
    times = [[100.0] * 4 for _ in range(12)]
    for step, ranks in enumerate(REPLICAS):
        for rank in ranks:
            times[rank][step] = 130 if step == 2 else 120
    times[11] = [time * slow for time in times[11]]
    return times


def test_replicas_that_get_more_work() -> None:
    # A rank without peers is never among the quarter of the ranks that is named.
    stages = [0] * 12 + [1]
    [finding] = found([*uneven(), [100] * 4], tables={"groups": grouped("tp", *REPLICAS)}, stage=stages)
    assert (finding.id, finding.subject) == ("load-imbalance", Subject(ranks=(2, 6, 10)))
    # All have the mean, 105 ms, instead of the longest, 120 ms; 107.5 instead of 130 in the third step.
    assert finding.gain == PredictedGain(132.5, pytest.approx(115.625))
    assert finding.evidence == (MeasuredValue("slowest_over_mean", 15.9, unit="%"),)
    assert (finding.min_severity, finding.max_severity) == ("low", "high")


@pytest.mark.parametrize(
    ("pattern", "apart", "id"),
    [
        ("eeeeooooeo", False, "jitter"),  # four of five replicas take longer together: something else may be shared
        ("eeeeooooeo", True, "load-imbalance"),  # nothing is, by two stages of a replica, but its data
        ("eeooeeoo", False, "load-imbalance"),  # every replica exactly together
    ],
)
def test_more_work_does_not_always_show_in_shapes(pattern: str, apart: bool, id: str) -> None:
    """Masked and packed sequences have the shapes of others."""
    ranks = len(pattern)
    tables = {"groups": pairs(ranks), "kernels": on_equal_shapes(ranks, 4)}
    [finding] = found(alternating(pattern), tables=tables, stage=[rank % 2 if apart else 0 for rank in range(ranks)])
    assert finding.id == id


def test_more_work_in_few_steps_counts_as_much_as_it_costs() -> None:
    times = [[100.0] * 5 for _ in range(8)]
    for rank, step in ((0, 1), (1, 1), (2, 3), (3, 3)):
        times[rank][step] = 120
    [finding] = found(times, tables={"groups": pairs(8)})
    assert finding.id == "load-imbalance" and set(finding.subject.ranks) <= {0, 1, 2, 3}
    # 120 ms become 105 in two of five steps.
    assert finding.gain == PredictedGain(118, pytest.approx(112))


def test_a_persistently_slow_rank_stays_as_slow_with_equal_work() -> None:
    [finding] = found(uneven(slow=1.1), tables={"groups": grouped("tp", *REPLICAS)})
    assert (finding.id, finding.subject) == ("load-imbalance", Subject(ranks=(2, 6, 10)))
    assert finding.evidence[0].value == 15.9  # as if it were as fast as the others
    # Longest are 120, 120, 130 and 132 ms; with equal work rank 11, with 1.1 times the mean: 105 ms, 107.5 in the third step.
    assert finding.gain == PredictedGain(135.5, pytest.approx(10 + 1.1 * 105.625))
    assert finding.gain.costs is not None
    assert finding.gain.costs.work.max() == pytest.approx(1.1 * 107.5 * MS)


def test_of_few_ranks_one_is_named() -> None:
    [finding] = found([[100, 111], [110, 100], [100, 100]], tables={"groups": grouped("tp", (0, 1))})
    assert finding.id == "jitter"
    [finding] = found([[110, 100], [100, 112], [100, 112]], tables={"groups": grouped("tp", (1, 2))})
    assert (finding.id, len(finding.subject.ranks)) == ("load-imbalance", 1)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("eeoo", "load-imbalance"),
        ("eoeo", "jitter"),
        ("eeooeo", "jitter"),  # the mean of 1, 1 and -1
        ("eeeeooooeo", "load-imbalance"),  # of 1, 1, 1, 1 and -1
        ("eeoo--", "load-imbalance"),  # what does not vary correlates with nothing
        ("eeoo-eo-", "load-imbalance"),
        ("-e-o", "jitter"),
    ],
)
def test_ranks_of_a_replica_get_more_work_together(pattern: str, reason: str) -> None:
    unrecorded = grouped("tp", (0, 98), (98, 99), name="unrecorded")
    [finding] = found(alternating(pattern), tables={"groups": pairs(len(pattern)) + unrecorded})
    assert finding.id == reason


TOGETHER, APART = ((0, 1), (2, 3)), ((0, 2), (1, 3))


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        *[(grouped(kind, *TOGETHER), "load-imbalance") for kind in ("tp", "pp", "other")],
        *[(grouped(kind, *TOGETHER), "jitter") for kind in ("dp", "ep", "cp", "world")],
        ([{"group": "world", "kind": "other", "rank": rank} for rank in (0, 1)], "jitter"),  # it sums gradients
        (grouped("tp", *TOGETHER) + grouped("other", *APART, name="other"), "load-imbalance"),
        (grouped("tp", *APART) + grouped("other", *TOGETHER, name="other"), "jitter"),
    ],
)
def test_a_replica_is_what_shares_more_than_gradients(groups: list[dict[str, Any]], reason: str) -> None:
    [finding] = found(alternating("eeoo"), tables={"groups": groups})
    assert finding.id == reason


@pytest.mark.parametrize(("pattern", "reason"), [("eeoo", "load-imbalance"), ("eooe", "jitter")])
def test_ranks_that_send_to_each_other_are_a_replica(pattern: str, reason: str) -> None:
    cluster = SmallCluster(4, stage=[0, 1, 0, 1])
    for works in zip(*alternating(pattern), strict=True):
        cluster.work(works)
        cluster.send(0, 1, 1)
        cluster.send(2, 3, 1)
        cluster.meet(range(4), 10)
        cluster.end_step()
    # A message to a rank that recorded nothing.
    message = {"rank": 0, "step": 1, "name": "send", "op": "send", "group": "p2p-0-9", "peer": 9, "sequence": 0}
    cluster.collectives.append({**message, "start": 0, "duration": 0})
    [finding] = unsteady_steps(cluster.context(groups=grouped("other", *APART)))
    assert finding.id == reason


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (alternating("eeoo", usual=50), alternating("eeoo", usual=50), "load-imbalance"),
        (alternating("eeoo", usual=50), alternating("eoeo", usual=50, more=3), "jitter"),  # correlation 0
        (alternating("eeoo", usual=50), slower(4, 4, {}, usual=50), "jitter"),
        (slower(4, 4, {}, usual=50), alternating("eeoo", usual=50), "jitter"),
        (alternating("eo", usual=50, steps=2), alternating("eo", usual=50, steps=2), "load-imbalance"),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_more_work_makes_both_parts_of_a_step_longer(first: Times, second: Times, reason: str, named: bool) -> None:
    context = traced(first, second) if named else in_two_parts(first, second).context()
    [finding] = unsteady_steps(context)
    assert finding.id == reason


def traced(forward: Times, backward: Times) -> DiagnosisContext:
    """A trace that names every operation: each rank is a replica."""
    kernels, calls, begin = [], [], 0.0
    for step in range(len(forward[0])):
        computed = [forward[rank][step] + backward[rank][step] for rank in range(len(forward))]
        end = begin + max(computed) + 10
        for rank, both in enumerate(computed):
            middle = begin + forward[rank][step]
            for name, start, stop, rows in (
                ("forward-compute", begin, middle, kernels),
                ("backward-compute", middle, begin + both, kernels),
                ("grads-all-reduce", begin + both, end, calls),
            ):
                times = {"start": round(start * MS), "duration": round((stop - start) * MS)}
                rows.append({"rank": rank, "step": step + 1, "name": name, **times})
        begin = end
    ranks = [{"rank": rank, "stage": 0, "format": FORMAT} for rank in range(len(forward))]
    run = FakeRun(ranks=ranks, kernels=kernels, collectives=calls)
    run.formats = [FORMAT]
    return DiagnosisContext(run)
