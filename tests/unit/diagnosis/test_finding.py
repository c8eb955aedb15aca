"""The structs of a diagnosis: what is read back, and that nobody changes them."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from paceline.core.errors import FormatError
from paceline.diagnosis import finding as structs
from paceline.diagnosis.finding import (
    Diagnosis,
    DirectedLink,
    Evidence,
    Finding,
    Gain,
    LossPart,
    ReplayCheck,
    RunFacts,
    StepTimes,
    StudyNumbers,
    Subject,
    When,
    WorkerSlowdown,
    decode_diagnosis,
)

FINDING = Finding(
    id="slow-rank",
    severity="high",
    confidence=0.9,
    chronic=True,
    subject=Subject(ranks=(3,), links=(DirectedLink(0, 1, "RDMA"),)),
    gain=Gain(100.0, 80.0, 20.0, 1.25),
    title="Rank 3",
    evidence=(Evidence("self time", 1.0, 2.0, "ms"),),
    advice=(),
    see="kb/slow-rank",
)
RUN = RunFacts(
    source="s",
    formats=(),
    ranks=1,
    hosts=0,
    steps=(1,),
    step_ms=StepTimes(1, 1, 1),
    missing_ranks=(),
    warnings=(),
)
STUDY = StudyNumbers(
    step_ms=2.0,
    ideal_ms=1.0,
    slowdown=2.0,
    worst_workers_share=1.0,
    last_stage_share=None,
    workers=(WorkerSlowdown(3, 0, 1, 2.0),),
)
DIAGNOSIS = Diagnosis(run=RUN, study=STUDY, findings=(FINDING,))


def test_what_is_written_is_read_back() -> None:
    content = msgspec.json.encode(DIAGNOSIS)
    assert content.startswith(b'{"schema":"paceline.diagnosis/1"')
    assert decode_diagnosis(content, "a.json") == DIAGNOSIS
    assert DIAGNOSIS.replay.residual_percent == 0


@pytest.mark.parametrize("content", [b"{}", b"[", b'{"schema":"paceline.diagnosis/2"}', b'"\xff"'])
def test_another_file_is_refused_by_name(content: bytes) -> None:
    with pytest.raises(FormatError, match=r"^other.json: not a diagnosis \(schema paceline.diagnosis/1\)"):
        decode_diagnosis(content, "other.json")


@pytest.mark.parametrize(
    "struct",
    [
        DIAGNOSIS,
        RUN,
        FINDING,
        FINDING.subject,
        FINDING.subject.links[0],
        FINDING.gain,
        FINDING.evidence[0],
        RUN.step_ms,
        ReplayCheck(),
        STUDY,
        STUDY.workers[0],
        LossPart(cause="input", ms=1, fixable=True),
        When("every", (2, 4), 4, 2),
    ],
    ids=lambda struct: type(struct).__name__,
)
def test_nothing_can_be_changed_afterwards(struct: msgspec.Struct) -> None:
    name = struct.__struct_fields__[0]
    with pytest.raises(AttributeError, match="immutable"):
        setattr(struct, name, getattr(struct, name))


def test_every_struct_is_tested_above() -> None:
    found = [each for _, each in inspect.getmembers(structs, inspect.isclass) if issubclass(each, msgspec.Struct)]
    assert len(found) == 13


def test_the_many_fields_of_a_finding_are_named() -> None:
    with pytest.raises(TypeError):
        Finding(*(getattr(FINDING, name) for name in FINDING.__struct_fields__))
