"""Charts of a page as data: values with their intervals; the UI's ValueChart draws them (ui/src/charts/ValueChart.tsx)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class ChartPoint:
    """A value with its label below the axis."""

    label: str
    value: float
    deviation: float | None = None
    """Drawn as a whisker on both sides."""
    count: float | None = None
    """Place on the x axis; None: one after the other."""
    culprit: bool = False
    """Red, and nothing else is."""


@dataclass(frozen=True)
class PageChart:
    kind: Literal["line", "bars", "trend"]
    """line: over a count; bars: from zero; trend: the axis starts near the values."""
    title: str
    points: tuple[ChartPoint, ...]
    axes: tuple[str, str]
    """What x and y are, with their units."""
    legend: tuple[str, ...] = ()
    """Of a line: the values, and the straight line from zero through the first of them."""


def line_chart(
    points: Sequence[ChartPoint], *, title: str, line: str, ideal: str, axes: tuple[str, str] = ("", "")
) -> PageChart:
    """Values over a count, and the straight line from zero through the first of them; `line`, `ideal`: the legend."""
    return PageChart("line", title, tuple(points), axes, (line, ideal))


def bar_chart(
    points: Sequence[ChartPoint], culprits: set[str], title: str, axes: tuple[str, str] = ("", "")
) -> PageChart:
    """One bar each; `culprits` are labels."""
    return PageChart("bars", title, tuple(replace(each, culprit=each.label in culprits) for each in points), axes)


def trend_chart(
    points: Sequence[ChartPoint],
    title: str,
    *,
    culprits: frozenset[int] = frozenset(),
    axes: tuple[str, str] = ("", ""),
) -> PageChart:
    """Values in their order, with the deviation of each; `culprits` are places."""
    marked = (replace(each, culprit=place in culprits) for place, each in enumerate(points))
    return PageChart("trend", title, tuple(marked), axes)
