"""What people read: every measurement of every rule has a name in both languages, and subjects are named."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

import paceline.diagnosis
from paceline.core.errors import FormatError
from paceline.core.i18n import LANGUAGES, catalogue
from paceline.diagnosis.finding import Diagnosis, DirectedLink, RunFacts, StepTimes, Subject, decode_diagnosis
from paceline.diagnosis.render import finding_in_words, in_words, title
from paceline.diagnosis.rule_finding import Examination, MeasuredValue, PredictedGain, Quantity, RuleFinding

SYMBOLS = {"", "%", "ms", "MB", "GiB", "GB/s"}
FACTS = RunFacts(
    source="runs/a",
    formats=("kineto",),
    ranks=2,
    hosts=1,
    steps=(1, 2),
    step_ms=StepTimes(100.0, 99.0, 101.0),
    missing_ranks=(),
    warnings=(),
)


def finding(**values: object) -> RuleFinding:
    given = {"id": "host-bound", "subject": Subject(ranks=(0, 1)), "gain": PredictedGain(100, 90), "confidence": 0.9}
    return RuleFinding(**{**given, **values})  # type: ignore[arg-type]


def measurements() -> list[tuple[str, str]]:
    """(key, unit) of every MeasuredValue(…) with a constant key in the rules; the unit is "" where it is not constant."""
    found = []
    for path in sorted(Path(paceline.diagnosis.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "MeasuredValue":
                unit = next((word.value for word in node.keywords if word.arg == "unit"), None)
                unit = node.args[3] if len(node.args) > 3 else unit
                found.append((_constant(node.args[0]), _constant(unit)))
    return [(key, unit) for key, unit in found if key]


def _constant(node: ast.expr | None) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""


def test_every_measurement_of_the_rules_is_named_in_the_catalogue() -> None:
    texts = catalogue("diagnosis")
    assert len(measurements()) >= 18
    assert [key for key, _ in measurements() if f"diagnosis.evidence.{key}" not in texts] == []
    units = {unit for _, unit in measurements()}
    assert {unit for unit in units - SYMBOLS if f"diagnosis.unit.{unit}" not in texts} == set()


def test_evidence_is_named_in_the_readers_language_and_keeps_its_key() -> None:
    made = finding(
        evidence=(
            MeasuredValue("last_to_arrive", 94.0, unit="percent_of_collectives"),
            MeasuredValue("stage_self_time", 289.0, 227.0, "ms", {"stage": 3}),
            MeasuredValue("cold", 12.0, unit="°C", name="temperature of the card"),
        )
    )
    shown = {language: finding_in_words(made, language).evidence for language in LANGUAGES}
    assert [(each.metric, each.unit) for each in shown["en"]] == [
        ("last to arrive", "% of its collectives"),
        ("self time of stage 3", "ms"),
        ("temperature of the card", "°C"),
    ]
    assert [(each.metric, each.unit) for each in shown["zh"]] == [
        ("最后到达的占比", "%（占其集合通信）"),
        ("阶段 3 的自身耗时", "ms"),
        ("temperature of the card", "°C"),
    ]
    for evidence in shown.values():
        assert [each.key for each in evidence] == ["last_to_arrive", "stage_self_time", "cold"]
        assert [(each.value, each.peers) for each in evidence] == [(94.0, None), (289.0, 227.0), (12.0, None)]


def test_all_ranks_are_called_every_rank() -> None:
    subject, amount = Subject(ranks=tuple(range(16)), hosts=("a", "b")), Quantity(13, "%")
    everybody = finding(subject=subject, amount=amount, covers_all_ranks=True)
    assert title(everybody, "en").startswith("Every rank: idle for 13 %")
    assert title(everybody, "zh").startswith("所有卡：")
    assert title(finding(amount=amount), "en").startswith("Ranks 0, 1: ")


@pytest.mark.parametrize(
    ("steps", "english", "chinese"),
    [((7,), "in step 7", "第 7 步"), (tuple(range(9)), "in steps 0, 1, 2, 3, 4, 5 …", "第 0, 1, 2, 3, 4, 5 … 步")],
)
def test_steps_are_named_from_the_subject(steps: tuple[int, ...], english: str, chinese: str) -> None:
    stall = finding(id="one-off-stall", amount=Quantity(50, "ms"), subject=Subject(ranks=(3,), steps=steps))
    assert english in title(stall, "en") and chinese in title(stall, "zh")


@pytest.mark.parametrize(
    ("subject", "english", "chinese"),
    [
        (Subject(links=(DirectedLink(3, 4, "RDMA"),)), "Link 3 → 4 (RDMA) runs", "链路 3 → 4 (RDMA) 带宽"),
        (Subject(links=(DirectedLink(3, 4, ""), DirectedLink(4, 3, ""))), "Link 3 ↔ 4 runs", "链路 3 ↔ 4 带宽"),
        (
            Subject(ranks=(1, 2, 3), links=(DirectedLink(1, 2, ""), DirectedLink(2, 3, ""))),
            "A link among ranks 1, 2, 3 runs",
            "1, 2, 3 号卡之间的某条链路 带宽",
        ),
    ],
)
def test_links_are_named_by_their_ends(subject: Subject, english: str, chinese: str) -> None:
    slow = finding(id="slow-link", subject=subject, amount=Quantity(3.14, "GB/s", ".1f"), detail=Quantity(12, "GB/s"))
    assert title(slow, "en").startswith(english) and title(slow, "zh").startswith(chinese)
    assert "3.1 GB/s" in title(slow, "en") and "12 GB/s" in title(slow, "zh")


def test_an_operator_on_a_rank_keeps_the_case_of_its_host() -> None:
    subject = Subject(ranks=(5,), hosts=("Node-A",), operators=("MatMul",))
    slow = finding(id="slow-operator", subject=subject, amount=Quantity(20, "%"))
    assert title(slow, "en").startswith("MatMul on rank 5 (host Node-A) runs 20 % slower")


def test_the_gain_carries_both_ways_to_say_it() -> None:
    gain = finding_in_words(finding(gain=PredictedGain(412.0, 351.0)), "en").gain
    assert (gain.percent, gain.speedup) == (14.81, 1.174)
    assert finding_in_words(finding(gain=PredictedGain(412.0, 0.0)), "en").gain.speedup is None


def test_the_public_json_is_read_back_as_it_was_written() -> None:
    diagnosis = in_words(Examination(FACTS, (finding(amount=Quantity(13, "%")),), -0.00001), "en")
    content = msgspec.json.encode(diagnosis)
    assert content.startswith(b'{"schema":"paceline.diagnosis/1","run":{"source":"runs/a"')
    assert b'"residual_percent":0.0,' in content  # not -0.0
    assert decode_diagnosis(content, "diagnosis.json") == diagnosis


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"schema":"paceline.report/1"}', b"{" * 99])
def test_another_file_is_not_a_diagnosis(content: bytes) -> None:
    with pytest.raises(FormatError, match=r"^x\.json: not a diagnosis \(schema paceline\.diagnosis/1\): "):
        decode_diagnosis(content, "x.json")


def test_a_finding_must_have_a_known_severity() -> None:
    diagnosis = in_words(Examination(FACTS, (finding(amount=Quantity(13, "%")),), 0.0), "en")
    content = msgspec.json.encode(diagnosis).replace(b'"severity":"high"', b'"severity":"worst"')
    with pytest.raises(FormatError, match=r"Invalid enum value 'worst' - at `\$\.findings\[0\]\.severity`"):
        decode_diagnosis(content, "x.json")
    assert isinstance(diagnosis, Diagnosis)
