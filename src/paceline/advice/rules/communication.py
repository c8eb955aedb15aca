"""How data moves for everybody: packets too small, transfers slowed by computing, gradients summed too late."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.advice.case import Case
from paceline.advice.finding import Evidence, Finding, Subject
from paceline.advice.hardware import load_hardware
from paceline.analysis.fixes import faster_transfers

SMALL_SHARE = 0.5
"""Packets are small when at least this share of the bytes moves in them."""
REACHED = 0.75
"""… and the transport stays below this share of its nominal bandwidth."""
CONTENTION = 0.85
"""Transfers beside computing that reach less than this share of what they reach alone contend with it."""
CONTENDED_SHARE = 0.2
LARGE = 4_000_000
"""Bytes from which bandwidth decides, not latency."""

Rows = NDArray[np.int64]
EXPOSED = 0.04
"""Gradient communication on the main line, as a share of the step, that overlap could hide."""
HIDDEN = 0.3
"""Below this share of gradient communication hidden behind backward there is no overlap to speak of."""


def small_packets(case: Case) -> list[Finding]:
    findings = []
    rows = case.rows(
        """
        SELECT transport, packet_bytes, sum(count), sum(duration) FROM packets
        WHERE count > 0 AND transport <> 'SDMA' GROUP BY ALL ORDER BY ALL
        """
    )
    for transport, nominal in load_hardware().transports.items():
        mine = [(size, size * count, time) for kind, size, count, time in rows if kind == transport]
        moved, time = sum(row[1] for row in mine), sum(row[2] for row in mine)
        small = [row for row in mine if row[0] < nominal.packet]
        if not moved or not time or sum(row[1] for row in small) < SMALL_SHARE * moved:
            continue
        rate = moved / time
        if rate >= REACHED * nominal.bandwidth:
            continue
        typical = max(small, key=lambda row: row[1])[0]
        findings.append(
            _small_packets(case, transport, typical, sum(row[1] for row in small) / moved, rate, nominal.bandwidth)
        )
    return _merged(findings)


def _small_packets(case: Case, transport: str, typical: int, share: float, rate: float, nominal: float) -> Finding:
    instances = _instances_by_transport(case, transport)
    return Finding(
        id="small-packets",
        subject=Subject(operators=(transport,)),
        gain=case.gain(faster_transfers(case.replay.costs, instances, rate / nominal)),
        confidence=0.9,
        amount=f"{typical / 1e6:.2g} MB",
        detail=f"{100 * share:.0f} %",
        evidence=(
            Evidence("typical packet", round(typical / 1e6, 4), None, "MB"),
            Evidence("bandwidth", round(rate, 2), nominal, "GB/s"),
        ),
    )


def _merged(findings: list[Finding]) -> list[Finding]:
    """Small packets on several transports have one cause: keep the one that costs most."""
    return sorted(findings, key=lambda finding: -finding.gain.percent)[:1]


def _instances_by_transport(case: Case, transport: str) -> Rows:
    """Collectives of groups that use a transport."""
    groups = [
        row[0]
        for row in case.rows(f"SELECT DISTINCT \"group\" FROM transfers WHERE transport = '{transport}' AND src <> dst")
    ]
    events = case.line.events
    rows = np.flatnonzero(np.isin(events.tie.astype(str), [str(group) for group in groups]))
    return np.unique(events.instance[rows]).astype(np.int64)


def contention(case: Case) -> list[Finding]:
    """Transfers beside computing against transfers of the same transport that have the links for themselves."""
    events, line = case.line.events, case.line
    transports = _transport_of_group(case)
    large = np.flatnonzero((events.bytes > LARGE) & ~line.is_end)
    beside = np.isin(events.instance, np.unique(events.instance[line.beside]))
    time = events.transfer[events.instance].astype(np.float64)
    carried = np.array([transports.get(str(events.tie[row]), "") for row in large])
    findings = []
    for transport in sorted(set(carried.tolist()) - {""}):
        rows = large[(carried == transport) & (time[large] > 0)]
        apart, aside = rows[~beside[rows]], rows[beside[rows]]
        if len(apart) < 4 or len(aside) < 4:
            continue
        alone = float(np.median(events.bytes[apart] / time[apart]))
        expected = events.bytes[aside] / alone
        slow = aside[time[aside] > expected / CONTENTION]
        if len(slow) >= CONTENDED_SHARE * len(aside):
            findings.append(_contention(case, transport, slow, alone))
    return findings


def _contention(case: Case, transport: str, rows: Rows, alone: float) -> Finding:
    events = case.line.events
    instances, first = np.unique(events.instance[rows], return_index=True)
    expected = events.bytes[rows[first]] / alone
    factor = np.minimum(1.0, expected / events.transfer[instances])
    rate = float(np.median(events.bytes[rows] / events.transfer[events.instance[rows]]))
    return Finding(
        id="bandwidth-contention",
        subject=Subject(operators=(transport,)),
        gain=case.gain(faster_transfers(case.replay.costs, instances, factor)),
        confidence=0.85,
        amount=f"{100 * (1 - rate / alone):.0f} %",
        evidence=(Evidence("bandwidth beside computing", round(rate, 2), round(alone, 2), "GB/s"),),
        at_least="low",
    )


def _transport_of_group(case: Case) -> dict[str, str]:
    """The transport that carries most of a group's bytes."""
    rows = case.rows(
        """
        SELECT "group", arg_max(transport, moved) FROM (
            SELECT "group", transport, sum(bytes) AS moved FROM transfers
            WHERE src <> dst AND transport <> 'LOCAL' GROUP BY ALL
        ) GROUP BY "group"
        """
    )
    return {str(group): transport for group, transport in rows}


