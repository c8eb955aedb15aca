"""Write a report page as Markdown, for a commit, an issue or a wiki."""

from __future__ import annotations

import re

from paceline.core.text_encoding import without_controls
from paceline.output.page.page import PageTable, ReportPage, link_address

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|])")


def to_markdown(page: ReportPage, *, base: str = "") -> str:
    lines = [f"# {_plain(page.title)}", "", f"**{_plain(page.headline)}**"]
    for section in page.sections:
        lines += ["", f"## {_plain(section.title)}", ""]
        if section.table is not None:
            lines += [_plain(sentence) for sentence in section.sentences] + [""] * bool(section.sentences)
            lines += _table(section.table)
        else:
            lines += [f"- {_plain(sentence)}" for sentence in section.sentences]
            lines += [f"- [{_plain(link.name)}]({link_address(link, base)})" for link in section.links]
    return "\n".join(lines) + "\n"


def _table(table: PageTable) -> list[str]:
    marks = ["---" if place in table.texts else "---:" for place in range(len(table.heads))]
    return [_row(table.heads), _row(tuple(marks), plain=False), *(_row(row) for row in table.rows)]


def _row(cells: tuple[str, ...], *, plain: bool = True) -> str:
    return f"| {' | '.join(_plain(cell) if plain else cell for cell in cells)} |"


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(without_controls(text).split()))
