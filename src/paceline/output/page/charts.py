"""SVG charts for a page without scripts: a line with a reference, bars, and a trend with deviations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from paceline.output.page.page import format_number

_WIDTH, _HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 34, 34
_MOST_BAR_LABELS = 12
_MOST_TREND_LABELS = 6


@dataclass(frozen=True)
class ChartPoint:
    """A value with its label below the axis."""

    label: str
    value: float
    deviation: float | None = None


def line_chart(
    points: Sequence[tuple[int, float]],
    *,
    title: str,
    line: str,
    ideal: str,
    intervals: Sequence[float | None] = (),
    axes: tuple[str, str] = ("", ""),
) -> str:
    """Values over a count, and the straight line from zero through the first of them; `line`, `ideal`: the legend.

    `intervals`: half of each value's interval, drawn as a whisker; `axes`: what x and y are, with their units.
    """
    counts = [count for count, _ in points]
    first_count, first_value = points[0]
    ideal_end = first_value / first_count * max(counts)
    spread = [each or 0.0 for each in intervals] or [0.0] * len(points)
    # A whisker longer than the value would leave no room for the values.
    spread = [min(each, value) for each, (_, value) in zip(spread, points, strict=True)]
    highest = max(value + each for (_, value), each in zip(points, spread, strict=True))
    frame = _Frame(max(counts), max(highest, ideal_end))
    end = f"{frame.x(max(counts)):.1f},{frame.y(ideal_end):.1f}"
    straight = f'<path class="ideal" d="M{frame.x(0):.1f},{frame.y(0):.1f}L{end}"/>'
    places = [(frame.x(count), frame.y(value)) for count, value in points]
    dots = "".join(
        f'<path class="whisker" d="M{x:.1f},{frame.y(value + each):.1f}V{frame.y(value - each):.1f}"/>'
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4.5"><title>{count}: {format_number(value)}'
        f"{f' ± {format_number(each)}' if each else ''}</title></circle>{frame.label(x, str(count))}"
        for (count, value), each, (x, y) in zip(points, spread, places, strict=True)
    )
    legend = _legend([("dot", line), ("ideal", ideal)])
    return _svg(title, frame.axis() + frame.names(axes) + straight + _line(places) + dots + legend)


def bar_chart(points: Sequence[ChartPoint], culprits: set[str], title: str, axes: tuple[str, str] = ("", "")) -> str:
    """One bar each; culprits red and nothing else red."""
    frame = _Frame(len(points), max(point.value for point in points))
    step = (frame.right - frame.left) / len(points)
    every = max(1, len(points) // _MOST_BAR_LABELS)
    drawn = []
    for place, point in enumerate(points):
        x, y = frame.left + place * step, frame.y(point.value)
        kind = "culprit" if point.label in culprits else "bar"
        drawn.append(
            f'<rect class="{kind}" x="{x + step * 0.1:.1f}" y="{y:.1f}" width="{step * 0.8:.1f}" '
            f'height="{frame.bottom - y:.1f}"><title>{escape(point.label)}: {format_number(point.value)}</title></rect>'
        )
        if place % every == 0:
            drawn.append(frame.label(x + step / 2, point.label))
    return _svg(title, frame.axis() + frame.names(axes) + "".join(drawn))


def trend_chart(
    points: Sequence[ChartPoint],
    title: str,
    *,
    culprits: frozenset[int] = frozenset(),
    axes: tuple[str, str] = ("", ""),
) -> str:
    """Values in their order, with the deviation of each as a whisker; the axis starts near them, culprits are red."""
    highest = max(point.value + (point.deviation or 0) for point in points)
    lowest = min(point.value - (point.deviation or 0) for point in points)
    frame = _Frame(max(1, len(points) - 1), highest, inset=24, near=max(0.0, lowest))
    places = [(frame.x(place), frame.y(point.value)) for place, point in enumerate(points)]
    drawn = [_line(places)]
    every = max(1, -(-len(points) // _MOST_TREND_LABELS))
    for place, (point, (x, y)) in enumerate(zip(points, places, strict=True)):
        spread = point.deviation or 0.0
        low, high = frame.y(max(0, point.value - spread)), frame.y(point.value + spread)
        drawn.append(
            f'<path class="whisker" d="M{x:.1f},{high:.1f}V{low:.1f}"/>'
            f'<circle class="{"culprit" if place in culprits else "dot"}" cx="{x:.1f}" cy="{y:.1f}" r="4">'
            f"<title>{escape(point.label)}: {format_number(point.value)} ± {format_number(point.deviation)}"
            "</title></circle>"
        )
        if place % every == 0:
            drawn.append(frame.label(x, point.label))
    return _svg(title, frame.axis() + frame.names(axes) + "".join(drawn))


class _Frame:
    """Maps values to pixels; axes begin at 0, so that heights can be compared, except `near` the data of a trend."""

    def __init__(self, most_x: float, most_y: float, inset: float = 0.0, near: float = 0.0) -> None:
        self.left, self.right, self.bottom = _LEFT, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        self._most_x, self._inset = most_x or 1.0, inset
        self._ticks = _ticks_near(near, most_y) if near > 0 else _ticks(most_y)

    def x(self, value: float) -> float:
        return self.left + self._inset + value / self._most_x * (self.right - self.left - 2 * self._inset)

    def y(self, value: float) -> float:
        first, last = self._ticks[0], self._ticks[-1]
        return self.bottom - (max(value, first) - first) / (last - first) * (self.bottom - _TOP)

    def names(self, axes: tuple[str, str]) -> str:
        """What the axes show: x below its right end, y above its top."""
        x, y = axes
        return (
            f'<text class="label" x="{self.right}" y="{_HEIGHT - 2}" text-anchor="end">{escape(x)}</text>'
            f'<text class="label" x="{self.left - 8}" y="{_TOP - 12}" text-anchor="end">{escape(y)}</text>'
        )

    def label(self, x: float, text: str) -> str:
        return f'<text class="label" x="{x:.1f}" y="{self.bottom + 18}" text-anchor="middle">{escape(text)}</text>'

    def axis(self) -> str:
        return "".join(
            f'<path class="grid" d="M{self.left},{self.y(tick):.1f}H{self.right}"/>'
            f'<text class="label" x="{self.left - 8}" y="{self.y(tick) + 4:.1f}" text-anchor="end">{_plain(tick)}</text>'
            for tick in self._ticks
        )


def _ticks(most: float) -> list[float]:
    """Round steps of 1, 2 or 5 that end above the largest value.

    >>> _ticks(450.6)
    [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]
    """
    if most <= 0:
        return [0.0, 1.0]
    rough = most / 5
    power = 10.0 ** len(str(int(rough))) / 10 if rough >= 1 else 1.0
    while power > rough:
        power /= 10
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    count = int(most / step) + (most % step > 0)
    return [float(f"{step * place:.6g}") for place in range(count + 1)]


def _ticks_near(least: float, most: float) -> list[float]:
    """Round steps around the values, with a margin below them of at least a tenth of the largest.

    >>> _ticks_near(90.5, 100)
    [85.0, 90.0, 95.0, 100.0]
    """
    margin = max(0.1 * most, most - least) / 4
    start = max(0.0, least - margin)
    step = _ticks((most - start) or 1.0)[1]
    first, last = math.floor(start / step), math.ceil(most / step)
    return [float(f"{step * place:.6g}") for place in range(first, max(last, first + 1) + 1)]


def _line(points: Sequence[tuple[float, float]]) -> str:
    return f'<path class="line" d="M{"L".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def _legend(entries: Sequence[tuple[str, str]]) -> str:
    drawn, x = [], float(_LEFT)
    for kind, name in entries:
        sign = (
            f'<circle class="dot" cx="{x + 8}" cy="10" r="4.5"/>'
            if kind == "dot"
            else f'<path class="{kind}" d="M{x},10h18"/>'
        )
        drawn.append(f'{sign}<text class="label" x="{x + 24}" y="14">{escape(name)}</text>')
        x += 60 + 9 * len(name)
    return "".join(drawn)


def _svg(title: str, inside: str) -> str:
    return f'<svg role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}"><title>{escape(title)}</title>{inside}</svg>'


def _plain(tick: float) -> str:
    return f"{tick:,.0f}" if tick.is_integer() else f"{tick:g}"