def comm_exposed(case: Case) -> list[Finding]:
    """Gradients summed on the main line although backward could hide them."""
    events, line = case.line.events, case.line
    gradients = np.isin(events.tie.astype(str), gradient_groups(case)) & ~line.is_end
    main, hidden = np.flatnonzero(gradients & ~line.beside), np.flatnonzero(gradients & line.beside)
    if not len(main):
        return []
    ranks = max(1, len(np.unique(events.rank[main])))
    steps = max(1, len(line.steps))
    transfer = events.transfer[events.instance].astype(np.float64) - line.overlap
    exposed = float(np.maximum(0, transfer[main]).sum()) / ranks / steps
    covered = float(events.transfer[events.instance[hidden]].sum() + line.overlap[main].sum()) / ranks / steps
    share = exposed / (case.step_ms * 1e6) if case.step_ms else 0.0
    if share < EXPOSED or covered > HIDDEN * (exposed + covered):
        return []
    instances = np.unique(events.instance[main])
    # The last piece of each step can never be hidden: nothing is left to compute.
    last = _last_of_step(case, main)
    hide = np.setdiff1d(instances, last)
    if not len(hide):
        hide = instances
    return [
        Finding(
            id="comm-exposed",
            subject=Subject(),
            gain=case.gain(faster_transfers(case.replay.costs, hide, 0.0)),
            confidence=0.85,
            amount=f"{100 * share:.0f} %",
            evidence=(
                Evidence("gradient communication on the main line", round(exposed / 1e6, 3), None, "ms a step"),
                Evidence("hidden behind backward", round(covered / 1e6, 3), None, "ms a step"),
            ),
        )
    ]


def gradient_groups(case: Case) -> list[str]:
    """Groups that sum gradients: data parallel ones, or the only group there is."""
    declared = [row[0] for row in case.rows("SELECT DISTINCT \"group\" FROM groups WHERE kind = 'dp'")]
    if declared:
        return [str(group) for group in declared]
    collective = case.rows(
        "SELECT \"group\", count(*), max(bytes) FROM collectives WHERE op IN ('all_reduce', 'reduce_scatter') "
        'AND "group" IS NOT NULL GROUP BY "group"'
    )
    if not collective:
        return []
    largest = max(row[2] or 0 for row in collective)
    return [str(group) for group, _, size in collective if (size or 0) >= 0.5 * largest]


def _last_of_step(case: Case, rows: Rows) -> Rows:
    events, line = case.line.events, case.line
    last: dict[tuple[int, int], int] = {}
    for row in rows.tolist():
        last[int(events.rank[row]), int(line.step[row])] = int(events.instance[row])
    return np.unique(np.array(list(last.values()), dtype=np.int64))
