"""Thresholds of bench.yaml's `expect:`, and whether a result meets them: PASS or FAIL.

    expect: {throughput: 1200, efficiency: 0.9, accuracy: 0.75, deviation: 3}      stragglers: 0 is always expected

Means are compared with thresholds; where the 95 % interval contains the threshold the verdict says so, and more
repetitions would make it sure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from paceline.bench.result import BenchResult, ExpectationPart, Measurement, interval_of
from paceline.bench.statistics.stragglers import stragglers
from paceline.jobs.description import YamlMapping

Positive = Annotated[float, msgspec.Meta(gt=0)]


class Expectations(YamlMapping, frozen=True):
    """Of the largest size; None = not expected."""

    throughput: Positive | None = None
    """At least, in samples/s."""
    per_rank: Positive | None = None
    tokens_per_second_per_card: Positive | None = None
    mfu: Positive | None = None
    efficiency: Positive | None = None
    accuracy: Positive | None = None
    time_to_quality: Positive | None = None
    """At most, in seconds."""
    deviation: Positive | None = None
    """At most, in percent of the mean."""
    stragglers: Annotated[int, msgspec.Meta(ge=0)] = 0
    """At most."""


def check_expectations(result: BenchResult, wanted: Expectations) -> tuple[ExpectationPart, ...]:
    return tuple(_checks(result.largest, wanted))


def _checks(size: Measurement, wanted: Expectations) -> Iterator[ExpectationPart]:
    throughput = size.throughput
    deviation = None
    if throughput.deviation is not None and throughput.mean:
        deviation = 100 * throughput.deviation / throughput.mean
    at_least = {
        "throughput": (wanted.throughput, throughput.mean, interval_of(throughput)),
        "per_rank": (wanted.per_rank, size.per_rank, None),
        "tokens_per_second_per_card": (wanted.tokens_per_second_per_card, size.tokens_per_second_per_card, None),
        "mfu": (wanted.mfu, size.mfu, None),
        "efficiency": (wanted.efficiency, size.efficiency, size.efficiency_interval),
        "accuracy": (
            wanted.accuracy,
            size.accuracy.mean if size.accuracy else None,
            interval_of(size.accuracy) if size.accuracy else None,
        ),
    }
    for name, (limit, value, interval) in at_least.items():
        if limit is not None:
            yield _part(name, limit, value, interval, at_least=True)
    for name, most, value in (
        ("time_to_quality", wanted.time_to_quality, size.time_to_quality),
        ("deviation", wanted.deviation, deviation),
        ("stragglers", wanted.stragglers, float(len(stragglers(size)))),
    ):
        if most is not None:
            yield _part(name, float(most), value, None, at_least=False)


def _part(name: str, limit: float, value: float | None, interval: float | None, *, at_least: bool) -> ExpectationPart:
    """What was not measured does not pass."""
    passed = value is not None and (value >= limit if at_least else value <= limit)
    sure = value is None or interval is None or abs(value - limit) > interval
    return ExpectationPart(
        metric=name, limit=limit, relation=">=" if at_least else "<=", value=value, passed=passed, sure=sure
    )
