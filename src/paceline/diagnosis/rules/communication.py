"""Communication of all ranks: packets that are too small, transfers slowed by computing, exposed gradient communication."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.diagnosis.confidence import nearer
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule import rule
from paceline.diagnosis.rule_finding import MeasuredValue, Quantity, RuleFinding
from paceline.metrics.communication.comm_events import PEER_TO_PEER
from paceline.replay.fixes import scale_transfers

SMALL_SHARE = 0.5
"""Packets are small when at least this share of the bytes moves in them."""
REACHED_SHARE = 0.75
"""… and the transport stays below this share of what large messages reach."""
MOST_LATENCIES = 3.0
"""A message takes at most so many times the latency of the profile more than its bytes need; else the link is slow."""
SPLIT_SHARE = 0.5
"""From this share of cut packets on they are a fault, not the size of the collective."""
CONTENTION_SHARE = 0.85
"""Transfers during computing that reach less than this share of their speed without it compete with it."""
MOSTLY_COMPUTING = 0.6
"""A group communicates during computing when at least this share of its large transfers does."""
MOSTLY_BESIDE, HARDLY_BESIDE = 0.5, 0.1
"""A transfer runs during computing, or without it, where its members compute for more or less than this share of it."""
LARGE_BYTES = 1_000_000
"""Bytes from which bandwidth decides, not latency."""

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]
EXPOSED_SHARE = 0.03
"""Exposed gradient communication is reported from this share of the step on."""
OVERLAPPED_SHARE = 0.3
"""With at least this share of gradient communication overlapped, nothing is reported."""


@rule(priority=50)
def small_packets(context: DiagnosisContext) -> list[RuleFinding]:
    """Latency decides: the time above bytes / bandwidth is no more than messages of this number may need."""
    findings, recorded = [], _packets(context)
    for transport, profile in context.hardware.transports.items():
        mine = [packets for packets in recorded if packets.transport == transport]
        moved, time = sum(each.bytes for each in mine), sum(each.time for each in mine)
        small = [each for each in mine if each.size < profile.packet]
        if not moved or not time or sum(each.bytes for each in small) < SMALL_SHARE * moved:
            continue
        latency = (time - moved / profile.reached) / sum(each.count for each in mine)
        if moved / time < REACHED_SHARE * profile.reached and latency < MOST_LATENCIES * 1000 * profile.latency:
            findings.append(_small_packet_finding(context, mine, small, profile.reached))
    return _costliest(findings)


@dataclass(frozen=True)
class _Packets:
    """Packets of one size on a transport; time in ns."""

    transport: str
    size: int
    count: int
    time: float
    split: float
    """Share of them that is cut smaller than the collective needs: less than half of what a ring sends at once."""

    @property
    def bytes(self) -> int:
        return self.size * self.count


def _packets(context: DiagnosisContext) -> list[_Packets]:
    rows = context.rows(
        """
        WITH sizes AS (SELECT "group", count(*) AS size FROM groups GROUP BY "group"),
        chunks AS (
            SELECT "group",
                   avg(bytes / CASE WHEN op = 'all_reduce' THEN 2 * greatest(1, size - 1)
                                    WHEN op IN ('send', 'receive') THEN 1 ELSE greatest(1, size - 1) END) AS chunk
            FROM collectives JOIN sizes USING ("group") WHERE bytes > 65536 GROUP BY "group"
        )
        SELECT transport, packet_bytes, sum(count), sum(duration)::DOUBLE,
               coalesce(sum(count) FILTER (packet_bytes < chunk / 2) / sum(count), 0)::DOUBLE
        FROM packets LEFT JOIN chunks USING ("group")
        WHERE count > 0 AND packet_bytes > 0 AND transport <> 'SDMA' GROUP BY ALL ORDER BY ALL
        """
    )
    return [_Packets(transport, int(size), int(count), time, split) for transport, size, count, time, split in rows]


def _small_confidence(context: DiagnosisContext, transport: str) -> float:
    """Over ranks × steps × groups: the share of bytes in small packets."""
    least = context.hardware.transports[transport].packet
    rows = context.rows(
        f"""
        SELECT transport, coalesce(sum(packet_bytes * count) FILTER (packet_bytes < {least}), 0) / sum(packet_bytes * count)
        FROM packets WHERE count > 0 AND packet_bytes > 0 GROUP BY transport, rank, step, "group"
        """
    )
    return nearer([float(share) for name, share in rows if name == transport], [], at=SMALL_SHARE)


def _small_packet_finding(
    context: DiagnosisContext, packets: list[_Packets], small: list[_Packets], reached: float
) -> RuleFinding:
    transport, moved = packets[0].transport, sum(each.bytes for each in packets)
    rate = moved / sum(each.time for each in packets)
    typical = max(small, key=lambda each: each.bytes).size
    split = sum(each.split * each.bytes for each in small) / sum(each.bytes for each in small)
    return RuleFinding(
        id="small-packets",
        subject=Subject(operators=(transport,)),
        gain=context.gain(scale_transfers(context.replay.costs, _collectives_over(context, transport), rate / reached)),
        confidence=_small_confidence(context, transport),
        amount=Quantity(typical / 1e6, "MB", ".2g"),
        detail=Quantity(100 * sum(each.bytes for each in small) / moved, "%"),
        evidence=(
            MeasuredValue("packet_size", round(typical / 1e6, 4), unit="MB"),
            MeasuredValue("bandwidth", round(rate, 2), reached, "GB/s"),
        ),
        # Messages as large as the collective allows are a matter of its size, which is a recipe.
        max_severity="high" if split >= SPLIT_SHARE else "low",
    )


def _costliest(findings: list[RuleFinding]) -> list[RuleFinding]:
    """Small packets on several transports have one cause: the finding with the largest gain stands for all."""
    return sorted(findings, key=lambda finding: -finding.gain.percent)[:1]


def _collectives_over(context: DiagnosisContext, transport: str) -> Rows:
    """Collectives of groups that use a transport."""
    used = context.rows('SELECT DISTINCT "group", transport FROM transfers WHERE src <> dst')
    groups = [group for group, name in used if name == transport]
    events = context.timeline.events
    rows = np.flatnonzero(np.isin(events.group_key.astype(str), [str(group) for group in groups]))
    return np.unique(events.instance[rows]).astype(np.int64)


@rule(priority=60)
def bandwidth_contention(context: DiagnosisContext) -> list[RuleFinding]:
    """Links that are slower while their ranks compute than links of the same kind are when they do not.

    Rates are those of single links, not of whole collectives: a ring is as slow as its slowest hop, and groups have rings
    of different length. Groups whose large transfers mostly run during computing are compared with groups whose do not;
    in a cluster with one kind of group, its transfers during computing are compared with its others.
    """
    events, timeline = context.timeline.events, context.timeline
    large = np.flatnonzero(events.bytes > LARGE_BYTES)
    covered = timeline.overlap > 0.5 * events.transfer[events.instance]
    hidden = covered if covered.any() and timeline.side_stream[covered].all() else timeline.side_stream | covered
    beside = np.isin(events.instance, np.unique(events.instance[hidden]))
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row in large.tolist():
        rows_of[str(events.group_key[row])].append(row)
    # A single message has to start and to stop: it is not compared with a ring that is kept busy.
    rates: dict[tuple[str, bool], tuple[list[float], list[tuple[float, str]]]] = defaultdict(lambda: ([], []))
    for group, transport, rate in _link_rates(context):
        if rows := rows_of.get(group):
            kind = transport, str(events.op[rows[0]]) in PEER_TO_PEER
            aside = float(np.mean(beside[rows]))
            if aside >= MOSTLY_COMPUTING:
                rates[kind][1].append((rate, group))
            elif aside <= 0.5:
                rates[kind][0].append(rate)
    findings = []
    for (transport, _), (apart, computing) in rates.items():
        if apart and computing:
            alone = float(np.median(apart))
            slow = [group for rate, group in computing if rate < CONTENTION_SHARE * alone]
            if len(slow) >= len(computing) / 2:
                rows = [row for group in slow for row in rows_of[group] if beside[row]]
                reached = float(np.median([rate for rate, _ in computing]))
                sure = nearer(apart, [rate for rate, _ in computing], at=alone, normal=reached)
                chosen = np.array(rows, dtype=np.int64)
                findings.append(_contention_finding(context, transport, chosen, reached, alone, sure))
    return findings or _contention_within_groups(context, rows_of, beside)


def _contention_within_groups(
    context: DiagnosisContext, rows_of: dict[str, list[int]], beside: NDArray[np.bool_]
) -> list[RuleFinding]:
    """The same collective in the same group, during computing and without it."""
    events = context.timeline.events
    share = _computing_share(context)
    found: list[_Compared] = []
    for chosen in rows_of.values():
        rows = np.array(chosen, dtype=np.int64)
        rows = rows[events.transfer[events.instance[rows]] > 0]
        rate = events.bytes[rows] / events.transfer[events.instance[rows]]
        known = share[events.instance[rows]]
        during = np.where(np.isnan(known), beside[rows], known > MOSTLY_BESIDE)
        without = np.where(np.isnan(known), ~beside[rows], known < HARDLY_BESIDE)
        if during.sum() >= 4 and without.sum() >= 4:
            _, first = np.unique(events.instance[rows], return_index=True)
            once = np.isin(np.arange(len(rows)), first)
            found.append(_Compared(rows[during], rate[during & once], rate[without & once]))
    slow = [each for each in found if each.ratio < CONTENTION_SHARE]
    if len(slow) <= len(found) / 2:
        return []
    reached = float(np.median([np.median(each.during) for each in slow]))
    alone = float(np.median([np.median(each.without) for each in slow]))
    rows = np.concatenate([each.rows for each in slow])
    return [_contention_finding(context, "", rows, reached, alone, _contention_confidence(found, reached / alone))]


@dataclass(frozen=True)
class _Compared:
    """Transfers of one group: the rows of those during computing, and GB/s of each collective during it and without."""

    rows: Rows
    during: Floats
    without: Floats

    @property
    def ratio(self) -> float:
        return float(np.median(self.during) / np.median(self.without))


def _contention_confidence(compared: list[_Compared], ratio: float) -> float:
    """Over collectives: as slow as claimed during computing, as fast as is usual for their group without."""
    during, without = (
        np.concatenate([getattr(each, name) / np.median(each.without) for each in compared])
        for name in ("during", "without")
    )
    return nearer(without, during, at=1.0, normal=ratio)


def _computing_share(context: DiagnosisContext) -> Floats:
    """Of each collective: the share of its members' time in which they compute; nan where that was not recorded."""
    line, events = context.timeline, context.timeline.events
    share = np.full(events.instances, np.nan)
    if len(line.beside):
        unknown = np.bincount(events.instance, line.beside < 0, minlength=events.instances) > 0
        computed = np.bincount(events.instance, line.beside, minlength=events.instances)
        stayed = np.bincount(events.instance, events.duration, minlength=events.instances)
        share = np.where(unknown, np.nan, computed / np.maximum(1, stayed))
    return share


