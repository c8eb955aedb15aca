"""A report on a terminal: the answer, then the tables that prove it."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table as RichTable

from paceline.bench.report.page import Page, Table
from paceline.bench.report.words import word

_LATER = ("cards", "times", "provenance")
"""Sections that the JSON and the pages have; a screen is for the answer."""


def print_page(page: Page, *, whole: bool = False) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    later = () if whole else tuple(word(name, page.language) for name in _LATER)
    console.print(f"\n  [bold]{escape(page.title)}[/]   {escape(page.headline)}\n", soft_wrap=True)
    for section in page.sections:
        if section.title in later:
            continue
        console.print(f"  [dim]{escape(section.title)}[/]")
        for sentence in section.sentences:
            console.print(f"    {escape(sentence)}", soft_wrap=True)
        if section.table is not None:
            console.print(Padding(_table(section.table), (0, 0, 0, 4)))
        console.print()


def _table(table: Table) -> RichTable:
    shown = RichTable(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for place, head in enumerate(table.heads):
        shown.add_column(head, justify="left" if place in table.texts else "right", overflow="fold")
    for row in table.rows:
        shown.add_row(*(escape(cell) for cell in row))
    return shown
