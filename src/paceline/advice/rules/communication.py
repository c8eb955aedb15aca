"""How data moves for everybody: packets too small, transfers slowed by computing, gradients summed too late."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from paceline.advice.case import Case
from paceline.advice.finding import Evidence, Finding, Subject
from paceline.analysis.events import PEER_TO_PEER
from paceline.analysis.fixes import faster_transfers

SMALL_SHARE = 0.5
"""Packets are small when at least this share of the bytes moves in them."""
REACHED = 0.75
"""… and the transport stays below this share of its nominal bandwidth."""
CONTENTION = 0.85
"""Transfers beside computing that reach less than this share of what they reach alone contend with it."""
MOSTLY = 0.6
"""Share of a group's large transfers that run beside computing, from which the group counts as doing so."""
LARGE = 1_000_000
"""Bytes from which bandwidth decides, not latency."""

Rows = NDArray[np.int64]
EXPOSED = 0.03
"""Gradient communication on the main line, as a share of the step, that overlap could hide."""
PLAINLY_EXPOSED = 0.06
"""Below this share it is worth a hint, not an alarm: many healthy recipes sum gradients behind backward."""
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
    for transport, nominal in case.hardware.transports.items():
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
    """Links that reach less while their ranks compute than the same kind of link reaches when they do not.

    Rates are those of single links, not of whole collectives: a ring is as slow as its slowest hop, and groups have rings
    of different length. Groups whose large transfers mostly run beside computing are held against groups whose do not;
    in a cluster with one kind of group, its transfers beside computing against the others.
    """
    events, line = case.line.events, case.line
    large = np.flatnonzero((events.bytes > LARGE) & ~line.is_end)
    covered = line.overlap > 0.5 * events.transfer[events.instance]
    hidden = covered if covered.any() and line.beside[covered].all() else line.beside | covered
    beside = np.isin(events.instance, np.unique(events.instance[hidden]))
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row in large.tolist():
        rows_of[str(events.tie[row])].append(row)
    # A single message has to start and to stop: it is not held against a ring that is kept busy.
    rates: dict[tuple[str, bool], tuple[list[float], list[tuple[float, str]]]] = defaultdict(lambda: ([], []))
    for group, transport, rate in _link_rates(case):
        if rows := rows_of.get(group):
            kind = transport, str(events.op[rows[0]]) in PEER_TO_PEER
            aside = float(np.mean(beside[rows]))
            if aside >= MOSTLY:
                rates[kind][1].append((rate, group))
            elif aside <= 0.5:
                rates[kind][0].append(rate)
    findings = []
    for (transport, _), (apart, computing) in rates.items():
        if apart and computing:
            alone = float(np.median(apart))
            slow = {group for rate, group in computing if rate < CONTENTION * alone}
            if slow and len(slow) >= len({group for _, group in computing}) / 2:
                rows = [row for group in slow for row in rows_of[group] if beside[row]]
                reached = float(np.median([rate for rate, _ in computing]))
                findings.append(_contention(case, transport, np.array(rows, dtype=np.int64), reached, alone))
    return findings or _contention_by_time(case, rows_of, beside)


def _contention_by_time(case: Case, rows_of: dict[str, list[int]], beside: NDArray[np.bool_]) -> list[Finding]:
    """The same collective in the same group, beside computing and apart from it."""
    events = case.line.events
    slow: list[int] = []
    reached, alone, compared = [], [], 0
    for chosen in rows_of.values():
        rows = np.array(chosen, dtype=np.int64)
        rows = rows[events.transfer[events.instance[rows]] > 0]
        rate = events.bytes[rows] / events.transfer[events.instance[rows]]
        if beside[rows].sum() < 4 or (~beside[rows]).sum() < 4:
            continue
        compared += 1
        apart = float(np.median(rate[~beside[rows]]))
        if float(np.median(rate[beside[rows]])) < CONTENTION * apart:
            slow += rows[beside[rows]].tolist()
            reached.append(float(np.median(rate[beside[rows]])))
            alone.append(apart)
    if len(reached) <= compared / 2 or not reached:
        return []
    rows = np.array(slow, dtype=np.int64)
    return [_contention(case, "", rows, float(np.median(reached)), float(np.median(alone)))]


def _contention(case: Case, transport: str, rows: Rows, reached: float, alone: float) -> Finding:
    instances = np.unique(case.line.events.instance[rows])
    return Finding(
        id="bandwidth-contention",
        subject=Subject(operators=(transport,) if transport else ()),
        gain=case.gain(faster_transfers(case.replay.costs, instances, reached / alone)),
        confidence=0.85,
        amount=f"{100 * (1 - reached / alone):.0f} %",
        evidence=(Evidence("bandwidth beside computing", round(reached, 2), round(alone, 2), "GB/s"),),
        at_least="low",
    )


def _link_rates(case: Case) -> list[tuple[str, str, float]]:
    """(group, transport, median GB/s of its links), where messages are large."""
    rows = case.rows(
        f"""
        WITH busy AS (
            SELECT "group", transport, src, dst, sum(bytes) / sum(duration) AS rate FROM transfers
            WHERE src <> dst AND transport <> 'LOCAL' AND duration > 0 AND "group" IS NOT NULL
            GROUP BY ALL HAVING sum(bytes) > {LARGE}
        )
        SELECT "group", transport, median(rate) FROM busy GROUP BY "group", transport
        """
    )
    return [(str(group), transport, float(rate)) for group, transport, rate in rows]


def comm_exposed(case: Case) -> list[Finding]:
    """Gradients summed on the main line although backward could hide them."""
    events, line = case.line.events, case.line
    gradients = np.isin(events.tie.astype(str), gradient_groups(case)) & ~line.is_end
    main, hidden = np.flatnonzero(gradients & ~line.beside), np.flatnonzero(gradients & line.beside)
    if not len(main) or (not line.split_known and _only_gradients(case)):
        return []  # nothing could show whether computing went on meanwhile
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
            at_most="high" if share >= PLAINLY_EXPOSED else "low",
        )
    ]


def _only_gradients(case: Case) -> bool:
    ties = case.line.events.tie[~case.line.is_end].astype(str)
    return set(ties.tolist()) <= set(gradient_groups(case))


def gradient_groups(case: Case) -> list[str]:
    """Groups that sum gradients: data parallel ones, or the only group there is."""
    declared = [row[0] for row in case.rows("SELECT DISTINCT \"group\" FROM groups WHERE kind = 'dp'")]
    if declared:
        return [str(group) for group in declared]
    # Where no sizes were recorded, what takes long is large: the shortest executions did not wait.
    collective = case.rows(
        'SELECT "group", median(bytes), quantile_cont(duration, 0.1) FROM collectives '
        "WHERE op IN ('all_reduce', 'reduce_scatter') AND \"group\" IS NOT NULL GROUP BY \"group\""
    )
    sized = any(row[1] for row in collective)
    sizes = {str(group): float((size if sized else took) or 0) for group, size, took in collective}
    return [group for group, size in sizes.items() if size >= 0.5 * max(sizes.values())]


def _last_of_step(case: Case, rows: Rows) -> Rows:
    events, line = case.line.events, case.line
    last: dict[tuple[int, int], int] = {}
    for row in rows.tolist():
        last[int(events.rank[row]), int(line.step[row])] = int(events.instance[row])
    return np.unique(np.array(list(last.values()), dtype=np.int64))
