"""`paceline cache`: what Paceline keeps to be faster the next time, and how to get the space back."""

from __future__ import annotations

import time

import typer
from typing_extensions import Annotated

from paceline.cli.console.language import LanguageOption, resolve_language
from paceline.core.i18n import text
from paceline.storage.cache_contents import CacheEntry, cache_entries, clean_cache
from paceline.storage.cache_dir import cache_root

cache = typer.Typer(
    help="Show or remove stores, downloads and samples that Paceline keeps ($PACELINE_CACHE, else ~/.cache/paceline).",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Language = Annotated[LanguageOption, typer.Option("--lang", help="Language of the text.")]


@cache.command()
def info(lang: Language = LanguageOption.auto) -> None:
    """List what is kept, the largest first.

    Example:  paceline cache info
    """
    language = resolve_language(lang)
    entries = sorted(cache_entries(), key=lambda entry: -entry.bytes)
    for entry in entries:
        days = (time.time() - entry.last_used) / 86400
        used = text("cli.cache.used", language, days=f"{days:.1f}")
        typer.echo(
            f"{entry.bytes / 1e6:10,.1f} MB  {text(f'cli.cache.kind.{entry.kind}', language):9}  {used}  {entry.path}"
        )
    typer.echo(text("cli.cache.total", language, n=len(entries), mb=_megabytes(entries), root=cache_root()))


@cache.command()
def clean(
    older_than: Annotated[
        float, typer.Option("--older-than", min=0.0, metavar="DAYS", help="Only what was not used for so many days.")
    ] = 0.0,
    lang: Language = LanguageOption.auto,
) -> None:
    """Remove what is kept, and temporary directories of killed runs; what another process uses stays.

    Example:  paceline cache clean --older-than 30
    """
    language, done = resolve_language(lang), clean_cache(older_than)
    for entry in done.in_use:
        typer.echo(text("cli.cache.in_use", language, path=entry.path), err=True)
    typer.echo(
        text("cli.cache.removed", language, n=len(done.removed), mb=_megabytes(done.removed), left=done.abandoned)
    )


def _megabytes(entries: list[CacheEntry] | tuple[CacheEntry, ...]) -> str:
    return f"{sum(entry.bytes for entry in entries) / 1e6:,.1f}"
