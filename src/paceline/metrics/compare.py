"""Two runs side by side: what became faster or slower, and what is only noise.

Every quantity is a series over steps, reduced to its median and its spread:

    sigma  = 1.4826 · b(n) · MAD over n steps; for ranks, operators and links at least their median relative sigma
    noise  = 3 · max(sigma before, sigma after)
    real   = |after - before| > noise  and  |after - before| > 1 % of before  and, for times, > 0.1 % of the step

b(n) corrects the MAD of few values (Croux and Rousseeuw 1992). The floor among many alike is there because one of them
always has a MAD that is small by chance. Where neither run has three steps the spread is unknown: sigma is taken as 1 %.

    step time, parts    mean over ranks, ms, so the parts of a step still add up; see metrics/steps.py
    ranks               self time, ms; see metrics/self_time.py
    operators           time by operator type, mean over ranks, ms per step
    links, transports   sum(bytes) / sum(time), GB/s

Steps, parts and self time are of the steps that count. Ranks, operators and links are compared only between runs of the
same ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from paceline.core.errors import UsageError
from paceline.metrics.rank_performance import RankPerformance, rank_performance
from paceline.metrics.steps import PARTS, mean_by
from paceline.run.run import Run

Floats = NDArray[np.float64]

SIGMAS = 3.0
EFFECT_FLOOR = 0.01
STEP_FLOOR = 0.001
"""A change of a part, rank or operator that is less of the step than this is not reported."""
FEWEST_STEPS = 3
UNKNOWN_SIGMA = 0.01
"""Relative sigma where no run has enough steps to tell."""
_FEW = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}


@dataclass(frozen=True)
class Sample:
    """A quantity of one run: its median over steps, their spread, and how many there were."""

    median: float
    sigma: float
    count: int


Verdict = Literal["faster", "slower", "same", "more", "less"]


class LinkKey(NamedTuple):
    src: int
    dst: int
    transport: str

    def __str__(self) -> str:
        return f"{self.src} → {self.dst} {self.transport}"


Key = TypeVar("Key", str, int, LinkKey)
"""What tells the rows of a table apart: a name, a rank or a link."""


@dataclass(frozen=True)
class Change:
    """One quantity in both runs. `verdict` is faster, slower or same; more or less where neither is good or bad."""

    key: str | int | LinkKey
    unit: str
    before: float
    after: float
    noise: float
    verdict: Verdict

    @property
    def name(self) -> str:
        return str(self.key)

    @property
    def percent(self) -> float | None:
        return 100 * (self.after / self.before - 1) if self.before else None

    @property
    def noise_percent(self) -> float | None:
        """Noise in percent of the value before."""
        return 100 * self.noise / abs(self.before) if self.before else None


@dataclass(frozen=True)
class Comparison:
    """Everything compared; tables are ordered by the size of the change, real ones first."""

    step: Change
    phases: tuple[Change, ...]
    same_ranks: bool
    ranks: tuple[Change, ...] = ()
    operators: tuple[Change, ...] = ()
    transports: tuple[Change, ...] = ()
    links: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Measured:
    """What is compared of one run: key → sample, a table each."""

    ranks: frozenset[int]
    step: Mapping[str, Sample]
    phases: Mapping[str, Sample]
    by_rank: Mapping[int, Sample] = field(default_factory=dict)
    operators: Mapping[str, Sample] = field(default_factory=dict)
    transports: Mapping[str, Sample] = field(default_factory=dict)
    links: Mapping[LinkKey, Sample] = field(default_factory=dict)


def compare(before: Measured, after: Measured) -> Comparison:
    """Put two runs side by side."""
    if not before.step or not after.step:
        which = "the run before" if not before.step else "the run after"
        raise UsageError(f"{which} recorded no step times: there is nothing to compare")
    step = changes(before.step, after.step, "ms", alike=False)[0]
    least = STEP_FLOOR * step.before
    phases = _phases(changes(before.phases, after.phases, "ms", alike=False, least=least))
    if before.ranks != after.ranks:
        return Comparison(step, phases, same_ranks=False)
    return Comparison(
        step,
        phases,
        same_ranks=True,
        ranks=changes(before.by_rank, after.by_rank, "ms", least=least),
        operators=changes(*_filled(before.operators, after.operators), "ms", least=least),
        transports=changes(before.transports, after.transports, "GB/s", more_is_faster=True),
        links=changes(before.links, after.links, "GB/s", more_is_faster=True),
    )


def _phases(found: tuple[Change, ...]) -> tuple[Change, ...]:
    """In the order of a step, those that either run has; overlapped communication is neither faster nor slower."""
    neutral: dict[str, Verdict] = {"slower": "more", "faster": "less", "same": "same"}
    by_name = {change.name: change for change in found if change.before or change.after}
    if "overlapped" in by_name:
        by_name["overlapped"] = replace(by_name["overlapped"], verdict=neutral[by_name["overlapped"].verdict])
    return tuple(by_name[name] for name in PARTS if name in by_name)


def changes(
    before: Mapping[Key, Sample],
    after: Mapping[Key, Sample],
    unit: str,
    *,
    alike: bool = True,
    more_is_faster: bool = False,
    least: float = 0.0,
) -> tuple[Change, ...]:
    """What both runs know, real changes first, largest first. `alike`: rows are of one kind and share their noise."""
    shared = max(_median_sigma(before), _median_sigma(after)) if alike else 0.0
    shared = shared or _unknown(before, after)
    found = []
    for key in sorted(before.keys() & after.keys()):
        old, new = before[key], after[key]
        noise = SIGMAS * max(old.sigma, new.sigma, shared * max(abs(old.median), abs(new.median)))
        difference = new.median - old.median
        real = abs(difference) > max(noise, EFFECT_FLOOR * abs(old.median), least)
        better = (difference > 0) == more_is_faster
        verdict: Verdict = ("faster" if better else "slower") if real else "same"
        found.append(Change(key, unit, old.median, new.median, noise, verdict))
    # Of equal changes, in the order of the keys: rank 9 before rank 10.
    return tuple(sorted(found, key=lambda c: (c.verdict == "same", -abs(c.after - c.before))))


def _median_sigma(samples: Mapping[Key, Sample]) -> float:
    """The median relative sigma of a table: 0 where no row has enough steps."""
    known = [s.sigma / abs(s.median) for s in samples.values() if s.count >= FEWEST_STEPS and s.median]
    return float(np.median(known)) if known else 0.0


def _unknown(before: Mapping[Key, Sample], after: Mapping[Key, Sample]) -> float:
    enough = any(sample.count >= FEWEST_STEPS for samples in (before, after) for sample in samples.values())
    return 0.0 if enough else UNKNOWN_SIGMA


def _filled(
    before: Mapping[str, Sample], after: Mapping[str, Sample]
) -> tuple[Mapping[str, Sample], Mapping[str, Sample]]:
    """Operators of one run only take no time in the other, if both spell operators alike (half are common)."""
    common, every = before.keys() & after.keys(), before.keys() | after.keys()
    if 2 * len(common) < len(every):
        return before, after
    nothing = dict.fromkeys(every, Sample(0.0, 0.0, 0))
    return {**nothing, **before}, {**nothing, **after}


# -- reading a run ----------------------------------------------------------------------------------------------------


def measure(run: Run) -> Measured:
    """Reduce a run to what is compared."""
    run.load(["ranks", "steps", "links", "kernels", "operators"])
    ranks = run.sql("SELECT rank FROM ranks WHERE format IS NOT NULL").fetchall()
    operators = _named_samples(run, _KERNELS) or _named_samples(run, _OPERATORS)
    performance = rank_performance(run)
    steps = _by_step(performance)
    return Measured(
        ranks=frozenset(row[0] for row in ranks),
        step={"step": steps["duration"]} if steps else {},
        phases={part: steps[part] for part in PARTS} if steps else {},
        by_rank=_by_rank(performance),
        operators=operators,
        transports=_named_samples(run, _LINKS.format(columns="transport AS name")),
        links={LinkKey(*key): sample for *key, sample in _samples(run, _LINKS.format(columns=_LINK), _LINK)},
    )


def _by_step(performance: RankPerformance) -> dict[str, Sample]:
    """Duration and parts, mean over the ranks of each step; {} where no step was recorded."""
    numbers = performance.rank_steps.numbers
    steady = (numbers["steady"] > 0) & ~np.isnan(numbers["step"])
    if not steady.any():
        return {}
    values = {name: numbers[name][steady] for name in ("duration", *PARTS)}
    _, means = mean_by(numbers["step"][steady].astype(np.int64), values)
    return {name: _sample(series) for name, series in means.items()}


def _by_rank(performance: RankPerformance) -> dict[int, Sample]:
    """Self time of each rank."""
    rows = zip(performance.ranks.tolist(), performance.self_time / 1e6, strict=True)
    return {rank: _sample(known) for rank, times in rows if len(known := times[~np.isnan(times)])}


def _sample(series: Floats) -> Sample:
    median, count = float(np.median(series)), len(series)
    return Sample(median, 1.4826 * float(np.median(np.abs(series - median))) * _few(count), count)


def _named_samples(run: Run, series: str) -> dict[str, Sample]:
    return {str(name): sample for name, sample in _samples(run, series, "name")}


def _samples(run: Run, series: str, columns: str) -> Iterator[tuple[Any, ...]]:
    """Rows with these columns and `value`, one per step, reduced by the columns: (*columns, sample)."""
    rows: list[tuple[Any, ...]] = run.sql(
        f"SELECT {columns}, median(value), 1.4826 * mad(value), count(*) FROM ({series}) "
        "WHERE value IS NOT NULL GROUP BY ALL"
    ).fetchall()
    for *key, median, sigma, count in rows:
        yield *key, Sample(float(median), float(sigma or 0) * _few(count), count)


def _few(count: int) -> float:
    """b(n): what makes the MAD of n normal values an unbiased sigma."""
    return _FEW.get(count, count / (count - 0.8))


_KERNELS = """
    WITH
    recorded AS (SELECT step, count(DISTINCT rank) AS ranks FROM kernels GROUP BY step),
    spent AS (
        SELECT coalesce(type, name) AS name, step, sum(duration) AS time FROM kernels
        WHERE core IS DISTINCT FROM 'COMMUNICATION' AND step IS NOT NULL GROUP BY ALL
    ),
    names AS (SELECT DISTINCT name FROM spent)
    -- A step without the operator counts as 0.
    SELECT name, step, coalesce(time, 0) / ranks / 1e6 AS value
    FROM (FROM names CROSS JOIN recorded WHERE step IS NOT NULL) LEFT JOIN spent USING (name, step)
"""
# Whole recordings only: the series then runs over ranks.
_OPERATORS = """
    WITH counted AS (SELECT rank, count(*) AS steps FROM steps GROUP BY rank)
    SELECT name, sum(time) / any_value(steps) / 1e6 AS value
    FROM operators JOIN counted USING (rank)
    WHERE level = 'type' AND core IS DISTINCT FROM 'COMMUNICATION' GROUP BY rank, name
"""
_LINKS = """
    SELECT {columns}, step, sum(bytes) / nullif(sum(duration), 0) AS value FROM links
    WHERE scope = 'global' AND transport <> 'LOCAL' AND src <> dst GROUP BY ALL
"""
_LINK = "src, dst, transport"
