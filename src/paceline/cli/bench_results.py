"""What `paceline bench` does with results that are there: show, list, send, take."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from paceline.bench.baseline import compare
from paceline.bench.history import recall
from paceline.bench.report.content import page_of
from paceline.bench.report.history_content import history_page
from paceline.bench.report.html import to_html
from paceline.bench.report.markdown import to_markdown
from paceline.bench.report.page import Page
from paceline.bench.report.terminal import print_page
from paceline.bench.result import read_result
from paceline.bench.sending import report_of, send
from paceline.bench.tester_config import load_tester, read_object
from paceline.cli.language import Language, is_chinese
from paceline.errors import PacelineError, UsageError
from paceline.whole import write_whole

WORSE = 5
"""Exit code of a run that is worse than its baseline."""
STDOUT = Path("-")

JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the result as JSON; - for stdout.")]
MarkdownFile = Annotated[Path | None, typer.Option("--markdown", help="Write the report as Markdown; - for stdout.")]
HtmlFile = Annotated[Path | None, typer.Option("--html", help="Write the report as one HTML file; - for stdout.")]
Lang = Annotated[Language, typer.Option("--lang", help="Language of the report.")]
Store = Annotated[
    Path | None, typer.Option("--store", help="Where results are remembered.  [default: below ~/.local/share/paceline]")
]


def report(
    result_file: Annotated[Path, typer.Argument(metavar="RESULT.json", help="As written by bench run.")],
    baseline: Annotated[Path | None, typer.Option("--baseline", help="Another result to compare with.")] = None,
    markdown_file: MarkdownFile = None,
    html_file: HtmlFile = None,
    lang: Lang = Language.auto,
) -> None:
    """Show a result again, in another language or form, or against another baseline.

    Example:  paceline bench report result.json --baseline monday/result.json --html report.html --lang zh
    """
    result = read_result(result_file)
    if baseline is not None:
        found = compare(result, read_result(baseline), str(baseline))
        result = msgspec.structs.replace(result, comparisons=found)
    page = page_of(result, "zh" if is_chinese(lang) else "en")
    show(page, markdown_file, html_file, whole=True)
    if baseline is not None and any(each.verdict == "worse" for each in result.comparisons):
        raise typer.Exit(WORSE)


def history(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this benchmark.")] = None,
    markdown_file: MarkdownFile = None,
    html_file: HtmlFile = None,
    json_file: JsonFile = None,
    lang: Lang = Language.auto,
    store: Store = None,
) -> None:
    """List every benchmark run of this user, with its trend as a plot in the HTML page.

    Example:  paceline bench history gpt2-reference --html history.html
    """
    known = recall(store, name=name)
    for warning in known.warnings:
        typer.echo(f"paceline: {warning}", err=True)
    if name is not None and not known.results:
        raise UsageError(f"{name}: nothing of that name was benchmarked here", hint="paceline bench history lists all")
    write(json_file, msgspec.json.encode(known.results).decode() + "\n")
    page = history_page(known.results, "zh" if is_chinese(lang) else "en")
    show(page, markdown_file, html_file, silent=json_file == STDOUT)


def send_result(
    result_file: Annotated[Path, typer.Argument(metavar="RESULT.json", help="As written by bench run.")],
    config: Annotated[
        Path, typer.Option("--config", help="config.json: testid, tester_server_ip, tester_server_port.")
    ],
    system: Annotated[Path | None, typer.Option("--system", help="system.json, a description of the machine.")] = None,
) -> None:
    """Send a result to a tester server; sent twice it is kept once. A token is taken from PACELINE_TESTER_TOKEN.

    Example:  paceline bench send result.json --config config.json --system system.json
    """
    where = load_tester(config)
    message = report_of(read_result(result_file), where, read_object(system) if system else None)
    typer.echo(f"sent to {where.url} as {send(message, where)}")


def tester_server(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where results are kept.")] = Path("paceline-tester"),
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 = any free one.")] = 9527,
) -> None:
    """Be the tester server: take results that bench run sends, check them, keep each in a file of its own.

    Listening on an address other machines reach needs a token: PACELINE_TESTER_TOKEN, or made up and printed once.

    Example:  paceline bench tester results --port 9527
    """
    try:
        from paceline.bench.tester import create_tester
        from paceline.web.listening import listen_with
        from paceline.web.security import is_loopback, rules_for
    except ImportError as error:
        raise PacelineError("the web server is not installed", hint="pip install 'paceline[web]'") from error
    token = os.environ.get("PACELINE_TESTER_TOKEN") or (None if is_loopback(host) else secrets.token_urlsafe(32))
    if token is not None and len(token) < 16:
        raise UsageError("PACELINE_TESTER_TOKEN is too short", hint="use at least 16 characters, or leave it unset")

    def announce(address: str) -> None:
        typer.echo(f"paceline: tester at {address}, results go to {directory.resolve()}", err=True)
        if token is not None and not os.environ.get("PACELINE_TESTER_TOKEN"):
            typer.echo(f"          PACELINE_TESTER_TOKEN={token} (printed once; senders need it)", err=True)
        typer.echo("          Ctrl-C stops it", err=True)

    directory.mkdir(parents=True, exist_ok=True)
    listen_with(create_tester(directory, rules_for(host, token=token)), host=host, port=port, announce=announce)


def write(target: Path | None, text: str) -> None:
    if target == STDOUT:
        sys.stdout.write(text)
    elif target is not None:
        write_whole(target, text)


def show(
    page: Page, markdown_file: Path | None, html_file: Path | None, *, whole: bool = False, silent: bool = False
) -> None:
    write(markdown_file, to_markdown(page))
    write(html_file, to_html(page))
    if not silent and STDOUT not in (markdown_file, html_file):
        print_page(page, whole=whole)