def _contention_finding(
    context: DiagnosisContext, transport: str, rows: Rows, reached: float, alone: float, confidence: float
) -> RuleFinding:
    instances = np.unique(context.timeline.events.instance[rows])
    return RuleFinding(
        id="bandwidth-contention",
        subject=Subject(operators=(transport,) if transport else ()),
        gain=context.gain(scale_transfers(context.replay.costs, instances, reached / alone)),
        confidence=confidence,
        amount=Quantity(100 * (1 - reached / alone), "%"),
        evidence=(MeasuredValue("bandwidth_while_computing", round(reached, 2), round(alone, 2), "GB/s"),),
        min_severity="low",
    )


def _link_rates(context: DiagnosisContext) -> list[tuple[str, str, float]]:
    """(group, transport, median GB/s of its links that are not at fault), where messages are large."""
    excess = context.link_excess
    slow = np.concatenate([np.zeros(0, dtype=np.int64), *(fault.rows for fault in context.link_faults)])
    faulty = set(zip(excess.traffic.src[slow].tolist(), excess.traffic.dst[slow].tolist(), strict=True))
    rows = context.rows(
        f"""
        SELECT "group", transport, src, dst, sum(bytes) / sum(duration) FROM transfers
        WHERE src <> dst AND transport <> 'LOCAL' AND duration > 0 AND "group" IS NOT NULL
        GROUP BY ALL HAVING sum(bytes) > {LARGE_BYTES}
        """
    )
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    for group, transport, src, dst, rate in rows:
        if (src, dst) not in faulty:
            rates[str(group), transport].append(float(rate))
    return [(group, transport, float(np.median(found))) for (group, transport), found in rates.items()]


