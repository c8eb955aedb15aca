"""`paceline breakdown`: how each rank spent its steps, and who is slower than its peers; a first look."""

from __future__ import annotations

import json
import os
from typing import Annotated
from unicodedata import east_asian_width

import typer

from paceline.analysis.breakdown import Breakdown
from paceline.analysis.breakdown import breakdown as look
from paceline.cli.language import Language, is_chinese
from paceline.cli.source import EngineOption, Source, StoreOption, WorkersOption, progress_shown

_WORDS = {
    "head": ("{ranks} rank(s) · mean step {ms:,.1f} ms; below: ms a step",
             "{ranks} 张卡 · 单步均值 {ms:,.1f} 毫秒；下表为每步毫秒数"),
    "more": ("… {n} more ranks: --top 0", "…… 另有 {n} 张卡：--top 0"),
    "slow": ("rank {rank} is {percent:.1f} % slower than its peers: {own:,.1f} ms a step for itself, they {peers:,.1f}",
             "卡 {rank} 比同类慢 {percent:.1f} %：自身每步 {own:,.1f} 毫秒，同类 {peers:,.1f} 毫秒"),
    "healthy": ("No rank is slower than its peers.", "没有明显慢于同类的卡。"),
    "alone": ("No two ranks run the same program: nobody to compare with.", "没有两张卡执行相同的程序，无从比较。"),
    "closer": ("why, and what mending it gains: paceline diagnose {source}",
               "原因与修复收益：paceline diagnose {source}"),
}  # fmt: skip
_HEADERS = (
    ("rank", "steps", "step", "compute", "overlapped", "exposed", "free"),
    ("卡", "步数", "单步", "计算", "已掩盖通信", "未掩盖通信", "空闲"),
)


def breakdown(
    source: Source,
    as_json: Annotated[bool, typer.Option("--json", help="Result as JSON.")] = False,
    top: Annotated[int, typer.Option("--top", min=0, help="Ranks to show, longest step first; 0 = all.")] = 16,
    lang: Annotated[Language, typer.Option("--lang", help="Language of what is said.")] = Language.auto,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Show how each rank spent its steps, and who is slower than its peers.

    A first look: torch traces are read without a store, in a fraction of the time that a diagnosis takes.

    Example:  paceline breakdown traces
    """
    with progress_shown() as advance:
        cores = workers or os.cpu_count() or 1
        found = look(source, store=store, workers=cores, engine=engine, progress=advance)
    for warning in found.warnings:
        typer.echo(f"warning {warning}", err=True)
    if as_json:
        typer.echo(json.dumps(_plain(found), indent=2))
    else:
        _print(found, top, zh=is_chinese(lang), source=str(source))


def _plain(found: Breakdown) -> dict[str, object]:
    rows = zip(found.ranks, found.steps, *found.parts.values(), strict=True)
    names = ("rank", "steps", *(f"{name}_ms" for name in found.parts))
    slow = [
        {"rank": each.rank, "percent": 100 * each.slower, "own_ms": each.own, "peers_ms": each.peers}
        for each in found.slow
    ]
    return {
        "schema": "paceline.breakdown/1",
        "ranks": [dict(zip(names, row, strict=True)) for row in rows],
        "slow": slow,
        "warnings": list(found.warnings),
    }


def _print(found: Breakdown, top: int, *, zh: bool, source: str) -> None:
    steps = found.parts["step"]
    typer.echo(f"\n  {_word('head', zh, ranks=len(found.ranks), ms=sum(steps) / max(1, len(steps)))}\n")
    order = sorted(range(len(found.ranks)), key=lambda at: -steps[at])
    shown = order[: top or None]
    cells = [[str(found.ranks[at]), f"{found.steps[at]:,}", *(f"{found.parts[name][at]:,.1f}" for name in found.parts)]
             for at in shown]  # fmt: skip
    for row in _aligned([list(_HEADERS[zh]), *cells]):
        typer.echo(f"  {row}")
    if len(shown) < len(order):
        typer.echo(f"  {_word('more', zh, n=len(order) - len(shown))}")
    typer.echo()
    for slow in found.slow:
        values = {"rank": slow.rank, "percent": 100 * slow.slower, "own": slow.own, "peers": slow.peers}
        typer.echo(f"  {_word('slow', zh, **values)}")
    verdict = "closer" if found.slow else "healthy" if found.compared else "alone"
    typer.echo(f"  {_word(verdict, zh, source=source)}")


def _aligned(rows: list[list[str]]) -> list[str]:
    """Right-aligned columns; a Chinese character takes two cells."""
    widths = [max(map(_cells, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(" " * (width - _cells(text)) + text for text, width in zip(row, widths, strict=True)) for row in rows
    ]


def _cells(text: str) -> int:
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _word(key: str, zh: bool, **values: object) -> str:
    return _WORDS[key][zh].format(**values)
