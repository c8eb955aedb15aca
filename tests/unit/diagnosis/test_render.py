"""A finding in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.core.i18n import Language
from paceline.diagnosis.finding import DirectedLink, Evidence, Gain, RunFacts, StepTimes, Subject, When
from paceline.diagnosis.knowledge import EntryText, KnowledgeEntry, load_entry
from paceline.diagnosis.render import finding_in_words, in_words, title, who
from paceline.diagnosis.rule_finding import Examination, MeasuredValue, PredictedGain, Quantity, RuleFinding
from paceline.replay.prediction import Prediction

RDMA = DirectedLink(0, 9, "RDMA")
BACK = DirectedLink(9, 0, "RDMA")


def finding(id: str = "slow-rank", **more: Any) -> RuleFinding:
    return RuleFinding(id, **{"subject": Subject(ranks=(3,)), "gain": PredictedGain(3, 2), "confidence": 0.9, **more})


@pytest.mark.parametrize(
    ("subject", "en", "zh"),
    [
        ({}, "Every rank", "所有卡"),
        ({"ranks": (3,)}, "Rank 3", "3 号卡"),
        ({"ranks": (3, 4)}, "Ranks 3, 4", "3, 4 号卡"),
        ({"ranks": (3,), "hosts": ("a",)}, "Rank 3 (host a)", "3 号卡（主机 a）"),
        ({"ranks": (3, 4), "hosts": ("a",)}, "Ranks 3, 4 (host a)", "3, 4 号卡（主机 a）"),
        ({"ranks": (3, 4), "hosts": ("a", "b")}, "Ranks 3, 4", "3, 4 号卡"),
        ({"ranks": tuple(range(8))}, "Ranks 0, 1, 2, 3, 4, 5, 6, 7", "0, 1, 2, 3, 4, 5, 6, 7 号卡"),
        ({"ranks": tuple(range(9))}, "Ranks 0, 1, 2, 3, 4, 5, 6, 7 … (9)", "0, 1, 2, 3, 4, 5, 6, 7 … (9) 号卡"),
        ({"links": (RDMA,), "ranks": (0, 9)}, "Link 0 → 9 (RDMA)", "链路 0 → 9 (RDMA)"),
        ({"links": (RDMA, BACK), "ranks": (0, 9)}, "Link 0 ↔ 9 (RDMA)", "链路 0 ↔ 9 (RDMA)"),
        ({"links": (DirectedLink(0, 9, ""),)}, "Link 0 → 9", "链路 0 → 9"),
        (
            {"links": (RDMA, DirectedLink(9, 5, "RDMA")), "ranks": (0, 5, 9)},
            "A link among ranks 0, 5, 9",
            "0, 5, 9 号卡之间的某条链路",
        ),
        ({"operators": ("MatMul", "Add")}, "MatMul, Add", "MatMul, Add"),
        ({"operators": ("MatMul",), "ranks": (3,)}, "MatMul on rank 3", "MatMul，3 号卡"),
        ({"stages": (1,), "ranks": (4, 5)}, "Stage 1", "流水线阶段 1"),
        ({"stages": (1, 2)}, "Stages 1, 2", "流水线阶段 1, 2"),
    ],
)
def test_whom_a_finding_is_about(subject: dict[str, Any], en: str, zh: str) -> None:
    assert who(Subject(**subject), "en") == en
    assert who(Subject(**subject), "zh") == zh


@pytest.mark.parametrize(
    ("found", "language", "expected"),
    [
        (finding(amount=Quantity(20, "%")), "en", "Rank 3: computing is 20 % slower than on the peers"),
        (
            finding(amount=Quantity(20, "%"), covers_all_ranks=True),
            "en",
            "Every rank: computing is 20 % slower than on the peers",
        ),
        # The full-width bracket stands for the space that would follow it.
        (finding(subject=Subject(ranks=(3,), hosts=("a",))), "zh", "3 号卡（主机 a）的计算比同类卡慢 "),
        (
            finding("slow-host", subject=Subject(ranks=(1, 2), hosts=("a",)), amount=Quantity(9, "%")),
            "en",
            "Host a: all its cards are 9 % slower than their peers elsewhere",
        ),
        (
            finding("slow-host", subject=Subject(hosts=("a", "b")), amount=Quantity(9, "%")),
            "en",
            "Hosts a, b: all its cards are 9 % slower than their peers elsewhere",
        ),
        (
            finding("frequency-drop", amount=Quantity(1000, "MHz", ",.0f"), detail=Quantity(1800, "MHz", ",.0f")),
            "en",
            "Rank 3: clock at 1,000 MHz instead of 1,800 MHz",
        ),
        (
            finding("one-off-stall", subject=Subject(ranks=(3,), steps=(7,)), amount=Quantity(50, "ms")),
            "en",
            "Rank 3 stalled for 50 ms in step 7",
        ),
        (
            finding("one-off-stall", subject=Subject(ranks=(3,), steps=tuple(range(6))), amount=Quantity(50, "ms")),
            "en",
            "Rank 3 stalled for 50 ms in steps 0, 1, 2, 3, 4, 5",
        ),
        (
            finding("one-off-stall", subject=Subject(ranks=(3,), steps=tuple(range(7))), amount=Quantity(50, "ms")),
            "en",
            "Rank 3 stalled for 50 ms in steps 0, 1, 2, 3, 4, 5 …",
        ),
    ],
)
def test_titles(found: RuleFinding, language: Language, expected: str) -> None:
    assert title(found, language) == expected


@pytest.mark.parametrize(
    ("when", "en", "zh"),
    [
        (When("always", (1, 2), 2), "", ""),
        (When("since", (3, 4), 4), ", since step 3", "，自第 3 步起"),
        (When("grows", (3, 4), 4), ", more and more since step 3", "，自第 3 步起逐渐加重"),
        (When("until", (1, 2), 4), ", until step 2", "，至第 2 步为止"),
        (When("every", (2, 4), 4, 2), ", every 2 steps", "，每 2 步一次"),
        (When("some", (2, 3, 7), 9), ", in 3 of 9 steps", "，9 步中有 3 步"),
        (When("once", (2,), 9), ", in step 2 only", "，仅在第 2 步"),
    ],
)
def test_a_title_says_in_which_steps(when: When, en: str, zh: str) -> None:
    for language, expected in (("en", en), ("zh", zh)):
        found = finding(amount=Quantity(20, "%"), when=when)
        assert title(found, language) == title(finding(amount=Quantity(20, "%")), language) + expected  # type: ignore[arg-type]
    stall = finding("one-off-stall", subject=Subject(ranks=(3,), steps=(7,)), amount=Quantity(50, "ms"), when=when)
    assert title(stall, "en") == "Rank 3 stalled for 50 ms in step 7"


def test_everything_people_see_of_a_finding_is_rounded_and_in_their_language() -> None:
    found = finding(
        gain=PredictedGain(30.12345, 20.98765),
        chronic=False,
        amount=Quantity(20, "%"),
        evidence=(
            MeasuredValue("self_time", 1.5, 1.25, "ms"),
            MeasuredValue("operator_mean", 2.0, unit="ms_per_step", values={"operator": "MatMul"}),
            MeasuredValue("own", 3.0, name="my own name"),
        ),
    )
    shown = finding_in_words(found, "zh")
    # 100 · (1 - 20.98765 / 30.12345) = 30.3279 and 30.12345 / 20.98765 = 1.43529
    assert shown.gain == Gain(30.123, 20.988, 30.33, 1.435)
    assert shown.evidence == (
        Evidence("每步自身耗时", 1.5, 1.25, "ms", "self_time", 0.2),
        Evidence("MatMul 单次耗时", 2.0, None, "ms/步", "operator_mean"),
        Evidence("my own name", 3.0, None, "", "own"),
    )
    assert (shown.id, shown.severity, shown.confidence, shown.chronic) == ("slow-rank", "high", 0.9, False)
    assert shown.subject == Subject(ranks=(3,)) and shown.see == "kb/slow-rank"
    assert shown.advice == load_entry("slow-rank").zh.advice != load_entry("slow-rank").en.advice


def test_a_custom_rule_has_texts_of_its_own() -> None:
    texts = EntryText("{who}: {amount} of {detail}", "", "", "", ("Do less.",))
    shown = finding_in_words(finding("own", entry=KnowledgeEntry("own", texts, texts), detail="{amount}"), "en")
    assert (shown.title, shown.advice, shown.see) == ("Rank 3:  of {amount}", ("Do less.",), "own/own")


@pytest.mark.parametrize(("residual", "percent"), [(0.012345, 1.23), (-0.00001, 0.0)])
def test_the_residual_of_the_replay_in_per_cent(residual: float, percent: float) -> None:
    facts = RunFacts(
        source="", formats=(), ranks=0, hosts=0, steps=(), step_ms=StepTimes(0, 0, 0), missing_ranks=(), warnings=()
    )
    diagnosis = in_words(Examination(facts, (finding(),), residual), "en")
    assert str(diagnosis.replay.residual_percent) == str(percent)  # no minus before zero
    assert diagnosis.replay.prediction_error_percent is None and diagnosis.replay.level == "collectives"
    assert diagnosis.run == facts and [each.id for each in diagnosis.findings] == ["slow-rank"]


def test_how_well_steps_are_predicted_in_per_cent() -> None:
    facts = RunFacts(
        source="", formats=(), ranks=0, hosts=0, steps=(), step_ms=StepTimes(0, 0, 0), missing_ranks=(), warnings=()
    )
    prediction = Prediction(np.array([0.01, 0.023456, 0.05]))
    check = in_words(Examination(facts, (), 0.0, prediction=prediction, level="kernels"), "en").replay
    assert (check.prediction_error_percent, check.worst_prediction_error_percent, check.level) == (2.35, 5.0, "kernels")


@pytest.mark.parametrize(
    ("measured", "change"),
    [
        (MeasuredValue("bandwidth", 3.0, 12.0, "GB/s"), -0.75),
        (MeasuredValue("bandwidth", 3.0, 0.0, "GB/s"), None),
        (MeasuredValue("bandwidth", float("nan"), 12.0, "GB/s"), None),
        (MeasuredValue("own", 60.0, 50.0, "%", name="share"), None),
        (MeasuredValue("ranks_with_missing_data", 2, 8), None),
    ],
)
def test_evidence_tells_its_change_where_it_is_one(measured: MeasuredValue, change: float | None) -> None:
    [evidence] = finding_in_words(finding(amount=Quantity(20, "%"), evidence=(measured,)), "en").evidence
    assert evidence.change == change
