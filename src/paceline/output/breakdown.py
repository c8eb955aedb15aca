"""The breakdown of steps by rank as public JSON, schema "paceline.breakdown/1"."""

from __future__ import annotations

import math

import msgspec

from paceline.metrics.breakdown import Breakdown

SCHEMA = "paceline.breakdown/1"


class RankBreakdown(msgspec.Struct, frozen=True):
    """Mean over the steps of a rank that count, ms per step; the parts add up to the step."""

    rank: int
    steps: int
    step_ms: float
    compute_ms: float
    overlapped_ms: float
    communication_ms: float
    """Exposed communication and waiting."""
    tail_ms: float
    free_ms: float
    data_ms: float
    """Input wait."""
    unknown_ms: float
    """Nobody recorded how the device spent it."""
    self_time_ms: float | None
    reference_ms: float | None
    """Self time of the peers."""
    excess: float | None
    """self time / reference - 1; null for a rank without peers."""


class SlowRankRow(msgspec.Struct, frozen=True):
    """A rank whose self time is persistently above that of its peers."""

    rank: int
    percent: float
    self_time_ms: float
    reference_ms: float


class BreakdownDocument(msgspec.Struct, frozen=True, tag=SCHEMA, tag_field="schema"):
    """How each rank spent its steps, and which ranks are slower than their peers."""

    ranks: tuple[RankBreakdown, ...]
    slow: tuple[SlowRankRow, ...]
    warnings: tuple[str, ...]


def breakdown_document(found: Breakdown) -> BreakdownDocument:
    names = [f"{name}_ms" for name in found.parts]
    return BreakdownDocument(
        ranks=tuple(
            RankBreakdown(
                rank=rank,
                steps=found.steps[at],
                **{name: column[at] for name, column in zip(names, found.parts.values(), strict=True)},
                self_time_ms=_known(found.self_time[at]),
                reference_ms=_known(found.reference[at]),
                excess=_known(found.excess[at]),
            )
            for at, rank in enumerate(found.ranks)
        ),
        slow=tuple(SlowRankRow(each.rank, 100 * each.excess, each.self_time, each.reference) for each in found.slow),
        warnings=found.warnings,
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
