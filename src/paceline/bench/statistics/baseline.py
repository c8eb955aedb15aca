"""Compare a result with a baseline: better, worse, or within noise.

    noise  = t · sqrt(s1² / n1 + s2² / n2)      s, n: deviation and number of repetitions of each side
    real   = |after - before| > noise  and  > 1 % of before

t is Student's for 95 % and n1 + n2 - 2 degrees of freedom. A side that was run once gets the other's deviation; when
both were run once, their noise is unknown and 3 % of the value is assumed.
"""

from __future__ import annotations

import math

from paceline.bench.result import BaselineComparison, BenchResult, Measurement, SpreadPart
from paceline.bench.spread import student
from paceline.core.errors import UsageError
from paceline.core.i18n import text

EFFECT_FLOOR = 0.01
UNKNOWN_NOISE = 0.03


def compare(result: BenchResult, baseline: BenchResult, called: str) -> tuple[BaselineComparison, ...]:
    """Throughput and accuracy of every size that both have; higher is better."""
    before = {(each.ranks, each.nodes): each for each in baseline.measurements}
    found: list[BaselineComparison] = []
    for after in result.measurements:
        known = before.get((after.ranks, after.nodes))
        if known is not None:
            found += _of_size(known, after, called)
    if not found:
        sizes = ", ".join(str(each.ranks) for each in baseline.measurements)
        raise UsageError(
            f"{called}: the baseline has {sizes} rank(s); this run has no such size",
            hint="compare runs with the same number of ranks",
        )
    return tuple(found)


def _of_size(before: Measurement, after: Measurement, called: str) -> list[BaselineComparison]:
    found = [_compared(before.throughput, after.throughput, ("throughput", after.ranks), called)]
    if before.accuracy is not None and after.accuracy is not None:
        found.append(_compared(before.accuracy, after.accuracy, ("accuracy", after.ranks), called))
    return found


def _compared(before: SpreadPart, after: SpreadPart, metric: tuple[str, int], called: str) -> BaselineComparison:
    name, ranks = metric
    change, expected = after.mean - before.mean, noise(before, after)
    real = abs(change) > max(expected, EFFECT_FLOOR * abs(before.mean))
    return BaselineComparison(
        baseline=called,
        metric=f"{name}, {text('bench.size', 'en', n=ranks)}",
        before=before.mean,
        after=after.mean,
        noise=expected,
        percent=100 * change / before.mean if before.mean else 0.0,
        verdict="same" if not real else "better" if change > 0 else "worse",
        name=name,
        ranks=ranks,
    )


def noise(before: SpreadPart, after: SpreadPart) -> float:
    """How much two means may differ by chance."""
    known = [side.deviation for side in (before, after) if side.deviation is not None]
    if not known:
        return UNKNOWN_NOISE * abs(before.mean)
    variance = sum(
        (known[0] if side.deviation is None else side.deviation) ** 2 / side.count for side in (before, after)
    )
    freedom = before.count + after.count - 2
    return student(freedom) * math.sqrt(variance)
