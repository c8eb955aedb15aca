"""Ranks that need more time for themselves than their peers: who, and why.

The trigger is own time (never waiting) over many steps. Then the reason is looked for, from the most specific: a lower
clock frequency, one slow operator, launch gaps or input, a whole host, else the card itself.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from paceline.advice.case import Case
from paceline.advice.finding import Evidence, Finding, Subject
from paceline.analysis.fixes import like_peers
from paceline.analysis.peers import nan_median
from paceline.tables import INPUT_WAIT

SLOWER_CLOCK = 0.97
OPERATOR_SHARE = 0.7
"""One operator explains a slow rank when it holds at least this share of what its kernels take longer …"""
EXPLAINED = 0.5
"""… and this share of what the rank does."""
HOST_SHARE = 0.75
SHADOW = 0.2
"""Ranks with less than this share of the worst rank's excess are not named beside it."""


@dataclass(frozen=True)
class Culprit:
    place: int
    reason: str
    detail: str = ""
    operators: tuple[str, ...] = ()
    slower: float = 0.0
    """How much longer the operator takes than on the peers, as a share."""


def slow_computing(case: Case) -> list[Finding]:
    slow = case.excess.habitual()
    if not slow:
        return []
    # What a rank makes others wait is told from their work only so well: the little they have more may be its shadow.
    slow = [place for place in slow if case.excess.usual[place] >= SHADOW * case.excess.usual[slow[0]]]
    hosts = _whole_hosts(case, slow)
    findings = [_host_finding(case, host, places) for host, places in hosts.items()]
    covered = {place for places in hosts.values() for place in places}
    alike: dict[tuple[str, str, tuple[str, ...]], list[Culprit]] = defaultdict(list)
    for place in slow:
        if place not in covered:
            culprit = _explain(case, place)
            alike[culprit.reason, culprit.detail, culprit.operators].append(culprit)
    return findings + [_rank_finding(case, culprits) for culprits in alike.values()]


def _whole_hosts(case: Case, slow: list[int]) -> dict[str, list[int]]:
    """Hosts most of whose ranks are slow while most of the other hosts' are not."""
    members: dict[str, list[int]] = defaultdict(list)
    for place, where in enumerate(case.places):
        if where.host:
            members[where.host].append(place)
    if len(members) < 2:
        return {}
    return {
        host: [place for place in places if place in slow]
        for host, places in members.items()
        if len(places) > 1 and sum(place in slow for place in places) >= HOST_SHARE * len(places)
    }


def _explain(case: Case, place: int) -> Culprit:
    frequency = _frequency(case, place)
    if frequency:
        return Culprit(place, "frequency-drop", frequency)
    operator = _operator(case, place)
    if operator:
        return Culprit(place, "slow-operator", operators=(operator[0],), slower=operator[1])
    kind = _outside_computing(case, place)
    return Culprit(place, kind or "slow-rank")


def _frequency(case: Case, place: int) -> str:
    """AI Core frequency clearly below that of the peers: "1,440 MHz of 1,800"."""
    rows = case.rows("SELECT rank, avg(value) FROM counters WHERE name = 'AI Core Freq' AND value > 0 GROUP BY rank")
    readings = dict(rows)
    mine = readings.get(case.places[place].rank)
    others = [value for rank, value in rows if rank != case.places[place].rank]
    if mine is None or not others or mine >= SLOWER_CLOCK * float(np.median(others)):
        return ""
    return f"{mine:,.0f}/{float(np.median(others)):,.0f} MHz"


