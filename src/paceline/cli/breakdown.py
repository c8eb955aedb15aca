"""`paceline breakdown`: how each rank spent its steps, and which ranks are slower than their peers."""

from __future__ import annotations

import math
import os
from unicodedata import east_asian_width

import typer
from typing_extensions import Annotated

from paceline.cli.console.language import LanguageOption, resolve_language
from paceline.cli.options.source_option import EngineOption, Source, StoreOption, WorkersOption, progress_shown
from paceline.core.errors import PacelineError
from paceline.core.i18n import Language, text
from paceline.metrics.breakdown import Breakdown
from paceline.metrics.breakdown import breakdown as look
from paceline.output.breakdown import breakdown_document
from paceline.output.json_text import indented_json

_ALWAYS = ("step", "compute", "overlapped", "communication", "free")
"""Parts that are shown even if they are 0 everywhere."""


def breakdown(
    source: Source,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    top: Annotated[int, typer.Option("--top", min=0, help="Ranks to show, longest step first; 0 = all.")] = 16,
    lang: Annotated[LanguageOption, typer.Option("--lang", help="Language of the output.")] = LanguageOption.auto,
    store: StoreOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = None,
) -> None:
    """Show how each rank spent its steps, and which ranks are slower than their peers.

    A first look: torch traces are read without a store, in a fraction of the time that a diagnosis takes.

    Example:  paceline breakdown traces
    """
    with progress_shown() as advance:
        cores = workers or os.cpu_count() or 1
        found = look(source, store=store, workers=cores, engine=engine, progress=advance)
    for warning in dict.fromkeys(found.warnings):  # a file may fail several tables
        typer.echo(f"warning {warning}", err=True)
    if not found.ranks:
        raise PacelineError(f"{source}: no step was recorded", hint="paceline show SOURCE tells what was")
    if as_json:
        typer.echo(indented_json(breakdown_document(found)), nl=False)
    else:
        _print(found, top, language=resolve_language(lang), source=str(source))


def _print(found: Breakdown, top: int, *, language: Language, source: str) -> None:
    steps = found.parts["step"]
    typer.echo(
        f"\n  {text('cli.breakdown.head', language, ranks=len(found.ranks), ms=sum(steps) / max(1, len(steps)))}\n"
    )
    order = sorted(range(len(found.ranks)), key=lambda at: -steps[at])
    shown = order[: top or None]
    parts = [name for name in found.parts if name in _ALWAYS or any(found.parts[name])]
    names = ["rank", "steps", *parts, "self_time", "excess"]
    cells = [
        [
            str(found.ranks[at]),
            f"{found.steps[at]:,}",
            *(_part(found, name, at) for name in parts),
            _cell(found.self_time[at], "{:,.1f}"),
            _cell(100 * found.excess[at], "{:+.1f} %"),
        ]
        for at in shown
    ]
    heads = [text(f"cli.breakdown.column.{name}", language) for name in names]
    for row in _aligned([heads, *cells]):
        typer.echo(f"  {row}")
    if len(shown) < len(order):
        typer.echo(f"  {text('cli.breakdown.more', language, n=len(order) - len(shown))}")
    typer.echo()
    for slow in found.slow:
        values = {"rank": slow.rank, "percent": 100 * slow.excess, "self_ms": slow.self_time, "peers": slow.reference}
        typer.echo(f"  {text('cli.breakdown.slow', language, **values)}")
    verdict = "next" if found.slow else "healthy" if found.compared else "alone"
    typer.echo(f"  {text(f'cli.breakdown.{verdict}', language, source=source)}")


def _part(found: Breakdown, name: str, at: int) -> str:
    """A part of a rank's step; of a device that was not recorded none is known."""
    value = found.parts[name][at]
    is_known = value or not found.parts["unknown"][at] or name == "step"
    return f"{value:,.1f}" if is_known else "–"


def _cell(value: float, form: str) -> str:
    return "–" if math.isnan(value) else form.format(value)


def _aligned(rows: list[list[str]]) -> list[str]:
    """Right-aligned columns; a Chinese character takes two cells."""
    widths = [max(map(_cells, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(" " * (width - _cells(cell)) + cell for cell, width in zip(row, widths, strict=True)) for row in rows
    ]


def _cells(line: str) -> int:
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in line)
