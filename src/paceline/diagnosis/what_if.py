"""What-if: the step time with faults fixed that are given by name: rank:5, host:node1, link:3-4, stages, overlap, input."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from paceline.core.errors import UsageError
from paceline.core.schema import INPUT_WAIT
from paceline.diagnosis.context import DiagnosisContext
from paceline.replay.fixes import at_peer_speed, balance_stages, scale_transfers, start_steps_earlier
from paceline.replay.replay import Costs
from paceline.run.run import Run

SCHEMA = "paceline.what-if/1"
_POSSIBLE = "rank:N, host:NAME, link:SRC-DST, stages, overlap, input"


class FixedStep(msgspec.Struct, frozen=True):
    """The step with this fix and all before it."""

    fix: str
    step_ms: float
    percent: float
    """Less time per step, in per cent of the measured step."""


class WhatIf(msgspec.Struct, frozen=True, tag=SCHEMA, tag_field="schema"):
    """Step times of a replay with faults fixed, one after the other."""

    step_ms: float
    """As measured, ms."""
    replayed_ms: float
    """Replayed without a fix, ms."""
    residual_percent: float
    """Replayed over measured step time, minus 1."""
    fixes: tuple[FixedStep, ...]


def what_if(run: Run, fixes: Sequence[str]) -> WhatIf:
    """Replay the run with these fixes, in this order."""
    context = DiagnosisContext(run)
    costs, fixed = context.replay.costs, []
    unchanged = context.gain(costs).step_ms_fixed
    for text in fixes:
        costs = apply_fix(context, costs, text)
        gain = context.gain(costs)
        fixed.append(FixedStep(text, gain.step_ms_fixed, gain.percent))
    residual = round(100 * context.replay.residual, 2) + 0.0  # + 0.0: no minus before zero
    return WhatIf(context.step_ms, unchanged, residual, tuple(fixed))


def apply_fix(context: DiagnosisContext, costs: Costs, text: str) -> Costs:
    """The costs with one more fault fixed."""
    kind, _, what = text.partition(":")
    if kind == "rank" and what.isdecimal():
        return _ranks(context, costs, [i for i, info in enumerate(context.ranks) if info.rank == int(what)], text)
    if kind == "host" and what:
        return _ranks(context, costs, [i for i, info in enumerate(context.ranks) if info.host == what], text)
    if kind == "link" and what.count("-") == 1 and what.replace("-", "").isdecimal():
        return _link(context, costs, *(int(end) for end in what.split("-")))
    if text == "stages":
        stages = [
            tuple(np.flatnonzero(context.stages == stage).tolist()) for stage in np.unique(context.stages) if stage >= 0
        ]
        return balance_stages(context.replay, costs, stages) if len(stages) > 1 else costs
    if text == "overlap":
        shared = np.flatnonzero(context.timeline.events.members > 1)
        return scale_transfers(costs, shared, 0.0)
    if text == "input":
        wait = np.nan_to_num(context.matrix(INPUT_WAIT))
        return start_steps_earlier(context.replay, costs, wait)
    raise UsageError(f"--fix {text}: unknown fix", hint=f"possible: {_POSSIBLE}")


def possible_fixes(context: DiagnosisContext) -> list[str]:
    """Fixes that need no name and can do something here: this run has several stages, communication, input wait."""
    can = {
        "stages": len(np.unique(context.stages[context.stages >= 0])) > 1,
        "overlap": bool((context.timeline.events.members > 1).any()),
        "input": bool((np.nan_to_num(context.matrix(INPUT_WAIT)) > 0).any()),
    }
    return [fix for fix, possible in can.items() if possible]


def _ranks(context: DiagnosisContext, costs: Costs, rank_rows: list[int], text: str) -> Costs:
    if not rank_rows:
        raise UsageError(f"--fix {text}: this run has no such rank or host")
    return at_peer_speed(context.replay, costs, rank_rows, context.excess)


def _link(context: DiagnosisContext, costs: Costs, src: int, dst: int) -> Costs:
    """Collectives over this link as fast as the same collectives elsewhere."""
    events = context.timeline.events
    ends = [i for i, info in enumerate(context.ranks) if info.rank in (src, dst)]
    both = [
        instance
        for instance in np.unique(events.instance[np.isin(events.rank, ends)]).tolist()
        if set(ends) <= set(events.rank[events.instance == instance].tolist())
    ]
    if len(ends) < 2 or not both:
        raise UsageError(f"--fix link:{src}-{dst}: no collective was recorded between these ranks")
    chosen = np.array(both, dtype=np.int64)
    kind = np.array(
        [
            hash((str(events.op[row]) in ("send", "receive") or events.op[row], int(events.bytes[row]) >> 12))
            for row in events.first_row
        ]
    )
    factor = np.ones(len(chosen))
    for number, instance in enumerate(chosen.tolist()):
        peers = np.flatnonzero((kind == kind[instance]) & (events.members == events.members[instance]))
        others = np.setdiff1d(peers, chosen)
        if len(others) and events.transfer[instance]:
            factor[number] = min(1.0, float(np.median(events.transfer[others]) / events.transfer[instance]))
    return scale_transfers(costs, chosen, factor)
