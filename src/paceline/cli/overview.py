"""The overview of a run on one screen: who recorded what, steps, collectives, links, oddities. English or Chinese."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console

from paceline.cli.language import Language, is_chinese
from paceline.cli.rows import format_rows
from paceline.run.run import TABLE_NAMES, Run

_MOST_RANKS = 12
_MOST_WARNINGS = 8

_WORDS: dict[str, tuple[str, str]] = {
    "ranks": ("{n} ranks", "{n} 张卡"),
    "hosts": ("{n} hosts", "{n} 台主机"),
    "host": ("1 host", "1 台主机"),
    "stages": ("{n} stages", "{n} 个流水线阶段"),
    "steps": ("steps {low}–{high}", "第 {low}–{high} 步"),
    "one step": ("step {low}", "第 {low} 步"),
    "median": ("median step {ms} ms", "单步中位数 {ms} 毫秒"),
    "no steps": ("no steps recorded", "未记录步"),
    "read": ("{formats}, {mb} MB", "{formats}，{mb} MB"),
    "step title": (
        "Steps, ms a step (median over steps), longest computing first",
        "各卡每步耗时（毫秒，取各步中位数），计算耗时长者在前",
    ),
    "more ranks": (
        "… {n} more ranks: paceline show {source} steps",
        "…… 另有 {n} 张卡：paceline show {source} steps",
    ),
    "collective title": (
        "Collectives by operator and group, whole recording",
        "通信算子汇总（按算子与通信域）",
    ),
    "link title": ("Links by transport, bandwidth = bytes / time", "链路汇总（按传输方式），带宽 = 字节数 / 时间"),
    "warnings": ("What is missing or odd", "缺失或异常之处"),
    "more warnings": (
        "… {n} more: paceline show {source} ranks",
        "…… 另有 {n} 条：paceline show {source} ranks",
    ),
    "tables": ("tables  {names}", "数据表  {names}"),
}

_HEADERS: dict[str, str] = {
    "rank": "卡", "host": "主机", "stage": "阶段", "steps": "步数", "step": "单步", "data": "数据等待", "fwd/bwd": "前反向",
    "tail": "拖尾", "computing": "计算", "exposed": "未掩盖通信", "overlapped": "已掩盖通信", "free": "空闲",
    "bubble": "气泡", "operator": "算子", "group": "通信域", "ranks": "卡数", "calls": "次数", "time ms": "时间 毫秒",
    "wait ms": "等待 毫秒", "MB": "MB", "transport": "传输方式", "links": "链路数", "GB/s": "GB/s",
    "slowest busy link": "最慢的繁忙链路",
}  # fmt: skip


def print_overview(run: Run, language: Language) -> None:
    zh = is_chinese(language)
    run.load(["ranks", "steps", "collectives", "links"])
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    console.print(_headline(run, zh), soft_wrap=True)
    for title, grid, note in (_steps(run, zh), _collectives(run, zh), _links(run, zh)):
        if grid is not None:
            console.print(f"\n[bold]{title}[/]")
            console.print(grid)
            if note:
                console.print(note, style="dim", soft_wrap=True)
    _print_warnings(run, console, zh)
    console.print("\n" + _word("tables", zh, names=", ".join(TABLE_NAMES)), style="dim", soft_wrap=True)


def _word(key: str, zh: bool, **values: object) -> str:
    return _WORDS[key][int(zh)].format(**values)


def _headers(names: list[str], zh: bool) -> list[str]:
    return [_HEADERS.get(name, name) for name in names] if zh else names


def _headline(run: Run, zh: bool) -> str:
    ranks, hosts, stages = _one(run, "SELECT count(*) FILTER (format IS NOT NULL), count(DISTINCT host), "
                                     "count(DISTINCT stage) FROM ranks")  # fmt: skip
    low, high, median = _one(run, "SELECT min(step), max(step), median(duration) FROM steps")
    parts = [_word("ranks", zh, n=ranks)]
    if hosts:
        parts.append(_word("host" if hosts == 1 else "hosts", zh, n=hosts))
    if stages > 1:
        parts.append(_word("stages", zh, n=stages))
    if low is None:
        parts.append(_word("no steps", zh))
    else:
        parts += [
            _word("steps" if high > low else "one step", zh, low=low, high=high),
            _word("median", zh, ms=_ms(median)),
        ]
    parts.append(_word("read", zh, formats=", ".join(run.formats), mb=f"{run.size / 1e6:,.0f}"))
    return " · ".join(parts)


def _steps(run: Run, zh: bool) -> tuple[str, Any, str]:
    names = [
        "duration",
        "data_wait",
        "forward_backward",
        "tail",
        "computing",
        "exposed",
        "overlapped",
        "free",
        "bubble",
    ]
    medians = ", ".join(f"median({name}) AS {name}" for name in names)
    rows = run.connection.execute(
        f"""
        WITH usual AS (SELECT rank, count(*) AS steps, {medians} FROM steps GROUP BY rank)
        SELECT rank, host, stage, steps, {", ".join(names)} FROM usual LEFT JOIN ranks USING (rank)
        ORDER BY computing DESC NULLS LAST, forward_backward DESC NULLS LAST, duration DESC, rank
        """
    ).fetchall()
    if not rows:
        return "", None, ""
    labels = _headers(["rank", "host", "stage", "steps", "step", "data", "fwd/bwd", "tail", "computing", "exposed",
                       "overlapped", "free", "bubble"], zh)  # fmt: skip
    kept = [i for i in range(len(labels)) if any(row[i] is not None for row in rows)]
    cells = [[_text(row[i]) if i < 4 else _ms(row[i]) for i in kept] for row in rows[:_MOST_RANKS]]
    right = frozenset(place for place, i in enumerate(kept) if i != 1)
    more = _word("more ranks", zh, n=len(rows) - _MOST_RANKS, source=run.source) if len(rows) > _MOST_RANKS else ""
    return _word("step title", zh), format_rows([labels[i] for i in kept], cells, right=right), more


def _collectives(run: Run, zh: bool) -> tuple[str, Any, str]:
    rows = run.connection.execute(
        """
        WITH kinds AS (SELECT "group", any_value(kind) AS kind FROM groups GROUP BY "group")
        SELECT op, coalesce(kind, '–') AS kind, count(DISTINCT rank), count(*), sum(duration), sum(wait), sum(bytes)
        FROM collectives LEFT JOIN kinds USING ("group")
        GROUP BY op, kind ORDER BY sum(duration) DESC NULLS LAST
        """
    ).fetchall()
    if not rows:
        return "", None, ""
    labels = _headers(["operator", "group", "ranks", "calls", "time ms", "wait ms", "MB"], zh)
    cells = [[op, kind, str(ranks), f"{calls:,}", _ms(time), _ms(wait), _mb(size)]
             for op, kind, ranks, calls, time, wait, size in rows[:10]]  # fmt: skip
    return _word("collective title", zh), format_rows(labels, cells, right=frozenset(range(2, 7))), ""


def _links(run: Run, zh: bool) -> tuple[str, Any, str]:
    rows = run.connection.execute(
        """
        WITH whole AS (
            SELECT "group", src, dst, scope, transport, sum(bytes) AS bytes, sum(duration) AS duration,
                   sum(bytes) / nullif(sum(duration), 0) AS bandwidth
            FROM links GROUP BY ALL
        )
        SELECT transport, scope, count(*), sum(bytes), sum(duration), sum(bytes) / nullif(sum(duration), 0),
               arg_min(src || ' → ' || dst, bandwidth) FILTER (busy), min(bandwidth) FILTER (busy)
        FROM (
            -- Links that only carry crumbs are slow by nature: latency, not bandwidth.
            SELECT *, bytes >= 0.1 * max(bytes) OVER (PARTITION BY transport, scope) AS busy FROM whole WHERE src <> dst
        )
        GROUP BY transport, scope ORDER BY sum(duration) DESC
        """
    ).fetchall()
    if not rows:
        return "", None, ""
    labels = _headers(["transport", "links", "MB", "time ms", "GB/s", "slowest busy link", "GB/s"], zh)
    cells = [[f"{transport}{'' if scope == 'global' else ' (in group)'}", f"{links:,}", _mb(size), _ms(time), _rate(rate),
              slowest or "–", _rate(worst)]
             for transport, scope, links, size, time, rate, slowest, worst in rows]  # fmt: skip
    return _word("link title", zh), format_rows(labels, cells, right=frozenset({1, 2, 3, 4, 6})), ""


def _print_warnings(run: Run, console: Console, zh: bool) -> None:
    warnings = run.warnings
    if not warnings:
        return
    console.print(f"\n[bold]{_word('warnings', zh)}[/]")
    for warning in warnings[:_MOST_WARNINGS]:
        console.print("  " + str(warning).replace("[", "\\["), soft_wrap=True)
    if len(warnings) > _MOST_WARNINGS:
        console.print(
            "  " + _word("more warnings", zh, n=len(warnings) - _MOST_WARNINGS, source=run.source), style="dim"
        )


def _one(run: Run, query: str) -> tuple[Any, ...]:
    row = run.connection.execute(query).fetchone()
    return row if row is not None else (None,) * 8


def _text(value: object) -> str:
    return "–" if value is None else str(value)


def _ms(nanoseconds: float | None) -> str:
    return "–" if nanoseconds is None else f"{nanoseconds / 1e6:,.1f}"


def _mb(size: float | None) -> str:
    return "–" if size is None else f"{size / 1e6:,.1f}"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"
