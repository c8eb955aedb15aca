"""The one screen: what is not known is not shown as 0, and nothing appears twice."""

from __future__ import annotations

import msgspec
import pytest

from paceline.core.i18n import Language
from paceline.diagnosis.finding import (
    Diagnosis,
    Evidence,
    Finding,
    Gain,
    ReplayCheck,
    RunFacts,
    StepTimes,
    Subject,
)
from paceline.output.terminal import print_diagnosis

FACTS = RunFacts(
    source="runs/a",
    formats=("kineto",),
    ranks=4,
    hosts=0,
    steps=(1,),
    step_ms=StepTimes(None, None, None),
    missing_ranks=(),
    warnings=(),
)
FINDING = Finding(
    id="slow-rank",
    severity="high",
    confidence=0.97,
    chronic=True,
    subject=Subject(ranks=(5,)),
    gain=Gain(292.4, 254.3, 13.03, 1.15),
    title="Rank 5 [node2]: computing is 30 % slower than on the peers",
    evidence=(
        Evidence("self time per step", 289.0, 227.0, "ms", "self_time"),
        Evidence("last to arrive", 94.0, None, "% of its collectives", "last_to_arrive"),
    ),
    advice=("Compare its clock.", "Swap the card."),
    see="kb/slow-rank",
)


def screen(capsys: pytest.CaptureFixture[str], language: Language = "en", *findings: Finding, **changed: object) -> str:
    run = msgspec.structs.replace(FACTS, **changed)
    print_diagnosis(Diagnosis(run=run, replay=ReplayCheck(-0.01), findings=findings), language, 5)
    return capsys.readouterr().out


def test_unknown_hosts_and_step_times_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert "4 ranks · 1 step   replay error +0.0 %" in screen(capsys)
    assert "4 张卡 · 1 步   重放误差 +0.0 %" in screen(capsys, "zh")
    assert "1 rank · 2 hosts · 2 steps · median step 1,412.5 ms" in screen(
        capsys, ranks=1, hosts=2, steps=(3, 4), step_ms=StepTimes(1412.5, None, None)
    )


def test_a_finding_is_headline_gain_evidence_and_first_advice(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.rstrip() for line in screen(capsys, "en", FINDING).splitlines()]
    assert lines[3:8] == [
        "  1  Rank 5 [node2]: computing is 30 % slower than on the peers   high · confidence 97 %",
        "     if fixed: 292.4 → 254.3 ms per step (1.15× faster, 13.0 % less time)",
        "     evidence  self time per step 289 ms (peers 227) · last to arrive 94 % of its collectives",
        "     try       Compare its clock.",
        "               details: paceline kb slow-rank",
    ]
    chinese = screen(capsys, "zh", FINDING)
    assert "修复后：每步 292.4 → 254.3 ms（速度 1.15 倍，耗时减少 13.0 %）" in chinese
    assert "高 · 置信度 97 %" in chinese and "289 ms（同类 227）" in chinese


def test_a_custom_rule_has_no_page_in_the_knowledge_base(capsys: pytest.CaptureFixture[str]) -> None:
    assert "paceline kb" not in screen(capsys, "en", msgspec.structs.replace(FINDING, see="own/slow-rank"))


def test_a_finding_without_gain_promises_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert "if fixed" not in screen(capsys, "en", msgspec.structs.replace(FINDING, gain=Gain(1.0, 1.0, 0.0, 1.0)))


def test_the_same_warning_appears_once_and_the_rest_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    shown = screen(capsys, warnings=("rank 0: cannot be read",) * 2 + tuple(f"rank {n}: odd" for n in range(7)))
    assert shown.count("rank 0: cannot be read") == 1
    assert "… and 3 more" in shown
