"""A view for people and programs: a table, one line, or JSON (`"schema": "paceline.watch/1"`)."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from paceline.watch.judge import RankView, View
from paceline.watch.ranks import Event

SCHEMA = "paceline.watch/1"
_TOLD = ("stall", "exception", "sigterm", "lost")
_MOST_NAMED = 8


def headline(view: View) -> str:
    """step 412 · 51.3 ms a step, 2 % slower than before · slowest rank 2 (vm): own work 30.4 ms, peers 18.8, +61 %."""
    text = f"step {view.step} · {view.step_ms:.1f} ms a step"
    if abs(view.trend) >= 0.01:
        text += f", {abs(view.trend) * 100:.0f} % {'slower' if view.trend > 0 else 'faster'} than before"
    slowest = view.ranks[0]
    if len(view.ranks) > 1 and not math.isnan(slowest.excess):
        text += f" · slowest {named(slowest)}: {_against(slowest)}{'' if slowest.chronic else ', within noise'}"
    return text


def notices(view: View) -> list[str]:
    """What is wrong besides slowness: ranks that are missing, silent, or ended badly."""
    told = []
    if view.missing:
        told.append(f"no recording yet of {_some(view.missing)} (of {view.world_size})")
    silent = sorted((rank for rank in view.ranks if rank.silent_s), key=lambda rank: (rank.step, -rank.silent_s))
    if silent and len(silent) == len(view.ranks):
        behind = [rank.rank for rank in silent if rank.step == silent[0].step]
        least = f"; {_some(tuple(behind))} came least far (step {silent[0].step})" if len(behind) < len(silent) else ""
        told.append(f"no rank has written for {min(rank.silent_s for rank in silent):.0f} s{least}")
    elif silent:
        told += [f"{named(rank)} stopped writing {rank.silent_s:.0f} s ago, after step {rank.step}" for rank in silent]
    for rank in sorted(view.ranks, key=lambda rank: rank.rank):
        told += [f"{named(rank)}: {_told(event)}" for event in rank.events if event.kind in _TOLD]
    return told


def alert(rank: RankView) -> str:
    return f"{named(rank)} is a chronic straggler: {_against(rank)}"


def as_table(view: View, *, top: int) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rank", "step", "step ms", "own ms", "peers ms", "data ms", "slower"):
        table.add_column(name, justify="right")
    table.add_column("host")
    for rank in view.ranks[:top]:
        table.add_row(
            str(rank.rank), str(rank.step), _ms(rank.step_ms), _ms(rank.own_ms), _ms(rank.peers_ms), _ms(rank.data_ms),
            _percent(rank.excess), escape(rank.host), style="bold red" if rank.chronic else "dim" if rank.silent_s else "",
        )  # fmt: skip
    rest = len(view.ranks) - top
    lines = [Text(headline(view), style="bold"), Text(_title(view), style="dim"), Text("")]
    more = [Text(f"… and {rest} ranks that are no slower", style="dim")] if rest > 0 else []
    return Group(*lines, table, *more, Text(""), *(Text(f"! {notice}", style="yellow") for notice in notices(view)))


def as_json(view: View) -> dict[str, Any]:
    return {
        "schema": SCHEMA, "job": view.job, "world_size": view.world_size, "step": view.step,
        "step_ms": {"median": _number(view.step_ms), "last": _number(view.last_ms)}, "trend": _number(view.trend),
        "window": view.window, "threshold": _number(view.threshold), "missing_ranks": list(view.missing),
        "finished": view.finished, "alerts": [rank.rank for rank in view.alerts], "notices": notices(view),
        "ranks": [
            {"rank": rank.rank, "host": rank.host, "step": rank.step, "step_ms": _number(rank.step_ms),
             "own_ms": _number(rank.own_ms), "peers_ms": _number(rank.peers_ms), "data_ms": _number(rank.data_ms),
             "excess": _number(rank.excess), "chronic": rank.chronic, "silent_s": _number(rank.silent_s)}
            for rank in view.ranks
        ],
    }  # fmt: skip


def named(rank: RankView) -> str:
    return f"rank {rank.rank} ({rank.host})" if rank.host else f"rank {rank.rank}"


def _told(event: Event) -> str:
    return f"{event.kind} in step {event.step}{': ' if event.text else ''}{event.text}"


def _title(view: View) -> str:
    job = f"job {view.job} · " if view.job else ""
    return f"{job}{len(view.ranks)} of {view.world_size} ranks · medians of the last {view.window} steps, slowest first"


def _against(rank: RankView) -> str:
    return f"own work {rank.own_ms:.1f} ms a step, peers {rank.peers_ms:.1f}, {_percent(rank.excess)}"


def _ms(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:,.1f}"


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{round(100 * value):+d} %"


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def _some(ranks: tuple[int, ...]) -> str:
    names = ", ".join(map(str, ranks[:_MOST_NAMED])) + (" …" if len(ranks) > _MOST_NAMED else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {names}"
