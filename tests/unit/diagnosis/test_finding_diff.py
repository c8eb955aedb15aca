"""Findings of two runs side by side."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.diagnosis.finding import Diagnosis, DirectedLink, Finding, Gain, RunFacts, StepTimes, Subject
from paceline.diagnosis.finding_diff import FindingChange, compare_findings, subjects_overlap, unrecorded_kinds
from support.fake_run import FakeRun

RUN = RunFacts(
    source="", formats=(), ranks=0, hosts=0, steps=(), step_ms=StepTimes(0, 0, 0), missing_ranks=(), warnings=()
)


def link(src: int, dst: int, transport: str = "RDMA") -> DirectedLink:
    return DirectedLink(src, dst, transport)


def finding(id: str, **subject: Any) -> Finding:
    return Finding(
        id=id,
        severity="low",
        confidence=1,
        chronic=True,
        subject=Subject(**subject),
        gain=Gain(1, 1, 0),
        title="",
        evidence=(),
        advice=(),
        see="",
    )


def diagnosis(*findings: Finding) -> Diagnosis:
    return Diagnosis(run=RUN, findings=findings)


def test_findings_are_gone_still_there_or_new() -> None:
    gone, still, also = finding("slow-rank", ranks=(1,)), finding("slow-rank", ranks=(2, 3)), finding("jitter")
    again, other, new = (
        finding("slow-rank", ranks=(3,)),
        finding("jitter", ranks=(7,)),
        finding("slow-host", ranks=(1,)),
    )
    changes = compare_findings(diagnosis(gone, still, also), diagnosis(new, other, again))
    assert changes == (
        FindingChange("gone", gone, None),
        FindingChange("still", still, again),
        FindingChange("still", also, other),
        FindingChange("new", None, new),
    )
    assert [change.finding for change in changes] == [gone, still, also, new]


def test_a_finding_is_matched_once() -> None:
    twice, once = finding("jitter"), finding("jitter")
    assert [change.status for change in compare_findings(diagnosis(twice, twice), diagnosis(once))] == ["still", "gone"]


@pytest.mark.parametrize(
    ("old", "unrecorded", "status"),
    [
        (finding("slow-link", links=(link(0, 1),)), {"links"}, "unseen"),
        (finding("slow-link", links=(link(0, 1),)), {"operators"}, "gone"),
        (finding("slow-operator", operators=("MatMul",)), {"operators"}, "unseen"),
        (finding("slow-operator", operators=("MatMul",)), {"links"}, "gone"),
        (finding("x", operators=("MatMul",), links=(link(0, 1),)), {"operators"}, "unseen"),
        (finding("slow-rank", ranks=(1,)), {"links", "operators"}, "gone"),
    ],
)
def test_what_the_later_run_cannot_show_is_not_gone(old: Finding, unrecorded: set[str], status: str) -> None:
    [change] = compare_findings(diagnosis(old), diagnosis(), unrecorded=frozenset(unrecorded))
    assert change.status == status


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ({"ranks": (1, 2)}, {"ranks": (2, 3)}, True),
        ({"ranks": (1,)}, {"ranks": (2,)}, False),
        ({}, {"ranks": (2,)}, True),
        ({"ranks": (2,)}, {}, True),
        ({"links": (link(0, 1),), "ranks": (0, 1)}, {"links": (link(1, 2),), "ranks": (1, 2)}, False),
        ({"links": (link(0, 1),)}, {"links": (link(0, 1, "HCCS"),)}, True),
        ({"operators": ("a",), "ranks": (1,)}, {"operators": ("b",), "ranks": (1,)}, False),
        ({"operators": ("a", "b")}, {"operators": ("b",)}, True),
        ({"stages": (1,), "ranks": (4,)}, {"stages": (1,), "ranks": (5,)}, True),
        ({"stages": (1,), "ranks": (4,)}, {"stages": (2,), "ranks": (4,)}, False),
        ({"stages": (1,)}, {"operators": (1,)}, False),
        ({"hosts": ("a",)}, {"hosts": ("a", "b")}, True),
        ({"hosts": ("a",)}, {"hosts": ("b",)}, False),
        ({"hosts": ("a",), "ranks": (1,)}, {"hosts": ("a",), "ranks": (2,)}, False),
    ],
)
def test_subjects_overlap_in_the_narrowest_thing_they_name(one: Any, other: Any, overlap: bool) -> None:
    assert subjects_overlap(Subject(**one), Subject(**other)) is overlap


def test_kinds_without_a_row_are_unrecorded() -> None:
    def kinds(**tables: list[dict[str, Any]]) -> set[str]:
        run = FakeRun(**tables)
        run.connection.execute("CREATE VIEW links AS FROM transfers")
        return set(unrecorded_kinds(run))

    assert kinds() == {"links", "operators"}
    assert kinds(kernels=[{"rank": 0}]) == {"links"}
    assert kinds(transfers=[{"rank": 0}]) == {"operators"}


def test_a_change_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        FindingChange("new", None, finding("x")).status = "gone"  # type: ignore[misc]
