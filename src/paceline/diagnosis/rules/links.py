"""Slow links, network cards and networks: from what links moved (rules/network.py), or from whole groups.

Where a format records no links, components between hosts are found by the groups that are slow (rules/group_network.py). Inside
hosts, and where hosts or sizes are unknown, the transfer times of groups that run the same collective are compared.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.diagnosis.confidence import nearer
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import DirectedLink, Subject
from paceline.diagnosis.rule import rule
from paceline.diagnosis.rule_finding import MeasuredValue, Quantity, RuleFinding
from paceline.diagnosis.rules.group_network import slow_groups
from paceline.diagnosis.rules.network import slow_components
from paceline.metrics.network.link_traffic import FEW_BYTES, has_links
from paceline.replay.fixes import at_peer_speed, combine_fixes, scale_transfers

LONG_NS = 200_000
"""Where sizes are unknown, transfers shorter than this are taken for latency."""
LEAST_GAIN = 0.003
"""Share of a step that a link of a slow rank must cost by itself."""
MUCH_MORE = 4.0
"""No stage has this many times the parameters of another, embedding included."""


@rule(priority=40)
def slow_links(context: DiagnosisContext) -> list[RuleFinding]:
    if has_links(context.run):
        return slow_components(context)
    components = [each for each in slow_groups(context) if not _is_symptom(context, each)]
    return components + _slower_than_others(context, inside_only=bool(components))


def _slower_than_others(context: DiagnosisContext, *, inside_only: bool) -> list[RuleFinding]:
    """Groups whose transfers take longer than other groups' of the same collective; all of them, or those inside hosts."""
    events = context.timeline.events
    shared = np.flatnonzero(events.members > 1)
    if not len(shared):
        return []
    kinds: dict[tuple[str, int, int], dict[tuple[int, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    members = _members(context)
    payload = _payload(context, np.arange(events.instances))
    for instance in shared.tolist():
        row = int(events.first_row[instance])
        size = int(payload[instance])  # what its busiest member moves: experts of others get fewer tokens
        if context.timeline.is_end[row] or (size < FEW_BYTES if size >= 0 else events.transfer[instance] < LONG_NS):
            continue
        op = "p2p" if events.op[row] in ("send", "receive") else str(events.op[row])
        ranks = members[instance]
        span = len(context.hosts_of(list(ranks)))
        if inside_only and span > 1:
            continue
        # Where no size was recorded, the place in the program says that it is the same.
        alike = round(np.log2(size) * 4) if size >= 0 else -1 - int(context.timeline.place[row])
        kinds[op, len(ranks), alike * 10 + min(span, 2)][ranks].append(instance)
    slow = [found for groups in kinds.values() for found in _slow_of_kind(context, groups)]
    by_ranks: dict[tuple[int, ...], list[_SlowTransfers]] = defaultdict(list)
    for found in slow:
        by_ranks[found.ranks].append(found)
    findings = [_group_finding(context, kinds_of_it) for kinds_of_it in by_ranks.values()]
    return [finding for finding in findings if not _is_symptom(context, finding)]


def _is_symptom(context: DiagnosisContext, finding: RuleFinding) -> bool:
    """Whether a slow rank takes part and nothing is left to gain once it is fixed: it is late with its messages too."""
    slow = context.excess.persistent()
    ranks = set(finding.subject.ranks) or set(context.global_ranks(list(range(len(context.ranks)))))
    if finding.gain.costs is None or not ranks.intersection(context.global_ranks(list(slow))):
        return False
    costs = context.replay.costs
    fixed = at_peer_speed(context.replay, costs, slow, context.excess)
    before = context.gain(fixed).step_ms_fixed
    after = context.gain(combine_fixes(costs, fixed, finding.gain.costs)).step_ms_fixed
    return before - after < LEAST_GAIN * before


@dataclass(frozen=True)
class _SlowTransfers:
    """Transfers of one kind in one group that take longer than elsewhere; times in ns."""

    ranks: tuple[int, ...]
    """Places."""
    instances: NDArray[np.int64]
    typical: float
    reference: float


def _members(context: DiagnosisContext) -> list[tuple[int, ...]]:
    events = context.timeline.events
    order = np.argsort(events.instance, kind="stable")
    splits = np.flatnonzero(np.diff(events.instance[order])) + 1
    return [tuple(sorted(part.tolist())) for part in np.split(events.rank[order], splits)]


def _slow_of_kind(context: DiagnosisContext, groups: dict[tuple[int, ...], list[int]]) -> list[_SlowTransfers]:
    if len(groups) < 3:
        return []
    transfer = context.timeline.events.transfer
    typical = {ranks: float(np.median(transfer[instances])) for ranks, instances in groups.items()}
    fast = np.sort(np.array(list(typical.values())))[: (len(typical) + 1) // 2]
    reference = float(np.median(fast))
    noise = 1.4826 * float(np.median(np.abs(fast - reference))) / reference if reference else 0.0
    slow = [ranks for ranks, time in typical.items() if reference and time > reference * max(1.25, 1 + 6 * noise)]
    if not slow or len(slow) > max(1, len(groups) // 3):
        return []
    if not _has_sizes(context, groups[slow[0]]):
        # A stage may move more; that a group of the same stages does not proves otherwise, or that nobody moves so much more.
        usual = {_stages_of(context, ranks) for ranks in groups if ranks not in slow}
        slow = [
            ranks for ranks in slow if _stages_of(context, ranks) in usual or typical[ranks] > MUCH_MORE * reference
        ]
    return [_SlowTransfers(ranks, np.array(groups[ranks], dtype=np.int64), typical[ranks], reference) for ranks in slow]


def _group_finding(context: DiagnosisContext, found: list[_SlowTransfers]) -> RuleFinding:
    """All kinds of transfers that are slow in a group have one cause."""
    costs = context.replay.costs
    for kind in found:
        costs = scale_transfers(costs, kind.instances, kind.reference / kind.typical)
    worst = max(found, key=lambda kind: len(kind.instances) * (kind.typical - kind.reference))
    sized = _has_sizes(context, worst.instances.tolist())
    size = float(np.median(_payload(context, worst.instances)))
    named, hosts = context.global_ranks(list(worst.ranks)), {info.rank: info.host for info in context.ranks}
    ring = list(zip(named, (*named[1:], named[0]), strict=True))[: 1 if len(named) == 2 else None]
    crossing = [(a, b) for a, b in ring if hosts.get(a) != hosts.get(b)] or ring
    return RuleFinding(
        id="slow-link",
        subject=Subject(
            ranks=named,
            links=tuple(DirectedLink(a, b, "") for a, b in crossing),
            hosts=context.hosts_of(list(worst.ranks)),
        ),
        gain=context.gain(costs),
        confidence=_confidence(context, found),
        amount=_speed(size, worst.typical) if sized else Quantity(worst.typical / 1e6, "ms", ".2f"),
        detail=_speed(size, worst.reference) if sized else Quantity(worst.reference / 1e6, "ms", ".2f"),
        evidence=(
            MeasuredValue("transfer_time", round(worst.typical / 1e6, 3), round(worst.reference / 1e6, 3), "ms"),
        ),
        min_severity="low",
    )


def _confidence(context: DiagnosisContext, found: list[_SlowTransfers]) -> float:
    """Over the transfers of the group."""
    transfer = context.timeline.events.transfer
    over = [(transfer[kind.instances] - kind.reference) / (kind.typical - kind.reference) for kind in found]
    return nearer(np.concatenate(over), [], at=1.0)


def _speed(size: float, time: float) -> Quantity:
    """Bytes over ns."""
    return Quantity(size / time, "GB/s", ".1f")


def _has_sizes(context: DiagnosisContext, instances: list[int]) -> bool:
    return bool((_payload(context, np.array(instances, dtype=np.int64)) >= 0).all())


def _stages_of(context: DiagnosisContext, ranks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({int(context.stages[rank_row]) for rank_row in ranks}))


def _payload(context: DiagnosisContext, instances: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes of the largest message any member of each collective recorded; -1 = none did."""
    events = context.timeline.events
    most = np.full(events.instances, -1, dtype=np.int64)
    np.maximum.at(most, events.instance, events.bytes)
    return most[instances]
