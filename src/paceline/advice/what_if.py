"""Fixes by name, for the command line: rank:5, host:node1, link:3-4, stages, overlap, input."""

from __future__ import annotations

import numpy as np

from paceline.advice.case import Case
from paceline.analysis.fixes import balanced, faster_transfers, like_peers, sooner
from paceline.analysis.replay import Costs
from paceline.errors import UsageError
from paceline.tables import INPUT_WAIT

_POSSIBLE = "rank:N, host:NAME, link:SRC-DST, stages, overlap, input"


def apply_fix(case: Case, costs: Costs, text: str) -> Costs:
    """The costs with one more fault mended."""
    kind, _, what = text.partition(":")
    if kind == "rank" and what.isdecimal():
        return _ranks(case, costs, [i for i, place in enumerate(case.places) if place.rank == int(what)], text)
    if kind == "host" and what:
        return _ranks(case, costs, [i for i, place in enumerate(case.places) if place.host == what], text)
    if kind == "link" and what.count("-") == 1 and what.replace("-", "").isdecimal():
        return _link(case, costs, *(int(end) for end in what.split("-")))
    if text == "stages":
        stages = [
            tuple(np.flatnonzero(case.stages == stage).tolist()) for stage in np.unique(case.stages) if stage >= 0
        ]
        return balanced(case.replay, costs, stages) if len(stages) > 1 else costs
    if text == "overlap":
        shared = np.flatnonzero(case.line.events.members > 1)
        return faster_transfers(costs, shared, 0.0)
    if text == "input":
        wait = np.nan_to_num(case.matrix(INPUT_WAIT))
        return sooner(case.replay, costs, wait)
    raise UsageError(f"--fix {text}: not a fix", hint=f"possible: {_POSSIBLE}")


def _ranks(case: Case, costs: Costs, places: list[int], text: str) -> Costs:
    if not places:
        raise UsageError(f"--fix {text}: this run has no such rank or host")
    return like_peers(case.replay, costs, places, case.excess)


def _link(case: Case, costs: Costs, src: int, dst: int) -> Costs:
    """Collectives over this link at the pace of the same collectives elsewhere."""
    events = case.line.events
    ends = [i for i, place in enumerate(case.places) if place.rank in (src, dst)]
    both = [
        instance for instance in np.unique(events.instance[np.isin(events.rank, ends)]).tolist()
        if set(ends) <= set(events.rank[events.instance == instance].tolist())
    ]  # fmt: skip
    if len(ends) < 2 or not both:
        raise UsageError(f"--fix link:{src}-{dst}: no collective was recorded between these ranks")
    chosen = np.array(both, dtype=np.int64)
    kind = np.array([hash((str(events.op[row]) in ("send", "receive") or events.op[row], int(events.bytes[row]) >> 12))
                     for row in events.first_row])  # fmt: skip
    factor = np.ones(len(chosen))
    for place, instance in enumerate(chosen.tolist()):
        peers = np.flatnonzero((kind == kind[instance]) & (events.members == events.members[instance]))
        others = np.setdiff1d(peers, chosen)
        if len(others) and events.transfer[instance]:
            factor[place] = min(1.0, float(np.median(events.transfer[others]) / events.transfer[instance]))
    return faster_transfers(costs, chosen, factor)
