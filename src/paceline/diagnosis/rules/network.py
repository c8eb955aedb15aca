"""What is slow in the network: links, network cards, switches and whole networks, from what every link moved.

Every link is compared with what it should need for its messages (metrics/network/link_model.py); the smallest set of components
that explains what is slower is the answer (diagnosis/components). Each finding is priced by a replay in which all collectives and
messages over the component's links are repaired.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from paceline.diagnosis.components.link_faults import LinkFault
from paceline.diagnosis.components.search import Component, Explanation
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import DirectedLink, Subject
from paceline.diagnosis.rule_finding import MeasuredValue, NetworkArea, Quantity, RuleFinding
from paceline.metrics.network.link_model import HARDWARE, LinkExcess
from paceline.metrics.network.link_traffic import Floats, Ints, LinkTraffic, group_traffic
from paceline.metrics.network.slow_links import shown_link
from paceline.metrics.steps import step_condition
from paceline.replay.link_fixes import LinkUse, repair_links

INSIDE = {"link": "slow-link", "cable": "slow-link", "card": "slow-link"}
IDS = {**INSIDE, "card": "slow-nic", "nic": "slow-nic", "nic-out": "slow-nic", "nic-in": "slow-nic"}
"""Of findings, by family of component, inside hosts and between them; others are slow-network."""
AREAS: dict[str, NetworkArea] = {"pair": "pair", "cut": "cut", "fabric": "fabric", "board": "board"}
MOST_LINKS = 256
"""Links that a subject lists, those that lose most time first."""
SHARED_CONFIDENCE = 0.5
"""Where cards that share one network card would explain the speed as well."""
OUTSIDE_CONFIDENCE = 0.85
"""Factor on the confidence where only a data sheet says what is normal."""


def slow_components(context: DiagnosisContext) -> list[RuleFinding]:
    """Findings about components that make links slow."""
    excess = context.link_excess
    return [
        _NetworkFinding(context, excess, fault.class_rows, fault.explanation).finding()
        for fault in _by_cable(context.link_faults)
    ]


def _by_cable(faults: Sequence[LinkFault]) -> list[LinkFault]:
    """Both directions between two cards are one fault, that of the worse."""
    cables: dict[tuple[object, ...], LinkFault] = {}
    for number, fault in enumerate(sorted(faults, key=lambda one: -one.explanation.factor)):
        component = fault.explanation.component
        is_link = component.family == "link"
        key = (fault.class_rows[0], *sorted(component.key)) if is_link else ("", number)
        worse = cables.get(key)
        cables[key] = fault if worse is None else _with_rows(worse, component.rows)
    return list(cables.values())


def _with_rows(fault: LinkFault, rows: Ints) -> LinkFault:
    component = fault.explanation.component
    both = replace(component, rows=np.union1d(component.rows, rows))
    return replace(fault, explanation=replace(fault.explanation, component=both))


@dataclass
class _NetworkFinding:
    """One component as a finding."""

    context: DiagnosisContext
    excess: LinkExcess
    rows: Ints
    """Of the traffic: the component's class."""
    explanation: Explanation

    @property
    def component(self) -> Component:
        return self.explanation.component

    @property
    def traffic(self) -> LinkTraffic:
        return self.excess.traffic

    @cached_property
    def covered(self) -> Ints:
        """Rows of the traffic that the component covers."""
        return self.rows[self.component.rows]

    @cached_property
    def healthy(self) -> Floats:
        """ns per byte of each covered row once repaired: as links of its kind that are not slow, else its reference."""
        costs = self.excess.reference[self.covered].copy()
        rest = np.setdiff1d(self.rows, self.covered)
        rest = rest[self.excess.excess[rest] < 0.5 * math.log(self.explanation.factor)]
        for kind in np.unique(self.traffic.kind[self.covered]).tolist():
            alike = rest[self.traffic.kind[rest] == kind]
            if len(alike):
                costs[self.traffic.kind[self.covered] == kind] = float(np.median(self.traffic.cost[alike]))
        result: Floats = np.minimum(costs, self.traffic.cost[self.covered])
        return result

    def finding(self) -> RuleFinding:
        moved = float(self.traffic.bytes[self.covered].sum())
        speed = moved / float(self.traffic.time[self.covered].sum())
        usual = moved / float((self.traffic.bytes[self.covered] * self.healthy).sum())
        subject = self._subject()
        if self.component.family == "link":
            link = subject.links[0]
            speed, usual = shown_link(self.context.run, self._chosen, link.src, link.dst, link.transport) or (
                speed,
                usual,
            )
        family = self.component.family
        return RuleFinding(
            id=(IDS if self._crosses else INSIDE).get(family, "slow-network"),
            subject=subject,
            gain=self.context.gain(repair_links(self.context.replay, self.context.replay.costs, self._uses())),
            confidence=self._confidence(),
            amount=Quantity(speed, "GB/s", ".1f"),
            detail=Quantity(usual, "GB/s", ".1f"),
            evidence=(
                MeasuredValue("bandwidth", round(speed, 2), round(usual, 2), "GB/s"),
                MeasuredValue("slow_links", len(self._links), unit="links"),
                MeasuredValue("data_moved", round(moved / 1e6, 1), unit="MB"),
                *self._by_hardware(),
                *self._alternatives(),
            ),
            min_severity="low",
            max_severity="low" if self._may_be_shared else "high",
            area=AREAS.get(family, ""),
        )

    @property
    def _chosen(self) -> str:
        return step_condition(self.context.performance.steps.tolist())

    @cached_property
    def _crosses(self) -> bool:
        return bool(self.excess.crosses[self.covered[0]])

    @cached_property
    def _links(self) -> list[tuple[int, int]]:
        """Covered links, those that lose most first."""
        lost: dict[tuple[int, int], float] = {}
        time = self.traffic.time[self.covered] - self.traffic.bytes[self.covered] * self.healthy
        ends = zip(self.traffic.src[self.covered].tolist(), self.traffic.dst[self.covered].tolist(), strict=True)
        for link, each in zip(ends, time.tolist(), strict=True):
            lost[link] = lost.get(link, 0.0) + each
        return sorted(lost, key=lambda link: (-lost[link], link))

    def _subject(self) -> Subject:
        transport = str(self.traffic.transport[self.covered[0]])
        if self.component.family == "fabric":
            return Subject(operators=(transport,))
        ranks = self._component_ranks()
        ends = sorted({end for link in self._links for end in link})
        place = {info.rank: row for row, info in enumerate(self.context.ranks)}
        named = [name for host in self._component_hosts() if (name := self.excess.hosts[host])]
        return Subject(
            ranks=tuple(ranks or ends),
            hosts=tuple(sorted(named)) or self.context.hosts_of([place[rank] for rank in ends if rank in place]),
            links=tuple(DirectedLink(src, dst, transport) for src, dst in self._links[:MOST_LINKS]),
        )

    def _component_hosts(self) -> tuple[int, ...]:
        """Hosts that the component, or one that it cannot be told from, belongs to."""
        family, key = self.component.family, self.component.key
        if family in ("nic", "nic-out", "nic-in"):
            same = [one.key[0] for one in self.explanation.same if one.family == family]
            return tuple(sorted({key[0], *same}))
        return key if family in ("pair", "cut", "board") else ()

    def _component_ranks(self) -> list[int]:
        """Every card of the component; none where it is not known which of several components it is."""
        family, key = self.component.family, self.component.key
        if family == "card":
            return [key[0]]
        hosts = self._component_hosts()
        return list(self.excess.host_ranks[hosts[0]]) if len(hosts) == 1 and family != "cut" else []

    def _confidence(self) -> float:
        """From the nats that speak for the component beyond its price; 0.75 at none, 0.95 at five."""
        sure = 1 - 0.25 * math.exp(-self.explanation.margin / 3)
        if self._may_be_shared:
            return SHARED_CONFIDENCE
        return round(min(0.99, sure * (OUTSIDE_CONFIDENCE if self._outside else 1.0)), 2)

    @cached_property
    def _outside(self) -> bool:
        return bool((self.excess.source[self.covered] == HARDWARE).mean() > 0.5)

    @cached_property
    def _may_be_shared(self) -> bool:
        """All cards of a host together are as fast as one healthy network card: they may share it."""
        if not self._outside or not self._crosses:
            return False
        rate = 1 / self.traffic.cost[self.covered]
        most = 0.0
        for kind in np.unique(self.traffic.kind[self.covered]).tolist():
            mine = self.traffic.kind[self.covered] == kind
            senders = np.unique(self.traffic.src[self.covered][mine])
            hosts = {int(h) for h in self.excess.src_host[self.covered][mine]}
            each = float(np.median(rate[mine])) * len(senders) / len(hosts)
            most = max(most, each * float((self.excess.reference[self.covered][mine]).mean()))
        return most > 0.5

    def _uses(self) -> list[LinkUse]:
        """Every link of the groups that use the component."""
        traffic, fixed = self.traffic, dict[tuple[str, int, int], tuple[float, float]]()
        for row, healthy in zip(self.covered.tolist(), self.healthy.tolist(), strict=True):
            key = str(traffic.op[row]), int(traffic.src[row]), int(traffic.dst[row])
            time, less = fixed.get(key, (0.0, 0.0))
            fixed[key] = time + traffic.time[row], less + traffic.time[row] * healthy / traffic.cost[row]
        transport = str(traffic.transport[self.covered[0]])
        uses = []
        for group, op, src, dst, over, time in group_traffic(self.context.run, self._chosen, self._links):
            now, less = fixed.get((op, src, dst), (1.0, 1.0)) if over == transport else (1.0, 1.0)
            uses.append(LinkUse(group, op, src, dst, time, time * less / now))
        return uses

    def _by_hardware(self) -> tuple[MeasuredValue, ...]:
        if not self._outside:
            return ()
        profile = self.context.hardware.transports[str(self.traffic.transport[self.covered[0]])]
        return (MeasuredValue("profile_bandwidth", profile.reached, unit="GB/s"),)

    def _alternatives(self) -> tuple[MeasuredValue, ...]:
        told = [one for one in self.explanation.same if one.family in _TOLD]
        return tuple(
            MeasuredValue(
                f"same_{one.family.replace('-', '_')}", len(self._links), unit="links", values={"what": self._name(one)}
            )
            for one in told[:4]
        )

    def _name(self, one: Component) -> str:
        """Ranks or hosts of a component; ranks where hosts have no names."""
        if one.family in ("link", "cable", "card"):
            return ("→" if one.family == "link" else "↔").join(map(str, one.key))
        hosts = [self.excess.hosts[host] or _span(self.excess.host_ranks[host]) for host in one.key]
        return ", ".join(hosts[:4]) + (" …" if len(hosts) > 4 else "")


_TOLD = ("nic", "pair", "nic-out", "nic-in", "card", "cut", "fabric")
"""Families that are told as alternatives, in the order of the search."""


def _span(ranks: tuple[int, ...]) -> str:
    return f"{ranks[0]}–{ranks[-1]}" if len(ranks) > 1 else str(ranks[0])
