"""Causes on the host that slow most ranks; steps of 100 ms, of which 10 ms are communication."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule_finding import MeasuredValue, Quantity, RuleFinding
from paceline.diagnosis.rules.host import cpu_operators, host_bound, input_bound
from support.small_cluster import MS, SmallCluster, steady_cluster


def cluster(ranks: int = 5, **columns: Any) -> SmallCluster:
    return steady_cluster([[90, 90]] * ranks, columns=columns, host=["b", "a", "a", None, None][:ranks])


def test_input_that_most_ranks_wait_for() -> None:
    [finding] = input_bound(cluster(data_wait=6).context())
    assert (finding.id, finding.confidence) == ("input-bound", 0.92)  # 10 of 10: ranks × steps
    assert finding.subject == Subject(ranks=(0, 1, 2, 3, 4), hosts=("a", "b"))
    # Half a per cent of the step is a normal start: 5.5 ms less.
    assert (finding.gain.step_ms_now, finding.gain.step_ms_fixed) == (100, pytest.approx(94.5))
    assert isinstance(finding.amount, Quantity) and str(finding.amount) == "6 %"
    assert finding.evidence == (MeasuredValue("input_wait", 6.0, unit="ms_per_step"),)


@pytest.mark.parametrize(
    ("wait", "is_found"),
    [
        (5.1, True),
        (4.9, False),
        ([0, 5.1, 9, 9, 9], True),  # three quarters of the ranks
        ([0, 4.9, 9, 9, 9], False),
        ([None, 5.1, 9, 9, 9], True),  # nothing is known of rank 0
        ([None, None, None, None, 5.1], True),
        (None, False),
    ],
)
def test_three_quarters_of_the_ranks_wait_for_a_twentieth_of_the_step(wait: Any, is_found: bool) -> None:
    assert bool(input_bound(cluster(data_wait=wait).context())) is is_found


def test_a_run_without_steps_waits_for_nothing() -> None:
    context = steady_cluster([[], []]).context()
    assert input_bound(context) == host_bound(context) == cpu_operators(context) == []


def test_ranks_that_wait_less_than_normal_do_not_start_later() -> None:
    [finding] = input_bound(cluster(data_wait=[0.2, 8, 8, 8, 8]).context())
    assert finding.gain.step_ms_fixed == 100  # rank 0 needs as long as before


@pytest.mark.parametrize(
    ("waits", "is_found"),
    [
        ([0, 0, 26, 0, 0, 26], True),  # every third step: without the longest wait 26 of 500 ms
        ([0, 0, 24, 0, 0, 24], False),
        ([0, 0, 80, 0, 0, 0], False),  # once does not last
        ([6, 6, 6, 6, 6, 6], True),
    ],
)
def test_input_that_is_late_in_some_steps_counts_as_much_as_it_costs(waits: list[float], is_found: bool) -> None:
    made = SmallCluster(2)
    for wait in waits:
        made.work([90, 90])
        made.meet([0, 1], 10)
        made.end_step(data_wait=wait)
    assert bool(input_bound(made.context())) is is_found


@pytest.mark.parametrize(("exposed", "is_found"), [(25, False), (5, True)])
def test_free_time_that_holds_late_input_is_not_counted_again(exposed: int, is_found: bool) -> None:
    """A step of 100 ms with 55 of computing: `free` ends where the next step begins, or holds its preparing."""
    made = cluster(computing=55, exposed=exposed, free=20, preparing=20, data_wait=19)
    assert bool(host_bound(made.context())) is is_found


def test_pauses_of_all_ranks_are_not_slow_launching() -> None:
    made = SmallCluster(2)
    for pause in (0, 40, 0, 40, 0, 40):
        made.work([90 + pause] * 2)
        made.meet([0, 1], 10)
        made.end_step(computing=85, free=5 + pause, data_wait=0)
    assert not host_bound(made.context())


def test_idle_between_kernels() -> None:
    [finding] = host_bound(cluster(computing=70, free=20, data_wait=5).context())
    assert (finding.id, finding.confidence) == ("host-bound", 0.92)  # 10 of 10: ranks × steps
    assert finding.subject == Subject(ranks=(0, 1, 2, 3, 4), hosts=("a", "b"))
    # 20 ms without kernels, 5 of them waiting for input; 1.5 ms are normal.
    assert finding.gain.step_ms_fixed == pytest.approx(86.5)
    assert isinstance(finding.amount, Quantity) and str(finding.amount) == "15 %"
    assert finding.evidence == (MeasuredValue("idle_between_kernels", 15.0, unit="ms_per_step"),)


@pytest.mark.parametrize(
    ("columns", "is_found"),
    [
        ({"free": 6.1}, True),
        ({"free": 5.9}, False),
        ({"free": 9, "data_wait": 2.9}, True),
        ({"free": 9, "data_wait": 3.1}, False),
        ({"free": [0, 6.1, 9, 9, 9]}, True),
        ({"free": [0, 5.9, 9, 9, 9]}, False),
        ({"free": [None, 6.1, 9, 9, 9]}, True),
        ({"free": None}, False),
    ],
)
def test_three_quarters_of_the_ranks_idle_for_6_per_cent_of_the_step(columns: dict[str, Any], is_found: bool) -> None:
    assert bool(host_bound(cluster(**columns).context())) is is_found


def test_ranks_that_idle_less_than_normal_gain_nothing() -> None:
    [finding] = host_bound(cluster(free=[1.4, 9, 9, 9, 9]).context())
    assert finding.gain.step_ms_fixed == 100
    [finding] = host_bound(cluster(free=[2, 9, 9, 9, 9], data_wait=[8, 0, 0, 0, 0]).context())
    assert finding.gain.step_ms_fixed == 100  # not -6 ms


@pytest.mark.parametrize(("call", "is_found"), [("aclrtMalloc", False), ("aclrtFree", False), ("aclrtLaunch", True)])
def test_memory_that_comes_and_goes_is_the_cause_of_idling(call: str, is_found: bool) -> None:
    context = cluster(free=9).context(host_calls=[{"rank": 0, "name": call}])
    assert bool(host_bound(context)) is is_found


# -- the AI CPU -------------------------------------------------------------------------------------------------------


def kernel(rank: int, kind: str, duration: float, core: str | None = "AI_CORE", step: int = 1) -> dict[str, Any]:
    return {"rank": rank, "step": step, "type": kind, "core": core, "duration": round(duration * MS)}


def on_cpu(*kernels: dict[str, Any]) -> list[RuleFinding]:
    return cpu_operators(cluster(2).context(kernels=list(kernels)))


def test_operators_on_the_ai_cpu() -> None:
    both = [
        row
        for rank in (0, 1)
        for step in (1, 2)
        for row in (
            kernel(rank, "MatMul", 60, step=step),
            kernel(rank, "Sort", 12, "AI_CPU", step),
            kernel(rank, "TopK", 8, "AI_CPU", step),
            kernel(rank, "TopK", 20, step=step),
            kernel(rank, "hcom", 500, "COMMUNICATION", step),
        )
    ]
    [finding] = on_cpu(*both)
    assert (finding.id, finding.confidence) == ("cpu-operators", 0.83)  # 4 of 4: ranks × steps
    assert finding.subject == Subject(operators=("Sort", "TopK"))
    assert isinstance(finding.amount, Quantity) and str(finding.amount) == "20 %"  # 20 of 100 ms of computing
    assert finding.evidence == (MeasuredValue("ai_cpu_time", 20.0, unit="ms_per_step"),)
    assert finding.gain.step_ms_fixed == pytest.approx(81)  # 0.95 · 20 ms less


def test_kernels_whose_core_is_unknown_are_computing() -> None:
    [finding] = on_cpu(kernel(0, "MatMul", 60, None), kernel(0, "Sort", 20, "AI_CPU"))
    assert str(finding.amount) == "25 %"


@pytest.mark.parametrize(("slow", "is_found"), [(3.01, True), (2.99, False), (0, False)])
def test_the_ai_cpu_takes_3_per_cent_of_computing(slow: float, is_found: bool) -> None:
    found = on_cpu(kernel(0, "MatMul", 100 - slow), kernel(0, "Sort", slow, "AI_CPU"))
    assert bool(found) is is_found


def test_the_five_costliest_operators_are_named() -> None:
    [finding] = on_cpu(*(kernel(0, f"op{time}", time, "AI_CPU") for time in (3, 5, 1, 6, 2, 4)))
    assert finding.subject.operators == ("op6", "op5", "op4", "op3", "op2")