@rule(priority=70)
def comm_exposed(context: DiagnosisContext) -> list[RuleFinding]:
    """Gradients that are summed after computing although backward could overlap with it."""
    events, timeline = context.timeline.events, context.timeline
    gradients = np.isin(events.group_key.astype(str), gradient_groups(context)) & ~timeline.is_end
    main, hidden = np.flatnonzero(gradients & ~timeline.side_stream), np.flatnonzero(gradients & timeline.side_stream)
    if not len(main) or (not timeline.split_known and _only_gradients(context)):
        return []  # the recording cannot show whether computing went on meanwhile
    ranks, steps = len(np.unique(events.rank[main])), len(timeline.steps)
    transfer = events.transfer[events.instance].astype(np.float64) - timeline.overlap
    exposed = float(np.maximum(0, transfer[main]).sum()) / ranks / steps
    covered = float(events.transfer[events.instance[hidden]].sum() + timeline.overlap[main].sum()) / ranks / steps
    share = exposed / (context.step_ms * 1e6) if context.step_ms else 0.0
    if share < EXPOSED_SHARE or covered >= OVERLAPPED_SHARE * (exposed + covered):
        return []
    instances = np.unique(events.instance[main])
    # The last collective of each step cannot be overlapped: nothing is left to compute.
    last = _last_of_each_step(context, main)
    hide = np.setdiff1d(instances, last)
    if not len(hide):
        hide = instances
    return [
        RuleFinding(
            id="comm-exposed",
            subject=Subject(),
            gain=context.gain(scale_transfers(context.replay.costs, hide, 0.0)),
            confidence=_exposed_confidence(context, main, transfer[main]),
            amount=Quantity(100 * share, "%"),
            evidence=(
                MeasuredValue("exposed_gradient_communication", round(exposed / 1e6, 3), unit="ms_per_step"),
                MeasuredValue("overlapped_gradient_communication", round(covered / 1e6, 3), unit="ms_per_step"),
            ),
        )
    ]


