"""Devices that idle while the host is inside one call; steps of 100 ms, of which 10 ms are communication."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.diagnosis.rule_finding import RuleFinding
from paceline.diagnosis.rules.host import host_bound
from paceline.diagnosis.rules.idle import held_up_host
from support.small_cluster import MS, steady_cluster

STEPS = (1, 2, 3, 4)


def call(name: str, time: float, *, rank: int = 0, step: int = 1, count: int = 1, **more: Any) -> dict[str, Any]:
    return {"rank": rank, "step": step, "name": name, "count": count, "time": round(time * MS), **more}


def everywhere(name: str, time: float, ranks: int = 2, **more: Any) -> list[dict[str, Any]]:
    return [call(name, time, rank=rank, step=step, **more) for rank in range(ranks) for step in STEPS]


def found(*calls: dict[str, Any], free: float = 30, **columns: Any) -> list[RuleFinding]:
    return held_up_host(
        steady_cluster([[90] * len(STEPS)] * 2, columns={"free": free, **columns}).context(idle_calls=list(calls))
    )


def test_memory_that_comes_and_goes() -> None:
    [finding] = found(*everywhere("hipFree", 18), *everywhere("hipMalloc", 2))
    assert (finding.id, str(finding.amount), finding.detail) == ("memory-management", "20 %", "hipFree")
    # 90 ms of each rank's own work become 70; 5 of 6 by the rule of succession.
    assert (finding.gain.step_ms_now, finding.gain.step_ms_fixed) == (100, pytest.approx(80))
    assert finding.confidence == 0.83
    assert [(each.key, each.value) for each in finding.evidence] == [
        ("idle_in_calls", 20.0),
        ("idle_in_call", 18.0),
        ("idle_in_call", 2.0),
    ]


def test_a_copy_that_blocks_is_named_with_its_place_in_the_program() -> None:
    calls = everywhere("hipMemcpyWithStream", 25, operator="aten::copy_", code="runner.py(276): populate")
    [finding] = found(*calls)
    assert (finding.id, str(finding.amount)) == ("blocking-call", "25 %")
    assert finding.evidence[1].values == {"call": "hipMemcpyWithStream (aten::copy_, runner.py(276): populate)"}


def test_only_ranks_that_lose_three_per_cent_are_named() -> None:
    [finding] = found(
        *everywhere("cudaFree", 20, ranks=1), *(call("cudaFree", 2.9, rank=1, step=step) for step in STEPS)
    )
    assert finding.subject.ranks == (0,)
    assert finding.gain.step_ms_fixed == 100  # the others take as long


def test_a_call_in_one_step_of_four_costs_a_quarter_of_it() -> None:
    [finding] = found(*(call("cudaFree", 28, rank=rank, step=2) for rank in (0, 1)))
    assert (str(finding.amount), finding.gain.step_ms_fixed) == ("7 %", pytest.approx(93))
    assert finding.confidence == 0.33  # (1 + 1) / (4 + 2)


def test_no_more_than_the_device_was_idle_outside_of_input() -> None:
    [finding] = found(*everywhere("cudaFree", 50), free=30, data_wait=12)
    assert str(finding.amount) == "18 %"


def test_a_runtime_that_starts_is_told_and_not_to_be_repaired() -> None:
    calls = [call("cudaDeviceGetStreamPriorityRange", 29, rank=rank) for rank in (0, 1)]
    [finding] = found(*calls)
    assert (finding.id, finding.severity, finding.chronic, finding.subject.steps) == (
        "one-off-stall",
        "low",
        False,
        (1,),
    )
    assert finding.evidence[-1].key == "start_of_runtime"
    assert finding.evidence[-1].value == 29.0


def test_what_was_started_before_does_not_start_again() -> None:
    calls = [call("cudaLaunchKernel", time, rank=0, step=step) for step, time in ((1, 0.5), (3, 40))]
    assert found(*calls) == []  # the code was loaded in step 1; the rank stalled in step 3, which another rule tells


def test_many_short_launches_are_left_to_host_bound() -> None:
    launches = everywhere("cudaLaunchKernel", 25, count=3000)
    assert found(*launches) == []
    cluster = steady_cluster([[90] * len(STEPS)] * 2, columns={"computing": 60, "exposed": 10, "free": 30})
    [finding] = host_bound(cluster.context(idle_calls=[*launches, *everywhere("cudaFree", 10)]))
    assert str(finding.amount) == "20 %"  # 30 less what memory explains
    assert finding.gain.step_ms_fixed == pytest.approx(81.5)  # 1.5 ms are normal


def test_one_short_allocation_does_not_silence_host_bound() -> None:
    cluster = steady_cluster([[90] * len(STEPS)] * 2, columns={"free": 30})
    sums = [{"rank": 0, "name": "cudaMalloc", "time": 1 * MS}]
    assert [finding.id for finding in host_bound(cluster.context(host_calls=sums))] == ["host-bound"]
    # 8 steps × 30 ms are idle; 120 ms in calls may be half of it.
    sums = [{"rank": 0, "name": "aclrtMalloc", "time": 120 * MS}]
    assert host_bound(cluster.context(host_calls=sums)) == []
