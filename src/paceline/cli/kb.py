"""`paceline kb`: the knowledge base: what findings mean, how they are measured, what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Optional

import typer
from rich.text import Text as Styled
from typing_extensions import Annotated

from paceline.cli.console.language import LanguageOption, resolve_language
from paceline.cli.console.text_width import indented
from paceline.core.i18n import Language, text
from paceline.diagnosis.knowledge import IDS, KnowledgeEntry, all_entries, load_entry
from paceline.output.console import Console

_WIDEST = 110  # longer lines are hard to read, however wide the terminal


def kb(
    id: Annotated[Optional[str], typer.Argument(metavar="[ID]", help="A finding's id, e.g. slow-rank.")] = None,
    lang: Annotated[LanguageOption, typer.Option("--lang", help="Language of the text.")] = LanguageOption.auto,
) -> None:
    """Explain findings: list all, or show one page with meaning, measurement and advice.

    Example:  paceline kb slow-rank
    """
    language = resolve_language(lang)
    console = Console(highlight=False)
    if id:  # findings say `"see": "kb/slow-rank"`: that may be pasted as it is
        lines = _page(load_entry(id.removeprefix("kb/")), language, min(console.width, _WIDEST))
    else:  # grep wants one line each
        lines = _list(language, console.width if sys.stdout.isatty() else sys.maxsize)
    for line in lines:
        console.print(line, soft_wrap=True)
    if not id and sys.stdout.isatty():
        console.print(f"\n{text('cli.kb.one_page', language)}", style="dim")


def _list(language: Language, width: int) -> Iterator[Styled]:
    margin = max(map(len, IDS)) + 2
    for entry in all_entries():
        summary = entry.text(language).summary
        for line in indented(summary, width, first=entry.id.ljust(margin), rest=" " * margin):
            yield Styled.assemble((line[:margin], "bold"), line[margin:])


def _page(entry: KnowledgeEntry, language: Language, width: int) -> Iterator[Styled]:
    # Styled, not strings: advice holds brackets that Rich would take for markup.
    page = entry.text(language)
    yield Styled(entry.id, "bold")
    yield from _paragraph(page.summary, width)
    for heading, paragraph in (("meaning", page.meaning), ("measured", page.measured)):
        yield Styled(f"\n{text(f'cli.kb.{heading}', language)}", "bold")
        yield from _paragraph(paragraph, width)
    yield Styled(f"\n{text('cli.kb.advice', language)}", "bold")
    for number, step in enumerate(page.labelled_advice(language), start=1):
        yield from map(Styled, indented(step, width, first=f"{number:>3} ", rest="    "))


def _paragraph(paragraph: str, width: int) -> Iterator[Styled]:
    return map(Styled, indented(paragraph, width, first="  ", rest="  "))
