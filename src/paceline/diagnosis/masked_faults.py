"""Faults that a larger one masks: fixing one of them alone gains little, because the larger one still decides the step."""

from __future__ import annotations

from dataclasses import replace

from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import SEVERITIES
from paceline.diagnosis.rule_finding import RECIPES, MeasuredValue, RuleFinding, severity_of
from paceline.replay.fixes import combine_fixes

MASKED_PERCENT = 2.0
"""A finding that gains less than this may be masked; it is, if it gains at least this once the top one is fixed."""


def price_after_fixing_top(context: DiagnosisContext, findings: list[RuleFinding]) -> list[RuleFinding]:
    """The findings; masked ones carry the step time with the top finding and themselves fixed, and its severity."""
    repairs = [
        finding
        for finding in findings
        if finding.gain.costs is not None and finding.chronic and finding.id not in RECIPES
    ]
    top = max(repairs, key=lambda finding: finding.gain.percent, default=None)
    if top is None or top.gain.percent < MASKED_PERCENT:
        return findings
    return [finding if finding is top else _priced(context, finding, top) for finding in findings]


def _priced(context: DiagnosisContext, finding: RuleFinding, top: RuleFinding) -> RuleFinding:
    costs, top_costs = finding.gain.costs, top.gain.costs
    if costs is None or top_costs is None or finding.gain.percent >= MASKED_PERCENT or finding.id in RECIPES:
        return finding
    if not finding.chronic:
        return finding  # priced by the steps it happens in, not by the typical one
    before = top.gain.step_ms_fixed
    both = context.gain(combine_fixes(context.replay.costs, top_costs, costs)).step_ms_fixed
    percent = 100 * (1 - both / before)
    if percent < max(MASKED_PERCENT, 2 * finding.gain.percent):
        return finding
    severity = min((severity_of(percent), finding.min_severity), key=SEVERITIES.index)
    measurement = MeasuredValue("step_after_first_fix", round(both, 3), round(before, 3), "ms")
    return replace(finding, min_severity=severity, evidence=(*finding.evidence, measurement))
