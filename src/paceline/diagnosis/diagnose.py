"""Diagnosis: apply every rule, rank what they find, and describe what was examined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.core.errors import UsageError
from paceline.core.i18n import Language
from paceline.core.message import message
from paceline.core.text_encoding import printable
from paceline.diagnosis.context import DiagnosisContext, Floats
from paceline.diagnosis.evidence_gaps import weigh
from paceline.diagnosis.finding import Diagnosis, RunFacts, StepTimes
from paceline.diagnosis.hardware import Hardware
from paceline.diagnosis.input_evidence import with_input_evidence
from paceline.diagnosis.loss import with_loss
from paceline.diagnosis.masked_faults import price_after_fixing_top
from paceline.diagnosis.platform import platform
from paceline.diagnosis.render import in_words
from paceline.diagnosis.rule import RuleFunction, our_rules
from paceline.diagnosis.rule_finding import Examination, RuleFinding, rank_findings
from paceline.diagnosis.study import study_numbers
from paceline.metrics.flops import rank_flops
from paceline.replay.prediction import predict_steps
from paceline.run.evidence.gap import EvidenceGap
from paceline.run.run import Run

MIN_GAIN_PERCENT = 0.3
"""Findings that gain less, and have no severity of their own, are left out."""
_TABLES = (
    "ranks",
    "groups",
    "steps",
    "collectives",
    "links",
    "packets",
    "kernels",
    "counters",
    "ranks_memory",
    "host_calls",
    "idle_calls",
    "input_pipeline",
)


def diagnose(
    run: Run,
    *,
    steps: tuple[int, ...] | None = None,
    hardware: Hardware | None = None,
    custom_rules: Sequence[RuleFunction] = (),
    language: Language = "en",
) -> Diagnosis:
    """Diagnose a run, or some of its steps, in a language."""
    return in_words(examine(run, steps=steps, hardware=hardware, custom_rules=custom_rules), language)


def examine(
    run: Run,
    *,
    steps: tuple[int, ...] | None = None,
    hardware: Hardware | None = None,
    custom_rules: Sequence[RuleFunction] = (),
) -> Examination:
    """Apply all rules, the user's own after ours; `render.in_words` makes a diagnosis of the result."""
    run.load(_TABLES)
    context = DiagnosisContext(run, steps, hardware=hardware)
    if not len(context.timeline.steps):
        raise UsageError(
            f"{run.source}: no step and no collective was recorded" + (" in these steps" if steps else ""),
            hint="list the recorded steps: paceline show SOURCE steps" if steps else "record at least one whole step",
        )
    if not len(context.timeline.place):
        raise UsageError(
            f"{run.source}: steps have durations only; without collectives or begins of steps ranks cannot be compared",
            hint="look at the steps: paceline show SOURCE steps; record with profiler level 1 (Level1) to diagnose",
        )
    rules: list[RuleFunction] = [*our_rules(), *custom_rules]
    found = [finding for rule in rules for finding in rule(context)]
    kept = [finding for finding in price_after_fixing_top(context, found) if _is_reported(finding)]
    complete = [_with_coverage(with_input_evidence(context, finding), context) for finding in kept]
    contradictions = _contradictions(context)
    weighed = weigh(complete, [*run.gaps, *contradictions])
    facts = _run_facts(context)
    ranked = rank_findings(list(weighed.findings))
    return Examination(
        with_loss(facts, context, ranked),
        ranked,
        context.replay.residual,
        study_numbers(run),
        predict_steps(context.replay),
        context.timeline.level,
        platform(run),
        warnings=(
            *weighed.withheld,
            *(gap.said for gap in contradictions),
            *(warning.sentence for warning in run.warnings),
        ),
        withheld=weighed.withheld,
    )


def _is_reported(finding: RuleFinding) -> bool:
    """A custom rule is always reported: who wrote it wants to hear from it."""
    return finding.gain.percent >= MIN_GAIN_PERCENT or finding.min_severity != "info" or finding.entry is not None


def _with_coverage(finding: RuleFinding, context: DiagnosisContext) -> RuleFinding:
    all_ranks = {info.rank for info in context.ranks}
    return replace(finding, covers_all_ranks=len(all_ranks) > 1 and all_ranks <= set(finding.subject.ranks))


def _mfu(context: DiagnosisContext) -> float | None:
    """Median over ranks, None where the cards' peak rate or their work is unknown."""
    if context.hardware.peak_rate is None:
        return None
    chosen = f"step IN ({', '.join(map(str, context.timeline.steps.tolist()))})"
    known = rank_flops(context.run, chosen, context.hardware.peak_rate).numbers["mfu"]
    return round(float(np.median(known)), 4) if len(known) else None


def _contradictions(context: DiagnosisContext) -> list[EvidenceGap]:
    """That events of different collectives were taken for one, as far as the graph of the run shows it."""
    cut = context.replay.contradictions
    if not cut:
        return []
    return [EvidenceGap("conflict", (), message("contradictions", n=cut))]


def _run_facts(context: DiagnosisContext) -> RunFacts:
    """Without warnings: they are put into words with the findings."""
    measured = context.replay.measured.step_times / 1e6
    missing = context.rows("SELECT rank FROM ranks WHERE format IS NULL ORDER BY rank")
    return RunFacts(
        source=printable(context.run.source),
        formats=tuple(context.run.formats),
        ranks=len(context.ranks),
        hosts=len({info.host for info in context.ranks if info.host}),
        steps=tuple(context.timeline.steps.tolist()),
        step_ms=_step_times(measured),
        mfu=_mfu(context),
        missing_ranks=tuple(rank for (rank,) in missing),
        warnings=(),
    )


def _step_times(measured: Floats) -> StepTimes:
    if not len(measured):
        return StepTimes(None, None, None)
    return StepTimes(*(round(float(of(measured)), 3) for of in (np.median, np.min, np.max)))
