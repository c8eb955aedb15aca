"""What is slow in the network where only whole collectives were recorded: components that explain which groups are slow.

Each finding is priced by a replay in which the collectives of all groups over the component are as fast as their reference.
Where nothing can be compared with the groups that use it, they are taken to be slowed by the same factor, but not faster
repaired than the fastest group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from paceline.diagnosis.components.groups import GroupFault, group_faults
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import DirectedLink, Subject
from paceline.diagnosis.hardware import TransportProfile, default_hardware
from paceline.diagnosis.rule_finding import MeasuredValue, NetworkArea, PredictedGain, Quantity, RuleFinding
from paceline.metrics.network.group_traffic import GroupExcess, group_excess, group_traffic
from paceline.metrics.network.link_model import HARDWARE
from paceline.metrics.network.link_traffic import Floats
from paceline.replay.fixes import scale_transfers

IDS = {"nic": "slow-nic", "card": "slow-nic", "group": "slow-link"}
"""Of findings, by family of component; others are slow-network."""
AREAS: dict[str, NetworkArea] = {"pair": "pair", "cut": "cut", "fabric": "fabric"}
PROFILES = ("IB", "RDMA")
"""Of the network: that of the cards' generation, else the slowest there is."""
PROFILE_CONFIDENCE = 0.5
"""Where nothing but a profile that was not written for this cluster says that groups are slow."""
OWN_PROFILE_FACTOR = 0.85
"""On the confidence where only the user's own profile says so."""
SHARED_NIC = 0.5
"""Groups that run side by side and together reach this share of the profile may share a network card."""


def slow_groups(context: DiagnosisContext) -> list[RuleFinding]:
    """Findings about components that make groups between hosts slow."""
    excess = _excess(context)
    return [_GroupFinding(context, excess, fault).finding() for fault in group_faults(excess)]


def _excess(context: DiagnosisContext) -> GroupExcess:
    sizes = {
        str(name): int(size) for name, size in context.rows('SELECT "group", count(*) FROM groups GROUP BY "group"')
    }
    hosts = {info.rank: info.host for info in context.ranks}
    return group_excess(group_traffic(context.timeline, sizes, hosts), _profile(context))


def _profile(context: DiagnosisContext) -> TransportProfile | None:
    """What the network should reach; None where the recording names no cards: jobs without any use other networks."""
    named = context.rows("SELECT 1 FROM ranks WHERE card IS NOT NULL LIMIT 1")
    return context.hardware.transports.get(_profile_name(context)) if named else None


def _profile_name(context: DiagnosisContext) -> str:
    return next((name for name in PROFILES if name in context.hardware.transports), "")


