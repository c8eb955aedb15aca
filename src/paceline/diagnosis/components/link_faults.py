"""Which components of the network explain the links that are slower than expected, class by class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline.diagnosis.components.network import LinkEnds, link_components
from paceline.diagnosis.components.search import Explanation, Observations, explain
from paceline.metrics.network.link_model import HARDWARE, LinkExcess
from paceline.metrics.network.link_traffic import Ints


@dataclass(frozen=True)
class LinkFault:
    """A component that makes links slow."""

    explanation: Explanation
    class_rows: Ints
    """Rows of the traffic: all links of the class."""

    @property
    def rows(self) -> Ints:
        """Rows of the traffic that the component covers."""
        rows: Ints = self.class_rows[self.explanation.component.rows]
        return rows


def link_faults(excess: LinkExcess) -> tuple[LinkFault, ...]:
    """Every component at fault; each class of links is explained by itself."""
    return tuple(
        LinkFault(explanation, rows)
        for transport, beyond in excess.lines
        for rows in [np.flatnonzero((excess.traffic.transport == transport) & (excess.crosses == beyond))]
        for explanation in _explain_class(excess, rows, beyond)
    )


def _explain_class(excess: LinkExcess, rows: Ints, beyond: bool) -> tuple[Explanation, ...]:
    traffic = excess.traffic
    seen = Observations(
        excess.excess[rows],
        excess.deviation[rows],
        traffic.executions[rows],
        traffic.bytes[rows] * excess.reference[rows],
    )
    ends = LinkEnds(
        traffic.src[rows],
        traffic.dst[rows],
        excess.src_host[rows],
        excess.dst_host[rows],
        beyond,
        excess.source[rows] == HARDWARE,
    )
    return explain(seen, link_components(ends, seen))
