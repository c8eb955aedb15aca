"""`paceline bench report`, `history`, `send` and `tester`: show, list, send and receive results."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Optional

import msgspec
import typer
from typing_extensions import Annotated

from paceline.bench.aisbench_tester.send_result import report_of, send
from paceline.bench.aisbench_tester.tester_config import load_tester, read_object
from paceline.bench.history import load_history
from paceline.bench.report.content import result_page
from paceline.bench.report.history_content import history_page
from paceline.bench.result import read_result
from paceline.bench.statistics.baseline import compare
from paceline.cli.console.language import LanguageOption, resolve_language
from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import PacelineError, UsageError
from paceline.output.page.html import to_html
from paceline.output.page.markdown import to_markdown
from paceline.output.page.page import ReportPage
from paceline.output.page.terminal import print_page

WORSE = 5
"""Exit code if a run is worse than its baseline."""
NOT_AS_EXPECTED = 6
"""Exit code if a run does not meet expect:."""
STDOUT = Path("-")

JsonFile = Annotated[Optional[Path], typer.Option("--json", help="Write the result as JSON; - for stdout.")]
MarkdownFile = Annotated[Optional[Path], typer.Option("--markdown", help="Write the report as Markdown; - for stdout.")]
HtmlFile = Annotated[Optional[Path], typer.Option("--html", help="Write the report as one HTML file; - for stdout.")]
Lang = Annotated[LanguageOption, typer.Option("--lang", help="Language of the report.")]
Store = Annotated[
    Optional[Path], typer.Option("--store", help="Directory of the history.  [default: below ~/.local/share/paceline]")
]


def report(
    result_file: Annotated[Path, typer.Argument(metavar="RESULT.json", help="Result written by bench run.")],
    baseline: Annotated[Optional[Path], typer.Option("--baseline", help="Another result to compare with.")] = None,
    markdown_file: MarkdownFile = None,
    html_file: HtmlFile = None,
    lang: Lang = LanguageOption.auto,
) -> None:
    """Show a result again, in another language or format, or compared with another baseline.

    Example:  paceline bench report result.json --baseline monday/result.json --html report.html --lang zh
    """
    result = read_result(result_file)
    if baseline is not None:
        found = compare(result, read_result(baseline), str(baseline))
        result = msgspec.structs.replace(result, comparisons=found)
    page = result_page(result, resolve_language(lang))
    show(page, markdown_file, html_file, result_file.parent, details=True)
    if baseline is not None and any(each.verdict == "worse" for each in result.comparisons):
        raise typer.Exit(WORSE)


def history(
    name: Annotated[Optional[str], typer.Argument(metavar="[NAME]", help="Only this benchmark.")] = None,
    markdown_file: MarkdownFile = None,
    html_file: HtmlFile = None,
    json_file: JsonFile = None,
    lang: Lang = LanguageOption.auto,
    store: Store = None,
) -> None:
    """List every benchmark run of this user; the HTML page plots the trend.

    Example:  paceline bench history gpt2-reference --html history.html
    """
    known = load_history(store, name=name)
    for warning in known.warnings:
        typer.echo(f"paceline: {warning}", err=True)
    if name is not None and not known.results:
        raise UsageError(f"no benchmark named {name} in the history", hint="paceline bench history lists all")
    write(json_file, msgspec.json.encode(known.results).decode() + "\n")
    page = history_page(known.results, resolve_language(lang))
    show(page, markdown_file, html_file, silent=json_file == STDOUT)


def send_result(
    result_file: Annotated[Path, typer.Argument(metavar="RESULT.json", help="Result written by bench run.")],
    config: Annotated[
        Path, typer.Option("--config", help="config.json: testid, tester_server_ip, tester_server_port.")
    ],
    system: Annotated[
        Optional[Path], typer.Option("--system", help="system.json, a description of the machine.")
    ] = None,
) -> None:
    """Send a result to a tester server; sending twice stores it once. The token is read from PACELINE_TESTER_TOKEN.

    Example:  paceline bench send result.json --config config.json --system system.json
    """
    where = load_tester(config)
    message = report_of(read_result(result_file), where, read_object(system) if system else None)
    typer.echo(f"sent to {where.url} as {send(message, where)}")


def tester_server(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to store results in.")] = Path(
        "paceline-tester"
    ),
    host: Annotated[str, typer.Option(help="Address to listen on; other than loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 = any free one.")] = 9527,
) -> None:
    """Run a tester server: receive results from bench run, validate them, store each in its own file.

    Listening on an address that other machines can reach needs a token: PACELINE_TESTER_TOKEN, or generated and printed once.

    Example:  paceline bench tester results --port 9527
    """
    try:
        from paceline.bench.aisbench_tester.tester import create_tester
        from paceline.web.listen import listen_with
        from paceline.web.security import is_loopback, rules_for
    except ImportError as error:
        raise PacelineError("the web server is not installed", hint="pip install 'paceline[web]'") from error
    token = os.environ.get("PACELINE_TESTER_TOKEN") or (None if is_loopback(host) else secrets.token_urlsafe(32))
    if token is not None and len(token) < 16:
        raise UsageError("PACELINE_TESTER_TOKEN is too short", hint="use at least 16 characters, or leave it unset")

    def announce(address: str) -> None:
        typer.echo(f"paceline: tester at {address}, results are stored in {directory.resolve()}", err=True)
        if token is not None and not os.environ.get("PACELINE_TESTER_TOKEN"):
            typer.echo(f"          PACELINE_TESTER_TOKEN={token} (printed once; senders need it)", err=True)
        typer.echo("          stop it with Ctrl-C", err=True)

    directory.mkdir(parents=True, exist_ok=True)
    listen_with(create_tester(directory, rules_for(host, token=token)), host=host, port=port, announce=announce)


def write(target: Path | None, text: str) -> None:
    if target == STDOUT:
        sys.stdout.write(text)
    elif target is not None:
        atomic_write_text(target, text)


def _base(file: Path | None, place: Path) -> str:
    """The way from a file to a directory."""
    return str(place) if file in (None, STDOUT) else os.path.relpath(place, file.parent)


def show(
    page: ReportPage,
    markdown_file: Path | None,
    html_file: Path | None,
    place: Path = Path(),
    *,
    details: bool = False,
    silent: bool = False,
) -> None:
    """`place` is the directory that the page belongs to."""
    write(markdown_file, to_markdown(page, base=_base(markdown_file, place)))
    write(html_file, to_html(page, base=_base(html_file, place)))
    if not silent and STDOUT not in (markdown_file, html_file):
        print_page(page, details=details)