@dataclass
class _GroupFinding:
    """One component as a finding."""

    context: DiagnosisContext
    excess: GroupExcess
    fault: GroupFault

    @property
    def family(self) -> str:
        return self.fault.explanation.component.family

    @cached_property
    def healthy(self) -> Floats:
        """ns per byte of every row over the component, once repaired."""
        traffic, rows, factor = self.excess.traffic, self.fault.rows, self.fault.explanation.factor
        fastest = float(self.excess.reference.min())
        costs: Floats = np.maximum(traffic.cost[rows] / factor, np.minimum(traffic.cost[rows], fastest))
        compared = np.isin(rows, self.fault.seen)
        costs[compared] = [self._reference(row) for row in rows[compared].tolist()]
        result: Floats = np.minimum(costs, traffic.cost[rows])
        return result

    def _reference(self, row: int) -> float:
        """Of groups of its kind that do not use the component and are not slow, else what it was compared with."""
        traffic = self.excess.traffic
        alike = np.setdiff1d(np.flatnonzero(traffic.kind == traffic.kind[row]), self.fault.rows)
        alike = alike[self.excess.excess[alike] < 0.5 * math.log(self.fault.explanation.factor)]
        known = len(alike) and self.excess.source[row] != HARDWARE
        return float(np.median(traffic.cost[alike])) if known else float(self.excess.reference[row])

    def finding(self) -> RuleFinding:
        seen = np.isin(self.fault.rows, self.fault.seen)
        sent = (self.excess.traffic.sent * self.excess.traffic.executions)[self.fault.rows][seen]
        speed = float(sent.sum() / (sent * self.excess.traffic.cost[self.fault.rows][seen]).sum())
        usual = float(sent.sum() / (sent * self.healthy[seen]).sum())
        return RuleFinding(
            id=IDS.get(self.family, "slow-network"),
            subject=self._subject(),
            gain=self._gain(),
            confidence=self._confidence(),
            amount=Quantity(speed, "GB/s", ".1f"),
            detail=Quantity(usual, "GB/s", ".1f"),
            evidence=(
                MeasuredValue("group_bandwidth", round(speed, 2), round(usual, 2), "GB/s"),
                MeasuredValue("slow_groups", len(self._groups), unit="groups"),
                *self._by_hardware(),
                *self._alternatives(),
            ),
            min_severity="low",
            max_severity="low" if self._doubtful else "high",
            area=AREAS.get(self.family, ""),
        )

    def _gain(self) -> PredictedGain:
        costs = self.context.replay.costs
        for row, healthy in zip(self.fault.rows.tolist(), self.healthy.tolist(), strict=True):
            factor = healthy / self.excess.traffic.cost[row]
            costs = scale_transfers(costs, self.excess.traffic.instances[row], factor)
        return self.context.gain(costs)

    @cached_property
    def _groups(self) -> list[tuple[int, ...]]:
        """Sets of ranks that are slow."""
        return sorted({self.excess.traffic.ranks[row] for row in self.fault.seen.tolist()})

    def _hosts(self) -> tuple[int, ...]:
        """Hosts of the component, or of those it cannot be told from."""
        explanation = self.fault.explanation
        if self.family == "nic":
            same = [one.key[0] for one in explanation.same if one.family == "nic"]
            return tuple(sorted({explanation.component.key[0], *same}))
        if self.family in AREAS:
            return explanation.component.key
        rows = self.fault.seen.tolist()
        return tuple(sorted(frozenset().union(*(self.excess.traffic.hosts[row] for row in rows))))

    def _subject(self) -> Subject:
        if self.family == "fabric":
            return Subject(operators=(_profile_name(self.context),))
        names = tuple(self.excess.traffic.host_names[host] for host in self._hosts())
        if self.family == "group":
            return Subject(ranks=self._groups[0], hosts=tuple(sorted(names)), links=self._ring(self._groups[0]))
        return Subject(ranks=self._component_ranks(names), hosts=tuple(sorted(names)))

    def _component_ranks(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """Every card of the component; none where it is not known which of several it is."""
        if self.family == "card":
            same = [one.key[0] for one in self.fault.explanation.same if one.family == "card"]
            return tuple(sorted({self.fault.explanation.component.key[0], *same}))
        if self.family != "nic":
            return tuple(sorted({rank for ranks in self._groups for rank in ranks}))
        if len(names) > 1:
            return ()
        return tuple(sorted(info.rank for info in self.context.ranks if info.host in names))

    def _ring(self, ranks: tuple[int, ...]) -> tuple[DirectedLink, ...]:
        """Between neighbours on different hosts: which of them is slow is not known."""
        host = {info.rank: info.host for info in self.context.ranks}
        ring = list(zip(ranks, (*ranks[1:], ranks[0]), strict=True))[: 1 if len(ranks) == 2 else None]
        return tuple(DirectedLink(a, b, "") for a, b in ring if host[a] != host[b])

    def _confidence(self) -> float:
        """From the nats that speak for the component beyond its price; 0.75 at none, 0.95 at five."""
        if self._doubtful:
            return PROFILE_CONFIDENCE
        sure = 1 - 0.25 * math.exp(-self.fault.explanation.margin / 3)
        return round(min(0.99, sure * (OWN_PROFILE_FACTOR if self._outside else 1.0)), 2)

    @cached_property
    def _outside(self) -> bool:
        return bool((self.excess.source[self.fault.seen] == HARDWARE).mean() > 0.5)

    @cached_property
    def _doubtful(self) -> bool:
        """Only the profile accuses, and it is the default one, or groups side by side may share a network card."""
        if not self._outside:
            return False
        is_default = self.context.hardware.transports == default_hardware().transports
        profile = _profile(self.context)
        return is_default or profile is None or self._side_by_side > SHARED_NIC * profile.reached

    @cached_property
    def _side_by_side(self) -> float:
        """GB/s that all groups of a kind on the same hosts reach together."""
        traffic, seen, most = self.excess.traffic, self.fault.seen.tolist(), 0.0
        for row in seen:
            alike = [other for other in seen if traffic.kind[other] == traffic.kind[row]]
            beside = sum(bool(traffic.hosts[other] & traffic.hosts[row]) for other in alike)
            most = max(most, beside / float(traffic.cost[row]))
        return most

    def _by_hardware(self) -> tuple[MeasuredValue, ...]:
        profile = _profile(self.context)
        if not self._outside or profile is None:
            return ()
        shared = MeasuredValue("side_by_side", round(self._side_by_side, 2), unit="GB/s")
        return (MeasuredValue("profile_bandwidth", profile.reached, unit="GB/s"), shared)

    def _alternatives(self) -> tuple[MeasuredValue, ...]:
        """What covers the same groups, one line for each family."""
        same = self.fault.explanation.same
        return tuple(
            MeasuredValue(f"same_{family}", len(names), values={"what": " / ".join(names[:6])})
            for family in (("nic", "cut") if self.family == "fabric" else ("nic", "pair", "card", "cut"))
            if (names := [self._name(one.key, family) for one in same if one.family == family])
        )

    def _name(self, key: tuple[int, ...], family: str) -> str:
        names = self.excess.traffic.host_names
        return ", ".join(map(str, key)) if family == "card" else ", ".join(names[host] for host in key[:4])
