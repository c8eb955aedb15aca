"""The dataset operator that holds an input-bound run up."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.diagnosis.finding import Subject
from paceline.diagnosis.input_evidence import with_bottleneck, with_input_evidence
from paceline.diagnosis.rule_finding import MeasuredValue, PredictedGain, RuleFinding
from support.small_cluster import SmallCluster

BEFORE = (MeasuredValue("input_wait", 5.0),)


def finding(id: str = "input-bound", ranks: tuple[int, ...] = ()) -> RuleFinding:
    return RuleFinding(id, Subject(ranks=ranks), PredictedGain(1, 1), 0.9, evidence=BEFORE)


def pipeline(rank: int, *, mapped: float, read: float, cpu: float | None = None) -> list[dict[str, Any]]:
    """Root, map (workers 4) and reader; `mapped` and `read` of 10 places in their queues are taken."""
    operators: list[dict[str, Any]] = [
        {"op_id": 0, "op": "Batch", "parent": None},
        {"op_id": 1, "op": "Map", "parent": 0, "queue_size": mapped, "queue_capacity": 10, "cpu": cpu, "workers": 4},
        {"op_id": 2, "op": "Reader", "parent": 1, "queue_size": read, "queue_capacity": 10},
    ]
    return [{"rank": rank, **each} for each in operators]


def evidence(rows: list[dict[str, Any]], **more: Any) -> list[MeasuredValue]:
    found = with_bottleneck(SmallCluster(1).context(input_pipeline=rows), finding(**more))
    assert found.evidence[:1] == BEFORE
    return list(found.evidence[1:])


MAP = [  # gets 9 of 10, passes on 1.23 of 10
    *pipeline(0, mapped=1.23, read=9, cpu=100),
    *pipeline(1, mapped=2, read=8, cpu=200),
]
READER = pipeline(2, mapped=1, read=0.5)


def test_the_operator_most_ranks_are_held_up_by() -> None:
    operator = {"operator": "Map (1)"}
    assert evidence([*READER, *MAP]) == [
        MeasuredValue("bottleneck_output_queue", pytest.approx(16.1), unit="%", values=operator),  # 12.3 and 20
        MeasuredValue("bottleneck_input_queue", 85.0, unit="%", values=operator),
        MeasuredValue("bottleneck_worker_cpu", 37.5, unit="%", values=operator),  # 100 and 200 % of 4 workers
    ]


def test_only_ranks_of_the_finding_count() -> None:
    operator = {"operator": "Reader (2)"}
    # Nothing is known of what a reader takes from, and its CPU was not recorded.
    assert evidence([*READER, *MAP], ranks=(2, 7)) == [
        MeasuredValue("bottleneck_output_queue", 5.0, unit="%", values=operator)
    ]
    assert evidence([*READER, *MAP], ranks=(7,)) == []


def test_other_findings_and_other_recordings_stay_as_they_are() -> None:
    assert evidence(MAP, id="host-bound") == [] == evidence([])


def test_time_before_the_first_device_work_alone_proves_no_late_input() -> None:
    """Preparing is also what a host does before its first launch."""
    recorded, unproven = (SmallCluster(1) for _ in range(2))
    for cluster, columns in ((recorded, {"data_wait": 5}), (unproven, {"preparing": 5})):
        cluster.work([100])
        cluster.end_step(**columns)
    assert with_input_evidence(recorded.context(), finding()) == finding()
    found = with_input_evidence(unproven.context(), finding())
    assert found.confidence == 0.45
    assert str(found.doubts[0]).startswith("no wait for a batch was recorded")
    assert with_input_evidence(unproven.context(input_pipeline=READER), finding()).confidence == 0.9
    assert with_input_evidence(unproven.context(), finding("host-bound")) == finding("host-bound")
