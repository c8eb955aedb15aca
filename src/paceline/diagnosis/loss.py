"""The loss of a run in the words of a diagnosis: which findings are its faults, and what no finding names."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from paceline.core.schema import INPUT_WAIT
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import UNEXPLAINED, LossPart, RunFacts
from paceline.diagnosis.rule_finding import RECIPES, RuleFinding
from paceline.metrics.steps import KNOWN, Floats, shares_of
from paceline.replay import loss

MOST_FAULTS = 6
UNTIMED = "exposed"
"""Communication that nothing hides as the step table says it, where no collective was recorded."""
RECIPE_CAUSES = frozenset({"communication", "bubble", UNTIMED})
"""What healthy communication exposes, and what the schedule leaves empty: another recipe may help, nothing is broken."""


def with_loss(facts: RunFacts, context: DiagnosisContext, ranked: Sequence[RuleFinding]) -> RunFacts:
    """The facts with the mean step split. `ranked` are all findings, in the order they are shown."""
    if not len(context.timeline.steps) or not context.replay.measured.step_time or not _device_is_known(context):
        return facts
    numbers = [number for number, finding in enumerate(ranked) if _is_fault(finding)][:MOST_FAULTS]
    faults = [(ranked[number].id, costs) for number in numbers if (costs := ranked[number].gain.costs) is not None]
    account = loss.account(
        context.replay, faults, classes=context.peer_groups, input_wait=np.nan_to_num(context.matrix(INPUT_WAIT))
    )
    account = _with_untimed_communication(context, account)
    parts = [_part(part, numbers[place] if place < len(faults) else None) for place, part in enumerate(account.parts)]
    now, told = _mean_ms(account.measured), _adding_up(account, parts)
    return msgspec.structs.replace(
        facts,
        mean_step_ms=now,
        best_step_ms=_mean_ms(account.best),
        open_percent=round(100 * sum(part.ms for part in told if part.is_open) / now, 2),
        loss=tuple(told),
    )


def _device_is_known(context: DiagnosisContext) -> bool:
    """Whether what the devices did was recorded: what is not known cannot be lost, nor be left as computing."""
    return shares_of(context.performance.rank_parts).get("unknown", 0.0) < KNOWN


def _with_untimed_communication(context: DiagnosisContext, account: loss.Loss) -> loss.Loss:
    """What is left beside computing is communication up to what the step table says, where no event shows any."""
    if not context.timeline.is_end.all():
        return account
    computing, exposed = (_mean_of_ranks(context.matrix(column)) for column in ("computing", "exposed"))
    share = np.clip(account.best - computing, 0.0, exposed)
    if not share.any():
        return account
    *others, rest = account.parts
    return loss.Loss(account.measured, account.best - share, (*others, loss.LossPart(UNTIMED, share), rest))


def _mean_of_ranks(values: Floats) -> Floats:
    """Per step; 0 where no rank knows."""
    known = (~np.isnan(values)).sum(axis=0)
    means: Floats = np.nansum(values, axis=0) / np.maximum(1, known)
    return means


def _is_fault(finding: RuleFinding) -> bool:
    """Whatever it gains alone: what a greater fault hides costs its share too."""
    return finding.gain.costs is not None and finding.id not in RECIPES


def _part(part: loss.LossPart, finding: int | None) -> LossPart:
    return LossPart(
        cause=part.cause,
        ms=_mean_ms(part.share),
        fixable=part.cause not in RECIPE_CAUSES and part.cause != UNEXPLAINED,
        finding=finding,
        alone_ms=None if part.alone is None else _mean_ms(part.alone),
        by_step=tuple(round(float(each) / 1e6, 3) for each in part.share),
    )


def _adding_up(account: loss.Loss, parts: list[LossPart]) -> list[LossPart]:
    """Rounding goes to what is unexplained, so that the printed numbers add up too."""
    *others, rest = parts
    lost = _mean_ms(account.measured) - _mean_ms(account.best)
    unexplained = _rounded(lost - sum(part.ms for part in others))
    return [*others, msgspec.structs.replace(rest, ms=unexplained)]


def _mean_ms(values: Floats) -> float:
    return _rounded(float(np.mean(values)) / 1e6)


def _rounded(ms: float) -> float:
    return round(ms, 3) + 0.0  # + 0.0: no minus before zero
