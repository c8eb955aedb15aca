"""Print a report page on a terminal: the headline, then sections with sentences and tables."""

from __future__ import annotations

import sys

from rich.markup import escape
from rich.padding import Padding
from rich.table import Table as RichTable

from paceline.output.console import Console
from paceline.output.page.page import PageTable, ReportPage

_FILE_WIDTH = 200
"""Of output that is piped or written to a file: no column of a table is folded."""


def print_page(page: ReportPage, *, details: bool = False) -> None:
    """The page without its detail sections, unless they are asked for: a screen is for the answer."""
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, highlight=False)
    console.print(f"\n  [bold]{escape(page.title)}[/]   {escape(page.headline)}\n", soft_wrap=True)
    for section in page.sections:
        if section.detail and not details:
            continue
        console.print(f"  [dim]{escape(section.title)}[/]")
        for sentence in section.sentences:
            console.print(f"    {escape(sentence)}", soft_wrap=True)
        for link in section.links:
            console.print(f"    {escape(link.name)}: {escape(link.target)}", soft_wrap=True)
        if section.table is not None:
            console.print(Padding(_table(section.table), (0, 0, 0, 4), expand=False))
        console.print()


def _table(table: PageTable) -> RichTable:
    shown = RichTable(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for place, head in enumerate(table.heads):
        shown.add_column(head, justify="left" if place in table.texts else "right", overflow="fold")
    for row in table.rows:
        shown.add_row(*(escape(cell) for cell in row))
    return shown
