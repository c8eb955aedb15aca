"""Faults that a greater one hides: alone their repair gains next to nothing, once the other is mended it gains much."""

from __future__ import annotations

from dataclasses import replace

from paceline.advice.case import Case
from paceline.advice.finding import RECIPES, SEVERITIES, Evidence, Finding, severity_of
from paceline.analysis.fixes import together

LITTLE = 2.0
"""Per cent of gain below which a finding may be hidden; and what it must gain behind the other one."""


def priced_behind(case: Case, findings: list[Finding]) -> list[Finding]:
    """The findings; those hidden by the one that gains most say what they gain once that one is mended."""
    repairs = [finding for finding in findings if finding.gain.costs is not None and finding.id not in RECIPES]
    greatest = max(repairs, key=lambda finding: finding.gain.percent, default=None)
    if greatest is None or greatest.gain.percent < LITTLE:
        return findings
    return [_priced(case, finding, greatest) if finding is not greatest else finding for finding in findings]


def _priced(case: Case, finding: Finding, greatest: Finding) -> Finding:
    costs, first = finding.gain.costs, greatest.gain.costs
    if costs is None or first is None or finding.gain.percent >= LITTLE or finding.id in RECIPES:
        return finding
    before = greatest.gain.step_ms_fixed
    both = case.gain(together(case.replay.costs, first, costs)).step_ms_fixed
    more = 100 * (1 - both / before)
    if more < max(LITTLE, 2 * finding.gain.percent):
        return finding
    severe = min((severity_of(more), finding.at_least), key=SEVERITIES.index)
    told = Evidence("step once the first finding is mended too", round(both, 3), round(before, 3), "ms")
    return replace(finding, at_least=severe, evidence=(*finding.evidence, told))
