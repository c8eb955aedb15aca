"""`paceline kb`: what findings mean, how they are measured, what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text as Styled

from paceline.advice.knowledge import IDS, Entry, all_entries, load_entry
from paceline.cli.language import Language, is_chinese
from paceline.cli.wrapping import indented

_HEADINGS = {
    "en": ("What it means", "How it is measured", "What to do"),
    "zh": ("含义", "测量方法", "处理建议"),
}
_MORE = {"en": "one page: paceline kb ID", "zh": "查看单页：paceline kb ID"}
_WIDEST = 110  # longer lines are hard to read, however wide the terminal


def kb(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="A finding's id, e.g. slow-rank.")] = None,
    lang: Annotated[Language, typer.Option("--lang", help="Language of the text.")] = Language.auto,
) -> None:
    """Explain findings: the list, or one page with meaning, measurement and advice.

    Example:  paceline kb slow-rank
    """
    language = "zh" if is_chinese(lang) else "en"
    console = Console(highlight=False)
    if id:  # findings say `"see": "kb/slow-rank"`: that may be pasted as it is
        lines = _page(load_entry(id.removeprefix("kb/")), language, min(console.width, _WIDEST))
    else:  # grep wants one line each
        lines = _list(language, console.width if sys.stdout.isatty() else sys.maxsize)
    for line in lines:
        console.print(line, soft_wrap=True)
    if not id and sys.stdout.isatty():
        console.print(f"\n{_MORE[language]}", style="dim")


def _list(language: str, width: int) -> Iterator[Styled]:
    margin = max(map(len, IDS)) + 2
    for entry in all_entries():
        summary = entry.text(language).summary
        for line in indented(summary, width, first=entry.id.ljust(margin), rest=" " * margin):
            yield Styled.assemble((line[:margin], "bold"), line[margin:])


def _page(entry: Entry, language: str, width: int) -> Iterator[Styled]:
    # Styled, not strings: advice holds brackets that Rich would take for markup.
    text = entry.text(language)
    meaning, measured, advice = _HEADINGS[language]
    yield Styled(entry.id, "bold")
    yield from _paragraph(text.summary, width)
    for heading, paragraph in ((meaning, text.meaning), (measured, text.measured)):
        yield Styled(f"\n{heading}", "bold")
        yield from _paragraph(paragraph, width)
    yield Styled(f"\n{advice}", "bold")
    for number, step in enumerate(text.advice, start=1):
        yield from map(Styled, indented(step, width, first=f"{number:>3} ", rest="    "))


def _paragraph(text: str, width: int) -> Iterator[Styled]:
    return map(Styled, indented(text, width, first="  ", rest="  "))
