"""Links slower than links of the same transport that carry the same kind of messages.

Bandwidth is bytes / time summed over a step. A link is compared with links of its transport that carry the same
operator in groups of the same size with about the same number of bytes: a link that only carries crumbs is slow by
nature and is not compared with one that carries gigabytes. Where a format records no links, the transfer times of
groups that run the same collective are compared instead.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from paceline.advice.case import Case
from paceline.advice.finding import Evidence, Finding, Link, Subject
from paceline.analysis.fixes import faster_transfers
from paceline.analysis.link_classes import SlowLink, has_links, slow_by_class

SLOW = 0.8
"""A slow link reaches at most this share of its class."""
FEW_BYTES = 1_000_000
"""A step's traffic below this says nothing about bandwidth."""
LONG_NS = 200_000
"""Where sizes are unknown, what takes less is taken for latency."""
MUCH_MORE = 4.0
"""No stage has so many times the parameters of another, embedding included."""
PERSISTENT = 0.6


def slow_links(case: Case) -> list[Finding]:
    if not has_links(case.run):
        return _slow_groups(case)
    worst: dict[Link, SlowLink] = {}
    for found in slow_by_class(case.run, slow=SLOW, few=FEW_BYTES, often=PERSISTENT):
        link = Link(found.src, found.dst, found.transport)
        if link not in worst or found.rate / found.reference < worst[link].rate / worst[link].reference:
            worst[link] = found
    return _both_ways([_finding(case, link, found) for link, found in worst.items()])


def _both_ways(findings: list[Finding]) -> list[Finding]:
    """One cable, one finding: that of the worse direction, with both links."""
    cables: dict[tuple[frozenset[int], str], Finding] = {}
    for finding in sorted(findings, key=lambda one: -one.gain.percent):
        (link,) = finding.subject.links
        cable = frozenset((link.src, link.dst)), link.transport
        worse = cables.get(cable)
        cables[cable] = finding if worse is None else replace(
            worse, subject=replace(worse.subject, links=(*worse.subject.links, link))
        )  # fmt: skip
    return list(cables.values())


def _finding(case: Case, link: Link, traffic: SlowLink) -> Finding:
    reference = traffic.reference
    events = case.line.events
    ends = {case.places[i].rank: i for i in range(len(case.places))}
    members = np.isin(events.rank, [ends.get(link.src, -1), ends.get(link.dst, -1)])
    rows = np.flatnonzero(members & (events.tie == traffic.group))
    both = np.unique(events.instance[rows])
    hosts = case.hosts_of([ends[rank] for rank in (link.src, link.dst) if rank in ends])
    fixed = faster_transfers(case.replay.costs, both, traffic.rate / reference)
    return Finding(
        id="slow-link",
        subject=Subject(ranks=(link.src, link.dst), links=(link,), hosts=hosts),
        gain=case.gain(fixed),
        confidence=round(min(0.99, 0.6 + 0.4 * (1 - traffic.rate / reference)), 2),
        amount=f"{traffic.rate:.1f} GB/s",
        detail=f"{reference:.1f} GB/s",
        evidence=(
            Evidence("bandwidth", round(traffic.rate, 2), round(reference, 2), "GB/s"),
            Evidence("moved", round(traffic.bytes / 1e6, 1), None, "MB"),
        ),
        at_least="low",
    )