def _operator(case: Case, place: int) -> tuple[str, float] | None:
    """The operator type that holds most of the excess, and by what share it is slower than on the peers."""
    peers = next(ranks for ranks in case.classes if place in ranks)
    ranks = ", ".join(str(case.places[peer].rank) for peer in peers)
    rows = case.rows(
        f"""
        WITH types AS (
            SELECT rank, type, sum(duration) AS time, count(*) AS count FROM kernels
            WHERE rank IN ({ranks}) AND type IS NOT NULL AND core IS DISTINCT FROM 'COMMUNICATION' GROUP BY rank, type
        ),
        usual AS (SELECT type, median(time) AS time, median(time / count) AS each FROM types GROUP BY type)
        SELECT type, types.time - usual.time, (types.time / types.count) / usual.each FROM types JOIN usual USING (type)
        WHERE rank = {case.places[place].rank}
        """
    )
    total = sum(max(0.0, float(more)) for _, more, _ in rows)
    slower = [
        (float(more), str(kind), float(ratio) - 1) for kind, more, ratio in rows if float(ratio) > 1.05 and more > 0
    ]
    if not total or not slower or len(slower) > max(1, len(rows) // 4):
        return None
    more, kind, share = max(slower)
    if more < OPERATOR_SHARE * total:
        return None
    steps = case.rows(f"SELECT greatest(1, count(DISTINCT step)) FROM kernels WHERE rank = {case.places[place].rank}")
    own = nan_median(case.own)[place] - nan_median(case.excess.reference)[place]
    return (kind, share) if more / float(steps[0][0]) >= EXPLAINED * own else None


def _outside_computing(case: Case, place: int) -> str:
    """host-bound or input-bound when the excess is not in computing."""
    free, data = case.matrix("free"), case.matrix(INPUT_WAIT)
    peers = [peer for peer in next(ranks for ranks in case.classes if place in ranks) if peer != place]
    if not peers:
        return ""
    more_own, more_free, more_data = (
        nan_median(values)[place] - float(np.median(nan_median(values)[peers])) for values in (case.own, free, data)
    )
    if more_data >= 0.6 * more_own:
        return "input-bound"
    return "host-bound" if more_free >= 0.6 * more_own else ""  # nan, where it is unknown, is not


def _rank_finding(case: Case, culprits: list[Culprit]) -> Finding:
    places = [culprit.place for culprit in culprits]
    reason = culprits[0].reason
    amount, _, detail = culprits[0].detail.partition("/")
    return Finding(
        id=reason,
        subject=Subject(ranks=case.ranks_of(places), hosts=case.hosts_of(places), operators=culprits[0].operators),
        gain=case.gain(like_peers(case.replay, case.replay.costs, places, case.excess)),
        confidence=_confidence(case, places),
        amount=_amount(case, culprits, amount),
        detail=detail,
        evidence=_evidence(case, places),
        at_least="low",  # slower than its peers, even if others hide it today
    )


def _amount(case: Case, culprits: list[Culprit], frequency: str) -> str:
    """A frequency, a share of the step for what is waited for, else how much slower than the peers."""
    reason, places = culprits[0].reason, [culprit.place for culprit in culprits]
    if reason == "slow-operator":
        return f"{100 * max(culprit.slower for culprit in culprits):.0f} %"
    if reason == "frequency-drop":
        return f"{frequency} MHz"
    if reason in ("input-bound", "host-bound"):
        more = nan_median(case.own)[places] - nan_median(case.excess.reference)[places]
        return f"{100 * float(more.max()) / max(1.0, case.step_ms * 1e6):.0f} %"
    return f"{100 * float(case.excess.usual[places].max()):.0f} %"


def _host_finding(case: Case, host: str, places: list[int]) -> Finding:
    return Finding(
        id="slow-host",
        subject=Subject(ranks=case.ranks_of(places), hosts=(host,)),
        gain=case.gain(like_peers(case.replay, case.replay.costs, places, case.excess)),
        confidence=_confidence(case, places),
        amount=f"{100 * float(np.median(case.excess.usual[places])):.0f} %",
        evidence=_evidence(case, places),
        at_least="low",  # slower than its peers, even if others hide it today
    )


def _confidence(case: Case, places: list[int]) -> float:
    """Share of steps in which all of them exceed half the threshold, times how far they stand out of the noise."""
    over = case.excess.relative[places] > case.excess.threshold / 2
    known = ~np.isnan(case.excess.relative[places])
    share = float(over.sum() / max(1, known.sum()))
    margin = float(np.min(case.excess.usual[places])) / max(case.excess.threshold, 1e-9)
    # Where single steps prove little, losing nearly all of them still does.
    stubborn = 1 - 100 * float(np.max(case.excess.chance[places]))
    return round(float(min(0.99, max(share * (1 - 0.5 ** (1 + margin)), min(0.95, stubborn)))), 2)


def _evidence(case: Case, places: list[int]) -> tuple[Evidence, ...]:
    worst = max(places, key=lambda place: float(case.excess.usual[place]))
    own = float(nan_median(case.own)[worst]) / 1e6
    reference = float(nan_median(case.excess.reference)[worst]) / 1e6
    events = case.line.events
    shared = np.flatnonzero((events.rank == worst) & (events.members[events.instance] > 1))
    last = float(np.mean(events.start[shared] >= events.last_start[events.instance[shared]])) if len(shared) else 0.0
    return (
        Evidence("own time a step", round(own, 3), round(reference, 3), "ms"),
        Evidence("last to arrive", round(100 * last, 1), None, "% of its collectives"),
    )
