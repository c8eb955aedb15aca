"""The overview that `paceline show` prints: ranks and hosts, steps, collectives, links, warnings."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline.cli.console.table_output import format_rows
from paceline.core.i18n import Language, text
from paceline.core.message import message_in
from paceline.metrics.rank_performance import rank_performance
from paceline.metrics.steps import PARTS
from paceline.output.console import Console
from paceline.run.run import TABLE_NAMES, Run

_MOST_RANKS = 12
_MOST_WARNINGS = 8
_PARTS = ("duration", *PARTS, "bubble")


def print_overview(run: Run, language: Language) -> None:
    run.load(["ranks", "steps", "collectives", "links"])
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False, emoji=False)
    console.print(_headline(run, language), soft_wrap=True)
    for title, grid, note in (_steps(run, language), _collectives(run, language), _links(run, language)):
        if grid is not None:
            console.print(f"\n[bold]{title}[/]")
            console.print(grid)
            if note:
                console.print(note, style="dim", soft_wrap=True)
    _print_warnings(run, console, language)
    console.print(
        "\n" + text("cli.overview.tables", language, names=", ".join(TABLE_NAMES)), style="dim", soft_wrap=True
    )


def _headers(names: Sequence[str], language: Language) -> list[str]:
    return [text(f"cli.column.{name}", language) for name in names]


def _headline(run: Run, language: Language) -> str:
    ranks, hosts, stages = _one(
        run, "SELECT count(*) FILTER (format IS NOT NULL), count(DISTINCT host), count(DISTINCT stage) FROM ranks"
    )
    low, high = _one(run, "SELECT min(step), max(step) FROM steps")
    parts = [text("cli.overview.ranks", language, n=ranks)]
    if hosts:
        parts.append(text("cli.overview.host" if hosts == 1 else "cli.overview.hosts", language, n=hosts))
    if stages > 1:
        parts.append(text("cli.overview.stages", language, n=stages))
    if low is None:
        parts.append(text("cli.overview.no_steps", language))
    else:
        parts += [
            text("cli.overview.steps" if high > low else "cli.overview.one_step", language, low=low, high=high),
        ]
    if mean := rank_performance(run).cluster_mean.numbers:
        parts.append(text("cli.overview.mean", language, ms=f"{mean['duration'][0]:,.1f}"))
    parts.append(text("cli.overview.read", language, formats=", ".join(run.formats), mb=f"{run.size / 1e6:,.0f}"))
    return " · ".join(parts)


def _steps(run: Run, language: Language) -> tuple[str, Any, str]:
    means = rank_performance(run).rank_parts
    if not means.length:
        return "", None, ""
    known = {rank: (host, stage) for rank, host, stage in run.sql("SELECT rank, host, stage FROM ranks").fetchall()}
    numbers = means.numbers
    order = np.lexsort((numbers["rank"], -numbers["duration"], -(numbers["compute"] + numbers["overlapped"])))
    shown = [name for name in _PARTS if numbers[name].any()]
    cells = [
        [
            f"{numbers['rank'][row]:.0f}",
            *map(_or_dash, known.get(int(numbers["rank"][row]), (None, None))),
            f"{numbers['steps'][row]:.0f}",
            *(f"{numbers[name][row]:,.1f}" for name in shown),
        ]
        for row in order[:_MOST_RANKS].tolist()
    ]
    labels = _headers(("rank", "host", "stage", "steps", *shown), language)
    hidden = means.length - len(cells)
    more = text("cli.overview.more_ranks", language, n=hidden, source=run.source) if hidden else ""
    right = frozenset(range(len(labels))) - {1}
    return text("cli.overview.step_title", language), format_rows(labels, cells, right=right), more


def _collectives(run: Run, language: Language) -> tuple[str, Any, str]:
    rows = run.connection.execute(
        """
        WITH kinds AS (SELECT "group", any_value(kind) AS kind FROM groups GROUP BY "group")
        SELECT op, coalesce(kind, '–') AS kind, count(DISTINCT rank), count(*), sum(duration),
               sum(wait) FILTER (duration IS NOT NULL), sum(bytes)
        FROM collectives LEFT JOIN kinds USING ("group")
        GROUP BY op, kind ORDER BY sum(duration) DESC NULLS LAST, op, kind
        """
    ).fetchall()
    if not rows:
        return "", None, ""
    labels = _headers(("operator", "group", "ranks", "calls", "time_ms", "wait_ms", "mb"), language)
    cells = [
        [op, kind, str(ranks), f"{calls:,}", _ms(time), _ms(wait), _mb(size)]
        for op, kind, ranks, calls, time, wait, size in rows[:10]
    ]
    return text("cli.overview.collective_title", language), format_rows(labels, cells, right=frozenset(range(2, 7))), ""


def _links(run: Run, language: Language) -> tuple[str, Any, str]:
    rows = run.connection.execute(
        """
        WITH whole AS (
            SELECT "group", src, dst, scope, transport, sum(bytes) AS bytes, sum(duration) AS duration,
                   sum(bytes) / nullif(sum(duration), 0) AS bandwidth
            FROM links GROUP BY ALL
        )
        SELECT transport, scope, count(*), sum(bytes), sum(duration), sum(bytes) / nullif(sum(duration), 0),
               arg_min(src || ' → ' || dst, (bandwidth, src, dst)) FILTER (busy), min(bandwidth) FILTER (busy)
        FROM (
            -- A link that carries little is limited by latency, not by bandwidth.
            SELECT *, bytes >= 0.1 * max(bytes) OVER (PARTITION BY transport, scope) AS busy FROM whole WHERE src <> dst
        )
        GROUP BY transport, scope ORDER BY sum(duration) DESC, transport, scope
        """
    ).fetchall()
    if not rows:
        return "", None, ""
    labels = _headers(("transport", "links", "mb", "time_ms", "gb_s", "slowest_busy_link", "gb_s"), language)
    cells = [
        [
            transport if scope == "global" else text("cli.overview.in_group", language, transport=transport),
            f"{links:,}",
            _mb(size),
            _ms(time),
            _rate(rate),
            slowest or "–",
            _rate(worst),
        ]
        for transport, scope, links, size, time, rate, slowest, worst in rows
    ]
    return text("cli.overview.link_title", language), format_rows(labels, cells, right=frozenset({1, 2, 3, 4, 6})), ""


def _print_warnings(run: Run, console: Console, language: Language) -> None:
    warnings = run.warnings
    if not warnings:
        return
    console.print(f"\n[bold]{text('cli.overview.warnings', language)}[/]")
    for warning in warnings[:_MOST_WARNINGS]:
        console.print("  " + message_in(language, warning.sentence).replace("[", "\\["), soft_wrap=True)
    if len(warnings) > _MOST_WARNINGS:
        more = text("cli.overview.more_warnings", language, n=len(warnings) - _MOST_WARNINGS, source=run.source)
        console.print(f"  {more}", style="dim")


def _one(run: Run, query: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] = run.connection.execute(query).fetchall()[0]
    return row


def _or_dash(value: object) -> str:
    return "–" if value is None else str(value)


def _ms(nanoseconds: float | None) -> str:
    return "–" if nanoseconds is None else f"{nanoseconds / 1e6:,.1f}"


def _mb(size: float | None) -> str:
    return "–" if size is None else f"{size / 1e6:,.1f}"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"
