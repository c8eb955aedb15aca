"""`paceline bench run` and `bench score`: run a benchmark, or score the files of a training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.status import Status

from paceline.bench.baseline import compare
from paceline.bench.bench_plan import BenchPlan, load_bench_plan
from paceline.bench.bench_run import RunListeners, new_directory, run_benchmark
from paceline.bench.history import latest_result, save_result
from paceline.bench.report.content import result_page
from paceline.bench.result import BenchResult, encode, read_result
from paceline.bench.run_repetition import OnLog, StartError
from paceline.bench.score import score_directory
from paceline.bench.send_result import report_of, send
from paceline.bench.tester_config import load_tester, read_object
from paceline.cli.backend_option import BackendOption
from paceline.cli.bench_results import (
    STDOUT,
    WORSE,
    HtmlFile,
    JsonFile,
    Lang,
    MarkdownFile,
    Store,
    history,
    report,
    send_result,
    show,
    tester_server,
    write,
)
from paceline.cli.language import LanguageOption, resolve_language
from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import PacelineError, UsageError
from paceline.jobs import LogPiece
from paceline.jobs.backends import check_backend_name
from paceline.output.json_text import indented_json
from paceline.output.page.html import to_html
from paceline.output.page.markdown import to_markdown

bench = typer.Typer(
    help="Run benchmarks, score results, compare with a baseline, keep a history, send results.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
ResultDirectory = Annotated[str, typer.Argument(metavar="RESULT_DIR", help="Directory, obs://…, s3://… or ssh://….")]


@bench.command()
def run(
    description: Annotated[
        Path | None,
        typer.Argument(metavar="[BENCH.YAML]", help="Benchmark to run.  [default: the reference GPT-2]"),
    ] = None,
    backend: BackendOption = None,
    repeat: Annotated[
        int | None, typer.Option("--repeat", min=1, help="Runs per size, instead of the description's.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Directory for jobs and reports.  [default: a new one in paceline-bench]"),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="RESULT.json to compare with, or last; exit 5 if the run is worse.")
    ] = None,
    tester: Annotated[
        Path | None, typer.Option("--tester", help="config.json of the tester server to send the result to.")
    ] = None,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
    html_file: HtmlFile = None,
    lang: Lang = LanguageOption.auto,
    store: Store = None,
    logs: Annotated[bool, typer.Option("--logs", help="Show the jobs' complete logs, not only the progress.")] = False,
) -> None:
    """Run a benchmark: every size and repetition of a job, scored, reported, compared and added to the history.

    Exit codes: 0 completed, 1 not started, 2 training failed, 3 no accuracy, 4 result files missing or broken, 5 worse than
    the baseline. result.json, report.md and report.html are written to --out.

    Example:  paceline bench run bench.yaml --repeat 3 --baseline last
    """
    plan = _plan(description, backend, repeat)
    before = _baseline(plan, baseline, store)  # read now: an hour of training later is too late to find it missing
    sent_to = tester or plan.tester
    config = load_tester(sent_to) if sent_to else None
    place = new_directory(plan, out)
    with Console(stderr=True).status("") as status:
        listeners = RunListeners(_show_log if logs else _last_line(status), _print_progress)
        result, failure = run_benchmark(plan, place, listeners)
    if before is not None:
        called = str(baseline or plan.baseline)
        result = msgspec.structs.replace(result, comparisons=compare(result, before, called))
    stored = save_result(result, store)
    language = resolve_language(lang)
    page = result_page(result, language)
    atomic_write_text(place / "result.json", encode(result))
    atomic_write_text(place / "report.md", to_markdown(page))
    atomic_write_text(place / "report.html", to_html(page))
    write(json_file, encode(result))
    show(page, markdown_file, html_file, silent=json_file == STDOUT)
    _print_progress(f"report {place / 'report.html'}, result {place / 'result.json'}, in the history as {stored.stem}")
    if failure is not None:
        raise failure
    if config is not None:
        system = read_object(plan.system) if plan.system else None
        _print_progress(f"sent to {config.url} as {send(report_of(result, config, system), config)}")
    if any(each.verdict == "worse" for each in result.comparisons):
        raise typer.Exit(WORSE)


@bench.command()
def score(
    result_dir: ResultDirectory,
    single_server: Annotated[
        bool,
        typer.Option("--single-server", "--single_server_mode", help="Every node trained alone: average over nodes."),
    ] = False,
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="Number of nodes expected.")] = None,
    ranks: Annotated[int | None, typer.Option("--ranks", min=1, help="Number of ranks expected.")] = None,
    accuracy: Annotated[bool, typer.Option("--accuracy/--no-accuracy", help="Whether accuracy was measured.")] = True,
    json_file: JsonFile = None,
) -> None:
    """Score the result files of a training: throughput_{rank}.json, accuracy.json, ranksize.json.

    If files are missing or broken, they are listed and nothing is scored: exit 4, or 3 if only accuracy is missing.

    Example:  paceline bench score obs://bucket/out/V0003 --single-server --nodes 2 --json score.json
    """
    if nodes and not single_server:
        raise UsageError("--nodes counts nodes that trained alone", hint="add --single-server, or use --ranks")
    if ranks and single_server:
        raise UsageError("--ranks counts the ranks of a cluster", hint="with --single-server use --nodes")
    found = score_directory(result_dir, single_server=single_server, nodes=nodes, ranks=ranks, accuracy=accuracy)
    for warning in found.warnings:
        typer.echo(f"paceline: {warning}", err=True)
    write(json_file, indented_json(found.document()))
    if json_file == STDOUT:
        return
    for line in found.lines():
        typer.echo(line)


bench.command("report")(report)
bench.command("history")(history)
bench.command("send")(send_result)
bench.command("tester")(tester_server)


def _plan(description: Path | None, backend: str | None, repeat: int | None) -> BenchPlan:
    """A wrong description is exit code 1, as documented: nothing was started."""
    try:
        plan = load_bench_plan(description or _reference_benchmark())
        if backend is not None:
            check_backend_name(backend)
            plan = msgspec.structs.replace(plan, job=msgspec.structs.replace(plan.job, backend=backend))
    except PacelineError as error:
        raise StartError(str(error), hint=error.hint) from error
    return msgspec.structs.replace(plan, repeat=repeat) if repeat else plan


def _reference_benchmark() -> Path:
    return Path(__file__).parents[1] / "bench" / "examples" / "gpt2" / "bench.yaml"


def _baseline(plan: BenchPlan, asked: str | None, store: Path | None) -> BenchResult | None:
    if asked == "last":
        return latest_result(plan.name, store)
    if asked:
        return read_result(Path(asked))
    return read_result(plan.baseline) if plan.baseline else None


def _print_progress(text: str) -> None:
    typer.echo(f"paceline: {text}", err=True)


def _last_line(status: Status) -> OnLog:
    """Shows the job's last line on a terminal; elsewhere only the stages are printed."""

    def show(piece: LogPiece) -> None:
        lines = piece.text.splitlines()
        if lines:
            status.update(f"[dim]{escape(lines[-1][:100])}[/]")

    return show


def _show_log(piece: LogPiece) -> None:
    for line in piece.text.splitlines():
        typer.echo(f"  worker-{piece.worker} | {line}", err=True)
