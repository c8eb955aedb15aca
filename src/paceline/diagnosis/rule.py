"""A rule: a function from the context of a run to findings, registered as an entry point of the group `paceline.rules`.

    @rule(priority=500)
    def cold_cards(context: DiagnosisContext) -> list[RuleFinding]: ...

Our rules are always applied; a rule of another package only when `paceline diagnose --rules entry:NAME` names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.core.plugins import load_entry_point, our_plugins
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.rule_finding import RuleFinding

ENTRY_POINTS = "paceline.rules"
RuleFunction = Callable[[DiagnosisContext], list[RuleFinding]]


@dataclass(frozen=True)
class Rule:
    """Rules are applied by ascending priority; it decides the order of findings that gain the same."""

    find: RuleFunction
    priority: int

    def __call__(self, context: DiagnosisContext) -> list[RuleFinding]:
        return self.find(context)


def rule(*, priority: int) -> Callable[[RuleFunction], Rule]:
    """Make a rule of a function."""
    return lambda function: Rule(function, priority)


def our_rules() -> list[Rule]:
    """The rules that Paceline registers itself, by priority."""
    loaded: list[Rule] = [load_entry_point(point) for point in our_plugins(ENTRY_POINTS).values()]
    return sorted(loaded, key=lambda each: each.priority)
