"""All rules together: what is kept, and what is said of the run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.core.errors import UsageError
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.diagnose import diagnose, examine
from paceline.diagnosis.finding import StepTimes, Subject
from paceline.diagnosis.hardware import default_hardware
from paceline.diagnosis.knowledge import load_entry
from paceline.diagnosis.render import in_words
from paceline.diagnosis.rule_finding import PredictedGain, RuleFinding
from paceline.run.read_warning import ReadWarning
from support.small_cluster import MS, slower, steady_cluster


def test_a_healthy_run_has_no_findings_and_its_facts_are_told() -> None:
    made = steady_cluster([[100, 101, 102]] * 4, transfer=1, host=["a", "a", "b", None])
    made.ranks.append({"rank": 9, "format": None})
    run = made.run()
    run.warnings = [ReadWarning(9, "a\udcff", "cannot be read")]
    found = examine(run)
    assert [finding.id for finding in found.findings] == ["data-incomplete"] and found.residual == 0
    facts = found.run
    assert (facts.source, facts.formats, facts.ranks, facts.hosts) == ("made/by/hand", ("made by hand",), 4, 2)
    assert facts.steps == (1, 2, 3) and facts.step_ms == StepTimes(102.0, 101.0, 103.0)
    assert facts.missing_ranks == (9,) and facts.mfu is None
    assert in_words(found, "en").run.warnings == ("rank 9: a\\udcff: cannot be read",)
    assert in_words(found, "zh").run.warnings == ("9 号卡：a\\udcff：cannot be read",)


def test_the_slowest_card_is_named_in_words() -> None:
    diagnosis = diagnose(steady_cluster(slower(8, 4, {3: 120}), transfer=1).run(), language="zh")
    [finding] = diagnosis.findings
    assert finding.title == "3 号卡 的计算比同类卡慢 20 %"


@pytest.fixture
def no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only custom rules, because all of ours take long."""
    monkeypatch.setattr("paceline.diagnosis.diagnose.our_rules", list)


def rule(percent: float, **more: object) -> RuleFinding:
    subject = Subject(ranks=more.pop("ranks", (0,)))  # type: ignore[arg-type]
    return RuleFinding("slow-rank", subject, PredictedGain(100, 100 - percent), 0.9, **more)  # type: ignore[arg-type]


@pytest.mark.usefixtures("no_rules")
@pytest.mark.parametrize(
    ("finding", "is_kept"),
    [
        (rule(0.31), True),
        (rule(0.29), False),
        (rule(0.0, min_severity="low"), True),
        (rule(0.0, entry=load_entry("jitter")), True),
    ],
)
def test_findings_that_gain_less_than_0_3_per_cent_are_left_out(finding: RuleFinding, is_kept: bool) -> None:
    run = steady_cluster([[100, 100]] * 2, transfer=1).run()
    assert bool(examine(run, custom_rules=[lambda context: [finding]]).findings) is is_kept


@pytest.mark.usefixtures("no_rules")
@pytest.mark.parametrize(("ranks", "covers"), [((0, 1), True), ((0, 1, 7), True), ((0,), False)])
def test_a_finding_about_all_ranks_says_so(ranks: tuple[int, ...], covers: bool) -> None:
    run = steady_cluster([[100, 100]] * 2, transfer=1).run()
    [found] = examine(run, custom_rules=[lambda context: [rule(1, ranks=ranks)]]).findings
    assert found.covers_all_ranks is covers


@pytest.mark.usefixtures("no_rules")
def test_the_only_rank_of_a_run_is_named() -> None:
    run = steady_cluster([[100, 100]], transfer=1).run()
    [found] = examine(run, custom_rules=[lambda context: [rule(1)]]).findings
    assert not found.covers_all_ranks


@pytest.mark.usefixtures("no_rules")
def test_findings_are_ranked() -> None:
    run = steady_cluster([[100, 100]] * 2, transfer=1).run()
    found = examine(run, custom_rules=[lambda context: [rule(1)], lambda context: [rule(2)]]).findings
    assert [round(finding.gain.percent, 3) for finding in found] == [2, 1]


@pytest.mark.usefixtures("no_rules")
def test_some_steps_and_other_hardware() -> None:
    seen: list[DiagnosisContext] = []
    hardware = default_hardware()
    run = steady_cluster([[100, 110, 120]] * 2).run()
    found = examine(run, steps=(2, 3), hardware=hardware, custom_rules=[lambda context: seen.append(context) or []])
    assert found.run.steps == (2, 3) and found.run.step_ms == StepTimes(125.0, 120.0, 130.0)
    assert seen[0].hardware is hardware


@pytest.mark.usefixtures("no_rules")
def test_mfu_is_the_median_over_ranks() -> None:
    made = steady_cluster([[90, 90]] * 3)  # steps of 100 ms
    kernels = [
        {
            "rank": rank,
            "step": step,
            "type": "MatMul",
            "core": "AI_CORE",
            "duration": MS,
            "start": 0,
            "input_shapes": f"1000,1000;1000,{width}",
            "output_shapes": f"1000,{width}",
        }
        for rank, width in enumerate((1000, 3000, 2000))
        for step in (1, 2, 9)
    ]
    hardware = replace(default_hardware(), generation="X", peak_tflops={"X": 0.1})
    # Rank 2: 2 · 1000 · 1000 · 2000 FLOPs in 0.1 s of 10^11 FLOP/s.
    assert examine(made.run(kernels=kernels), hardware=hardware).run.mfu == 0.4
    assert examine(made.run(), hardware=hardware).run.mfu is None


def test_a_run_without_steps() -> None:
    with pytest.raises(UsageError, match=r"made/by/hand: no step and no collective was recorded$") as error:
        examine(steady_cluster([[], []]).run())
    assert error.value.hint == "record at least one whole step"
    with pytest.raises(UsageError, match=r"no step and no collective was recorded in these steps$") as error:
        examine(steady_cluster([[100]]).run(), steps=(7,))
    assert error.value.hint == "list the recorded steps: paceline show SOURCE steps"