def _exposed_confidence(context: DiagnosisContext, rows: Rows, exposed: NDArray[np.float64]) -> float:
    """Over ranks × steps that sum gradients."""
    ranks, steps = len(context.ranks), len(context.timeline.steps)
    cell = context.timeline.events.rank[rows] * steps + context.timeline.step[rows]
    times = np.bincount(cell, np.maximum(0.0, exposed), minlength=ranks * steps)
    return nearer(times[np.unique(cell)], [], at=EXPOSED_SHARE * context.step_ms * 1e6)


def _only_gradients(context: DiagnosisContext) -> bool:
    ties = context.timeline.events.group_key[~context.timeline.is_end].astype(str)
    return set(ties.tolist()) <= set(gradient_groups(context))


def gradient_groups(context: DiagnosisContext) -> list[str]:
    """Groups that sum gradients: data parallel ones, or the only group there is."""
    declared = [row[0] for row in context.rows("SELECT DISTINCT \"group\" FROM groups WHERE kind = 'dp'")]
    if declared:
        return [str(group) for group in declared]
    # Where no sizes were recorded, long executions count as large; the shortest of them did not wait.
    collective = context.rows(
        'SELECT "group", median(bytes), quantile_cont(duration, 0.1) FROM collectives '
        "WHERE op IN ('all_reduce', 'reduce_scatter') AND \"group\" IS NOT NULL GROUP BY \"group\""
    )
    sized = any(row[1] for row in collective)
    sizes = {str(group): float((size if sized else took) or 0) for group, size, took in collective}
    return [group for group, size in sizes.items() if size >= 0.5 * max(sizes.values())]


def _last_of_each_step(context: DiagnosisContext, rows: Rows) -> Rows:
    events, timeline = context.timeline.events, context.timeline
    last: dict[tuple[int, int], int] = {}
    for row in rows.tolist():
        last[int(events.rank[row]), int(timeline.step[row])] = int(events.instance[row])
    return np.unique(np.array(list(last.values()), dtype=np.int64))