def _slow_groups(case: Case) -> list[Finding]:
    """Without recorded links: groups whose transfers take longer than other groups' of the same collective."""
    events = case.line.events
    shared = np.flatnonzero(events.members > 1)
    if not len(shared):
        return []
    kinds: dict[tuple[str, int, int], dict[tuple[int, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    members = _members(case)
    for instance in shared.tolist():
        row = int(events.first_row[instance])
        size = int(events.bytes[row])
        if case.line.is_end[row] or (size < FEW_BYTES if size >= 0 else events.transfer[instance] < LONG_NS):
            continue
        op = "p2p" if events.op[row] in ("send", "receive") else str(events.op[row])
        ranks = members[instance]
        span = len(case.hosts_of(list(ranks)))
        # Where no size was recorded, the place in the program says that it is the same.
        alike = round(np.log2(size) * 4) if size >= 0 else -1 - int(case.line.place[row])
        kinds[op, len(ranks), alike * 10 + min(span, 2)][ranks].append(instance)
    slow = [found for groups in kinds.values() for found in _slow_of_kind(case, groups)]
    by_ranks: dict[tuple[int, ...], list[_Slow]] = defaultdict(list)
    for found in slow:
        by_ranks[found.ranks].append(found)
    return [_group_finding(case, kinds_of_it) for kinds_of_it in by_ranks.values()]


@dataclass(frozen=True)
class _Slow:
    """Transfers of one kind in one group that take longer than elsewhere; times in ns."""

    ranks: tuple[int, ...]
    """Places."""
    instances: NDArray[np.int64]
    typical: float
    reference: float


def _members(case: Case) -> list[tuple[int, ...]]:
    events = case.line.events
    order = np.argsort(events.instance, kind="stable")
    splits = np.flatnonzero(np.diff(events.instance[order])) + 1
    return [tuple(sorted(part.tolist())) for part in np.split(events.rank[order], splits)]


def _slow_of_kind(case: Case, groups: dict[tuple[int, ...], list[int]]) -> list[_Slow]:
    if len(groups) < 3:
        return []
    transfer = case.line.events.transfer
    typical = {ranks: float(np.median(transfer[instances])) for ranks, instances in groups.items()}
    fast = np.sort(np.array(list(typical.values())))[: (len(typical) + 1) // 2]
    reference = float(np.median(fast))
    noise = 1.4826 * float(np.median(np.abs(fast - reference))) / reference if reference else 0.0
    slow = [ranks for ranks, time in typical.items() if reference and time > reference * max(1.25, 1 + 6 * noise)]
    if not slow or len(slow) > max(1, len(groups) // 3):
        return []
    if not _sized(case, groups[slow[0]]):
        # A stage may move more; that a group of the same stages does not proves otherwise, or that nobody moves so much more.
        usual = {_stages_of(case, ranks) for ranks in groups if ranks not in slow}
        slow = [ranks for ranks in slow if _stages_of(case, ranks) in usual or typical[ranks] > MUCH_MORE * reference]
    return [_Slow(ranks, np.array(groups[ranks], dtype=np.int64), typical[ranks], reference) for ranks in slow]


def _group_finding(case: Case, found: list[_Slow]) -> Finding:
    """All kinds of transfers that are slow in a group have one cause."""
    costs = case.replay.costs
    for kind in found:
        costs = faster_transfers(costs, kind.instances, kind.reference / kind.typical)
    worst = max(found, key=lambda kind: len(kind.instances) * (kind.typical - kind.reference))
    sized = _sized(case, worst.instances.tolist())
    size = float(np.median(_payload(case, worst.instances)))
    named, hosts = case.ranks_of(list(worst.ranks)), {place.rank: place.host for place in case.places}
    ring = list(zip(named, (*named[1:], named[0]), strict=True))[: 1 if len(named) == 2 else None]
    crossing = [(a, b) for a, b in ring if hosts.get(a) != hosts.get(b)] or ring
    return Finding(
        id="slow-link",
        subject=Subject(
            ranks=named, links=tuple(Link(a, b, "") for a, b in crossing), hosts=case.hosts_of(list(worst.ranks))
        ),
        gain=case.gain(costs),
        confidence=0.8,
        amount=f"{size / worst.typical:.1f} GB/s" if sized else f"{worst.typical / 1e6:.2f} ms",
        detail=f"{size / worst.reference:.1f} GB/s" if sized else f"{worst.reference / 1e6:.2f} ms",
        evidence=(Evidence("transfer", round(worst.typical / 1e6, 3), round(worst.reference / 1e6, 3), "ms"),),
        at_least="low",
    )


def _sized(case: Case, instances: list[int]) -> bool:
    return bool((_payload(case, np.array(instances, dtype=np.int64)) >= 0).all())


def _stages_of(case: Case, ranks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({int(case.stages[place]) for place in ranks}))


def _payload(case: Case, instances: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes of the largest message any member of each collective recorded; -1 = none did."""
    events = case.line.events
    most = np.full(events.instances, -1, dtype=np.int64)
    np.maximum.at(most, events.instance, events.bytes)
    return most[instances]
