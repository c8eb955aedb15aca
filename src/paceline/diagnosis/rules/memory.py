"""Device memory: nearly full, or used very differently by ranks that do the same work."""

from __future__ import annotations

import numpy as np

from paceline.core.schema import INPUT_WAIT
from paceline.diagnosis.confidence import nearer
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule import rule
from paceline.diagnosis.rule_finding import MeasuredValue, Quantity, RuleFinding
from paceline.replay.fixes import reduce_self_time

FULL = 0.95
UNEVEN = 0.25


@rule(priority=120)
def memory_pressure(context: DiagnosisContext) -> list[RuleFinding]:
    known = context.memory.numbers
    shares = dict(zip(known["rank"].astype(int).tolist(), known["share"].tolist(), strict=True))
    full = [(rank, share) for rank, share in shares.items() if share >= FULL]
    if not full:
        return []
    free = context.matrix("free") - np.nan_to_num(context.matrix(INPUT_WAIT))
    calls = context.rows(
        "SELECT count(*) FROM host_calls WHERE lower(name) LIKE '%malloc%' OR lower(name) LIKE '%free%'"
    )
    less = np.maximum(0, np.nan_to_num(free) - 0.015 * context.step_ms * 1e6) if calls[0][0] else np.zeros(free.shape)
    ranks = {rank for rank, _ in full}
    spared = shares.keys() - ranks  # of the others nothing is known: they run the same program
    less[[i for i, info in enumerate(context.ranks) if info.rank in spared]] = 0
    worst = max(share for _, share in full)
    return [
        RuleFinding(
            id="memory-pressure",
            subject=Subject(
                ranks=tuple(sorted(ranks)),
                hosts=tuple(sorted({info.host for info in context.ranks if info.host and info.rank in ranks})),
            ),
            gain=context.gain(reduce_self_time(context.replay, context.replay.costs, less)),
            confidence=0.85,
            amount=Quantity(100 * worst, "%"),
            evidence=(MeasuredValue("peak_memory_share", round(100 * worst, 1), unit="%"),),
            min_severity="medium",
        )
    ]


@rule(priority=130)
def memory_imbalance(context: DiagnosisContext) -> list[RuleFinding]:
    known = context.memory.numbers
    at = {rank: i for i, rank in enumerate(known["rank"].astype(int).tolist())}
    rank_rows = {i: at[info.rank] for i, info in enumerate(context.ranks) if info.rank in at}
    uneven = [
        (rank_row, float(known["peak"][row]), float(known["reference"][row]))
        for rank_row, row in rank_rows.items()
        if known["excess"][row] > UNEVEN
    ]
    if not uneven or len(uneven) > len(context.ranks) // 2:
        return []
    named = [rank_row for rank_row, _, _ in uneven]
    uneven_places = [rank_rows[rank_row] for rank_row in named]
    worst = max(uneven, key=lambda entry: entry[1] / entry[2])
    return [
        RuleFinding(
            id="memory-imbalance",
            subject=Subject(ranks=context.global_ranks(named), hosts=context.hosts_of(named)),
            gain=context.no_gain(),
            confidence=nearer(known["excess"][uneven_places], np.delete(known["excess"], uneven_places), at=UNEVEN),
            amount=Quantity(100 * (worst[1] / worst[2] - 1), "%"),
            evidence=(MeasuredValue("peak_memory", round(worst[1] / 2**30, 2), round(worst[2] / 2**30, 2), "GiB"),),
            min_severity="medium",
        )
    ]
