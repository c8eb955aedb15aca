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
    LossPart,
    ReplayCheck,
    RunFacts,
    StepTimes,
    StudyNumbers,
    Subject,
    WorkerSlowdown,
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
    print_diagnosis(Diagnosis(run=run, replay=ReplayCheck(0.0, 1.234, 5.0, "kernels"), findings=findings), language, 5)
    return capsys.readouterr().out


LOSS = (
    LossPart(cause="slow-rank", ms=40.0, fixable=True, finding=0, alone_ms=20.0),
    LossPart(cause="communication", ms=10.0, fixable=False),
    LossPart(cause="host", ms=0.1, fixable=True),
    LossPart(cause="input", ms=0.04, fixable=True),
    LossPart(cause="unexplained", ms=4.86, fixable=False),
)


def test_no_bar_is_longer_than_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    """A part may exceed the step where another one is negative; a graph that went wrong once asked for 3e10 cells."""
    parts = (LossPart(cause="uneven", ms=-1e9, fixable=True), LossPart(cause="unexplained", ms=1e9, fixable=False))
    shown = screen(capsys, mean_step_ms=200.0, best_step_ms=200.0, open_percent=0.0, loss=parts)
    assert [line.count("█") for line in shown[shown.index("  loss ") :].splitlines()[:4]] == [40, 1, 40, 40]


def test_the_loss_is_a_waterfall_from_the_step_down_to_computing(capsys: pytest.CaptureFixture[str]) -> None:
    shown = screen(capsys, "en", FINDING, mean_step_ms=200.0, best_step_ms=145.0, open_percent=22.5, loss=LOSS)
    lines = shown[shown.index("  loss ") :].splitlines()[:6]
    assert [" ".join(line.replace("█", "").split()) for line in lines] == [
        "loss mean step now 200.0 ms 100.0 %",
        "1 slow-rank 40.0 ms 20.0 % alone 20.0 ms",
        "critical-path communication 10.0 ms 5.0 %",
        "host gaps 0.1 ms 0.1 %",
        "unexplained 4.9 ms 2.4 %",
        "left: computing 145.0 ms 72.5 %",
    ]
    assert [line.index("█") - lines[0].index("█") for line in lines] == [0, 32, 30, 30, 29, 0]  # of 40 cells


def test_nothing_stands_out_only_where_little_is_fixable_or_unexplained(capsys: pytest.CaptureFixture[str]) -> None:
    told = {"mean_step_ms": 200.0, "best_step_ms": 145.0, "loss": LOSS[1:]}
    assert "Nothing stands out" in screen(capsys, **told, open_percent=2.5)
    withheld = screen(
        capsys, **told, open_percent=2.5, withheld=("slow-nic of ranks 0, 7 is withheld: mixed-up files",)
    )
    assert "No finding is shown" in withheld
    assert "Nothing stands out" not in withheld
    assert "3.5 % of the step is fixable or unexplained; most of it: unexplained." in screen(
        capsys, **told, open_percent=3.5
    )


def test_unknown_hosts_and_step_times_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert "4 ranks · 1 step   prediction error 1.2 %\n" in screen(capsys)
    assert "4 张卡 · 1 步   预测误差 1.2 %\n" in screen(capsys, "zh")
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


def test_the_numbers_of_the_straggler_study(capsys: pytest.CaptureFixture[str]) -> None:
    workers = tuple(WorkerSlowdown(rank, 0, rank, 2 - rank / 10) for rank in range(6))
    study = StudyNumbers(
        step_ms=46_336.33,
        ideal_ms=23_489.6,
        slowdown=1.9726,
        worst_workers_share=1.0008,
        last_stage_share=None,
        workers=workers,
    )
    print_diagnosis(Diagnosis(run=FACTS, findings=(), study=study), "en", 5)
    shown = capsys.readouterr().out
    assert "T 46,336.3 ms, T ideal 23,489.6 ms, S 1.973" in shown
    assert "M_W 100.1 %" in shown and "M_S ? %" in shown
    assert "rank 0 (stage 0, replica 0) 2.000 · rank 1 (stage 0, replica 1) 1.900" in shown
    assert "rank 3 (" in shown and "rank 4 (" not in shown
    assert "straggler study" not in screen(capsys)


def test_a_coarse_model_and_too_few_steps_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    print_diagnosis(Diagnosis(run=FACTS, replay=ReplayCheck(0.0, 1.26), findings=()), "en", 5)
    assert "prediction error 1.3 % · coarse model: collectives only" in capsys.readouterr().out
    print_diagnosis(Diagnosis(run=FACTS, replay=ReplayCheck(), findings=()), "zh", 5)
    assert "预测误差未知：不足 3 步 · 粗粒度模型：仅有集合通信" in capsys.readouterr().out
