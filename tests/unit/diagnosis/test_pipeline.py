"""Pipeline stages: uneven ones, and too few micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule_finding import MeasuredValue, PredictedGain, Quantity, RuleFinding
from paceline.diagnosis.rules.pipeline import pipeline_bubble, stage_imbalance
from support.small_cluster import MS, SmallCluster, steady_cluster


def uneven(times: Sequence[float], stages: Sequence[int | None] | None = None, **more: Any) -> list[RuleFinding]:
    """Self times of the ranks; all meet at the end of the step, which lasts the longest + 10 ms."""
    tables = more.pop("tables", {})
    named = list(range(len(times))) if stages is None else list(stages)
    return stage_imbalance(steady_cluster([[time] * 2 for time in times], stage=named, **more).context(**tables))


def test_a_stage_with_more_work_than_the_mean_stage() -> None:
    [finding] = uneven([100, 130, 120, 150], [0, 0, 1, 1])
    assert (finding.id, finding.confidence) == ("stage-imbalance", 0.7)  # 6 of 8: rank 1 takes as long as stage 1 does
    assert finding.subject == Subject(ranks=(2, 3), stages=(1,))
    # The fast halves of the stages need 100 and 120 ms, their mean is 110; by median 115 and 135, so all get 125.
    assert isinstance(finding.amount, Quantity) and str(finding.amount) == "9 %"
    assert finding.evidence[:2] == (
        MeasuredValue("stage_self_time", 100.0, 110.0, "ms", {"stage": 0}),
        MeasuredValue("stage_self_time", 120.0, 110.0, "ms", {"stage": 1}),
    )
    # As fast as the other stage: rank 3 needs 150 · 100 / 120 = 125 ms; rank 1 still needs 130.
    assert finding.evidence[2] == MeasuredValue("step_with_equal_stage", 140.0, 160.0, "ms", {"stages": "1"})
    # Balanced, rank 1 needs 130 · 125 / 115 ms, rank 3 150 · 125 / 135.
    assert finding.gain.step_ms_fixed == pytest.approx(130 * 125 / 115 + 10)


@pytest.mark.parametrize(
    ("times", "stages", "is_found"),
    [
        ((100, 112.8), (0, 1), True),  # 1.06 of the mean, 106.4
        ((100, 112.7), (0, 1), False),
        ((100, 200), (0, 0), False),
        ((100, 200), (0, None), False),
        ((100, 100, 400), (0, 1, None), False),
        ((100, 112, 114, 500), (0, 1, 1, 1), True),  # of three ranks the median of the two fastest: 113
        ((100, 112, 113, 500), (0, 1, 1, 1), False),
    ],
)
def test_a_stage_needs_6_per_cent_more_than_the_mean(times: Any, stages: Any, is_found: bool) -> None:
    assert bool(uneven(times, stages)) is is_found


def test_it_is_the_surer_the_more_ranks_agree() -> None:
    assert uneven([100, 135])[0].confidence == 0.83  # 4 of 4 ranks and steps
    assert uneven([100] * 4 + [135] * 4, [0] * 4 + [1] * 4)[0].confidence == 0.94  # 16 of 16


@pytest.mark.parametrize(
    ("times", "stages"),
    [
        ((100, 140, 100, 132), (1, 3)),  # mean 118: 0.6 of the worst excess is 131.2 ms
        ((100, 140, 100, 130), (1,)),  # mean 117.5: 131 ms
        ((100, 100, 100, 100, 109.5, 108.5), (4,)),  # mean 103: at least 1.06 of it, 109.18 ms
    ],
)
def test_stages_with_about_as_much_excess_are_named_together(times: Any, stages: tuple[int, ...]) -> None:
    [finding] = uneven(times)
    assert finding.subject == Subject(ranks=stages, stages=stages)
    assert finding.evidence[-1].values == {"stages": ", ".join(map(str, stages))}


def test_heavy_stages_as_fast_as_the_others() -> None:
    [finding] = uneven([90, 140, 100, 132, 110])
    assert finding.evidence[-1] == MeasuredValue("step_with_equal_stage", 120.0, 150.0, "ms", {"stages": "1, 3"})


# -- a slow host that holds a stage -----------------------------------------------------------------------------------


def kernels(
    times: dict[int, float], *, extra: dict[int, float] | None = None, shapes: bool = True
) -> list[dict[str, Any]]:
    """Two kinds of kernels of 50 ms · `times` on these ranks; of `extra` ms a kind of its own."""
    rows = [
        {"rank": rank, "type": "MatMul", "duration": round(50 * MS * factor), "input_shapes": shape if shapes else None}
        for rank, factor in times.items()
        for shape in ("2,2", "4,4")
    ]
    rows += [
        {"rank": rank, "type": "Softmax", "duration": round(time * MS), "input_shapes": "8,8" if shapes else None}
        for rank, time in (extra or {}).items()
    ]
    return [{"step": step, "core": "AI_CORE", **row} for row in rows for step in (1, 2)]


def on_hosts(
    rows: list[dict[str, Any]], hosts: Sequence[str | None] = ("a", "a", "b", "b"), **more: Any
) -> RuleFinding:
    """Stage 1, the ranks 2 and 3, needs 120 ms, stage 0 needs 100."""
    times, stages = more.pop("times", (100, 100, 120, 120)), more.pop("stages", (0, 0, 1, 1))
    [finding] = uneven(times, stages, host=list(hosts), tables={"kernels": rows})
    return finding


def test_a_host_whose_kernels_take_longer_is_slow() -> None:
    finding = on_hosts(kernels({0: 1, 1: 1, 2: 1.2, 3: 1.2}))
    assert (finding.id, finding.confidence) == ("slow-host", 0.75)  # 2 of 2 ranks
    assert finding.subject == Subject(ranks=(2, 3), hosts=("b",))
    assert finding.gain == PredictedGain(130, pytest.approx(110))
    assert isinstance(finding.amount, Quantity) and str(finding.amount) == "20 %"
    assert finding.evidence == (
        MeasuredValue("same_kernels_time", 120.0, 100.0, "%"),
        MeasuredValue("work_at_equal_speed", 100.0, 100.0, "%"),
    )


EQUAL = {0: 1.0, 1: 1.0}


@pytest.mark.parametrize(
    ("rows", "id"),
    [
        (kernels(EQUAL | {2: 1.101, 3: 1.101}), "slow-host"),  # half of 20 %
        (kernels(EQUAL | {2: 1.099, 3: 1.099}), "stage-imbalance"),
        (kernels(EQUAL | {2: 1.2, 3: 1.2}, extra={2: 9.9, 3: 9.9}), "slow-host"),  # 9.9 of 100 ms more work
        (kernels(EQUAL | {2: 1.2, 3: 1.2}, extra={2: 10.1, 3: 10.1}), "stage-imbalance"),
        (kernels(EQUAL | {2: 1.2, 3: 1.2}, shapes=False), "stage-imbalance"),  # they may be larger
        (kernels(EQUAL), "stage-imbalance"),
        (kernels({2: 1.2, 3: 1.2}), "stage-imbalance"),
    ],
)
def test_kernels_explain_half_of_what_the_stage_needs_longer(rows: list[dict[str, Any]], id: str) -> None:
    assert on_hosts(rows).id == id


@pytest.mark.parametrize("hosts", [("a", "a", "b", "c"), ("b", "b", "b", "b"), (None,) * 4])
def test_stages_that_are_not_one_host_of_several(hosts: Sequence[str | None]) -> None:
    assert on_hosts(kernels(EQUAL | {2: 1.2, 3: 1.2}), hosts).id == "stage-imbalance"


@pytest.mark.parametrize(("factor", "id"), [(1.041, "slow-host"), (1.039, "stage-imbalance")])
def test_kernels_take_at_least_4_per_cent_longer(factor: float, id: str) -> None:
    # The stage needs 7.5 % more than the others, so 3.75 % would do.
    finding = on_hosts(
        kernels(dict.fromkeys(range(5), 1.0) | {5: factor}),
        ["a"] * 5 + ["b"],
        times=[100] * 5 + [107.5],
        stages=range(6),
    )
    assert finding.id == id


@pytest.mark.parametrize(
    ("factors", "id"),
    [
        ({2: 1.2, 3: 1.2}, "slow-host"),
        ({2: 1.2, 3: 1.0}, "stage-imbalance"),  # one of its stages, not the host
        ({2: 1.2, 3: 1.041}, "slow-host"),
        ({2: 1.2, 3: 1.039}, "stage-imbalance"),
        ({2: 1.2}, "slow-host"),  # nothing is known of stage 2
    ],
)
def test_all_stages_of_a_slow_host_are_slow(factors: dict[int, float], id: str) -> None:
    times, stages = (100, 100, 120, 110), (0, 0, 1, 2)
    # Stage 1 counts most: four of its kernels to one of stage 2.
    rows = kernels(EQUAL | factors) + 3 * kernels({0: 1, 1: 1, 2: 1.2})
    assert on_hosts(rows, times=times, stages=stages).id == id


# -- micro-batches ----------------------------------------------------------------------------------------------------


def pipeline(
    stages: int, micro_batches: int, *, backward: bool = True, numbers: Sequence[int | None] | None = None
) -> SmallCluster:
    """Each micro-batch goes down and back up the stages, 10 ms on each, before the next one starts; messages take 1 ms."""
    cluster = SmallCluster(stages, stage=list(numbers or range(stages)))
    for _ in range(2):
        for _ in range(micro_batches):
            for stage in range(stages):
                cluster.work({stage: 10})
                if stage + 1 < stages:
                    cluster.send(stage, stage + 1, 1)
            for stage in reversed(range(stages)) if backward else ():
                cluster.work({stage: 10})
                if stage > 0:
                    cluster.send(stage, stage - 1, 1)
        cluster.meet(range(stages), 1)
        cluster.end_step()
    return cluster


def test_a_pipeline_that_is_mostly_filled_and_drained() -> None:
    [finding] = pipeline_bubble(pipeline(2, 2).context())
    assert (finding.id, finding.confidence) == ("pipeline-bubble", 0.75)  # 2 of 2 ranks
    assert finding.subject == Subject(stages=(0, 1))
    # Two micro-batches of 40 ms of work and 2 ms of messages, and 1 ms for the collective.
    # To fill takes half of the 40 ms of self time; with four times as many micro-batches a quarter of that.
    assert finding.gain == PredictedGain(85, pytest.approx(85 - 0.75 * 20))
    assert str(finding.amount) == "33 %" and str(finding.detail) == "2"  # 1 / (2 + 1)
    assert finding.evidence == (
        MeasuredValue("micro_batches", 2.0),
        MeasuredValue("pipeline_idle_share", 33.3, unit="%"),
    )


@pytest.mark.parametrize(
    ("stages", "micro_batches", "share"),
    [(2, 3, None), (2, 1, 50.0), (3, 4, 33.3), (3, 5, None), (4, 7, 30.0), (4, 8, None)],
)
def test_idle_share_of_a_balanced_pipeline(stages: int, micro_batches: int, share: float | None) -> None:
    """(p - 1) / (m + p - 1), reported from 0.3 on."""
    found = pipeline_bubble(pipeline(stages, micro_batches).context())
    assert [finding.evidence[1].value for finding in found] == ([share] if share else [])
    if found:
        self_time = 20 * micro_batches  # of each stage
        filling = (stages - 1) * self_time / micro_batches
        assert found[0].gain.step_ms_now - found[0].gain.step_ms_fixed == pytest.approx(0.75 * filling)
        assert found[0].evidence[0].value == micro_batches


def test_stages_that_only_receive_forward() -> None:
    # Rank 0 receives nothing and says nothing about micro-batches.
    [finding] = pipeline_bubble(pipeline(2, 2, backward=False).context())
    assert finding.evidence[0].value == 2
    # Which stages are inner ones cannot be told from these numbers: the median of 1, 2 and 1 receives.
    [finding] = pipeline_bubble(pipeline(3, 1, numbers=(0, 5, 9)).context())
    assert finding.evidence[0].value == 1 and finding.subject.stages == (0, 5, 9)


def test_runs_without_stages_or_messages() -> None:
    assert pipeline_bubble(steady_cluster([[90]] * 2, stage=[0, 1]).context()) == []
    assert pipeline_bubble(pipeline(2, 2, numbers=(0, 0)).context()) == []
    assert pipeline_bubble(pipeline(2, 2, numbers=(0, None)).context()) == []
