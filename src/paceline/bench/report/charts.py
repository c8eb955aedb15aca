"""Charts as SVG text, for a page without scripts: scaling, cards, and the trend of a benchmark over time."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from paceline.bench.report.page import number
from paceline.bench.report.words import word
from paceline.bench.result import Measurement, Result

_WIDTH, _HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 34, 34
_MOST_LABELS = 12


def scaling_chart(sizes: Sequence[Measurement], language: str) -> str:
    """Throughput over ranks, with the straight line of perfect scaling."""
    ranks = [size.ranks for size in sizes]
    base = sizes[0].throughput.mean / ranks[0]
    frame = _Frame(max(ranks), max(max(size.throughput.mean for size in sizes), base * max(ranks)))
    end = f"{frame.x(max(ranks)):.1f},{frame.y(base * max(ranks)):.1f}"
    ideal = f'<path class="ideal" d="M{frame.x(0):.1f},{frame.y(0):.1f}L{end}"/>'
    points = [(frame.x(size.ranks), frame.y(size.throughput.mean)) for size in sizes]
    dots = "".join(
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4.5"><title>{size.ranks}: {number(size.throughput.mean)}'
        f'</title></circle><text class="label" x="{x:.1f}" y="{frame.bottom + 18}" text-anchor="middle">{size.ranks}</text>'
        for size, (x, y) in zip(sizes, points, strict=True)
    )
    keys = _keys([("dot", word("measured", language)), ("ideal", word("ideal", language))])
    return _svg(word("efficiency_chart", language), frame.axis() + ideal + _line(points) + dots + keys)


def bars(names: Sequence[str], values: Sequence[float], culprits: set[str], title: str) -> str:
    """One bar each; culprits red and nothing else red."""
    frame = _Frame(len(values), max(values))
    step = (frame.right - frame.left) / len(values)
    every = max(1, len(values) // _MOST_LABELS)
    drawn = []
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        x, y = frame.left + place * step, frame.y(value)
        kind = "culprit" if name in culprits else "bar"
        drawn.append(
            f'<rect class="{kind}" x="{x + step * 0.1:.1f}" y="{y:.1f}" width="{step * 0.8:.1f}" '
            f'height="{frame.bottom - y:.1f}"><title>{escape(name)}: {number(value)}</title></rect>'
        )
        if place % every == 0:
            middle = x + step / 2
            drawn.append(
                f'<text class="label" x="{middle:.1f}" y="{frame.bottom + 18}" text-anchor="middle">{escape(name)}</text>'
            )
    return _svg(title, frame.axis() + "".join(drawn))


def trend(results: Sequence[Result], title: str) -> str:
    """Throughput of one benchmark's runs in their order, with the deviation of each as a whisker."""
    spreads = [result.largest.throughput for result in results]
    frame = _Frame(max(1, len(spreads) - 1), max(each.mean + (each.deviation or 0) for each in spreads), inset=24)
    points = [(frame.x(place), frame.y(each.mean)) for place, each in enumerate(spreads)]
    drawn = [_line(points)]
    every = max(1, -(-len(results) // 6))
    for place, (result, each, (x, y)) in enumerate(zip(results, spreads, points, strict=True)):
        spread = each.deviation or 0.0
        drawn.append(
            f'<path class="whisker" d="M{x:.1f},{frame.y(each.mean + spread):.1f}V{frame.y(max(0, each.mean - spread)):.1f}"/>'
            f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{escape(_when(result))}: '
            f"{number(each.mean)} ± {number(each.deviation)}</title></circle>"
        )
        if place % every == 0:
            drawn.append(
                f'<text class="label" x="{x:.1f}" y="{frame.bottom + 18}" text-anchor="middle">{escape(_when(result))}</text>'
            )
    return _svg(title, frame.axis() + "".join(drawn))


class _Frame:
    """From values to places; both axes begin at 0, so that heights can be compared."""

    def __init__(self, most_x: float, most_y: float, inset: float = 0.0) -> None:
        self.left, self.right, self.bottom = _LEFT, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        self._most_x, self._inset = most_x or 1.0, inset
        self._ticks = _ticks(most_y)

    def x(self, value: float) -> float:
        return self.left + self._inset + value / self._most_x * (self.right - self.left - 2 * self._inset)

    def y(self, value: float) -> float:
        return self.bottom - value / self._ticks[-1] * (self.bottom - _TOP)

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


def _line(points: Sequence[tuple[float, float]]) -> str:
    return f'<path class="line" d="M{"L".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def _keys(keys: Sequence[tuple[str, str]]) -> str:
    drawn, x = [], float(_LEFT)
    for kind, name in keys:
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


def _when(result: Result) -> str:
    """Month-day and time, UTC."""
    return (result.total_start_time or "")[5:16].replace("T", " ")
