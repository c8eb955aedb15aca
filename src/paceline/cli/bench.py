"""`paceline bench run` and `bench score`: run a benchmark, or score the files of a training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import msgspec
import typer
from rich.markup import escape
from rich.status import Status
from typing_extensions import Annotated

from paceline.bench.aisbench_tester.send_result import report_of, send
from paceline.bench.aisbench_tester.tester_config import TesterConfig, load_tester, read_object
from paceline.bench.bench_plan import BenchPlan, MlperfLog, load_bench_plan
from paceline.bench.bench_run import RunListeners, new_directory, options_of, run_benchmark
from paceline.bench.examples import copy_example, find_description
from paceline.bench.history import best_result, latest_result, pin_result, pinned_names, pinned_result, save_result
from paceline.bench.mllog import mllog_of, unknown_settings
from paceline.bench.progress import BenchOptions, BenchProgress
from paceline.bench.report.content import result_page
from paceline.bench.result import BenchResult, encode, read_result
from paceline.bench.run_repetition import OnLog, StartError
from paceline.bench.statistics.baseline import compare
from paceline.bench.statistics.score import score_directory, with_slow_parts
from paceline.cli.bench_results import (
    NOT_AS_EXPECTED,
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
from paceline.cli.console.language import LanguageOption, resolve_language
from paceline.cli.options.backend_option import BackendOption
from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import PacelineError, UsageError
from paceline.core.i18n import Language
from paceline.jobs import LogPiece
from paceline.jobs.backends import check_backend_name
from paceline.output.console import Console
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
        Optional[Path],
        typer.Argument(
            metavar="[BENCH.YAML]", help="File, or a shipped example: gpt2, resnet50, bert.  [default: gpt2]"
        ),
    ] = None,
    backend: BackendOption = None,
    repeat: Annotated[
        Optional[int], typer.Option("--repeat", min=1, help="Runs per size, instead of the description's.")
    ] = None,
    out: Annotated[
        Optional[Path],
        typer.Option("--out", help="Directory for jobs and reports.  [default: a new one in paceline-bench]"),
    ] = None,
    baseline: Annotated[
        Optional[str],
        typer.Option("--baseline", help="last, best, a pinned name or a RESULT.json; exit 5 if the run is worse."),
    ] = None,
    tester: Annotated[
        Optional[Path], typer.Option("--tester", help="config.json of the tester server to send the result to.")
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
    the baseline, 6 FAIL under expect:. result.json, report.md and report.html are written to --out.

    Example:  paceline bench run bench.yaml --repeat 3 --baseline last
    """
    plan = _plan(description, backend, repeat)
    place = new_directory(plan, out)
    options = options_of(plan, baseline=baseline, tester=tester, store=store)
    outputs = _Outputs(json_file, markdown_file, html_file, resolve_language(lang))
    compared = _Comparisons.read(plan, options)
    _run(plan, place, compared, outputs, BenchProgress.begin(place, options), logs=logs)


@bench.command()
def resume(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of an interrupted bench run.")],
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
    html_file: HtmlFile = None,
    lang: Lang = LanguageOption.auto,
    logs: Annotated[bool, typer.Option("--logs", help="Show the jobs' complete logs, not only the progress.")] = False,
) -> None:
    """Continue a benchmark whose client was stopped, killed or lost; runs that were finished are kept.

    A job that still runs, or has completed meanwhile, is followed and scored; only what is missing is started.

    Example:  paceline bench resume paceline-bench/20261118T202100Z-gpt2-reference-3fa2c1
    """
    progress = BenchProgress.read(directory)
    options = progress.options
    plan = _plan(Path(options.config), options.backend, options.repeat)
    if options_of(plan).config_sha256 != options.config_sha256:
        raise UsageError(
            f"{options.config} was changed since the benchmark was started",
            hint="restore it, or start a new benchmark: runs of two descriptions are not one result",
        )
    outputs = _Outputs(json_file, markdown_file, html_file, resolve_language(lang))
    _run(plan, directory, _Comparisons.read(plan, options), outputs, progress, logs=logs)


@bench.command()
def example(
    name: Annotated[str, typer.Argument(metavar="NAME", help="gpt2, resnet50 or bert.")],
    directory: Annotated[
        Optional[Path], typer.Argument(metavar="[DIR]", help="New directory.  [default: NAME]")
    ] = None,
) -> None:
    """Copy a shipped benchmark, to change it: bench.yaml, its real sizes in bench-full.yaml, and its train.py.

    Example:  paceline bench example resnet50 my-resnet
    """
    for path in copy_example(name, directory or Path(name)):
        typer.echo(path)


@bench.command()
def pin(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the baseline.")],
    result_file: Annotated[Path, typer.Argument(metavar="RESULT.json", help="Result written by bench run.")],
    store: Store = None,
) -> None:
    """Keep a result as a named baseline for --baseline NAME; pinning the name again replaces it.

    Example:  paceline bench pin accepted-2026-11 paceline-bench/…/result.json
    """
    typer.echo(f"{name}: {pin_result(name, read_result(result_file), store)}")


@dataclass(frozen=True)
class _Outputs:
    """Where the result goes besides the benchmark's directory."""

    json_file: Path | None
    markdown_file: Path | None
    html_file: Path | None
    language: Language


@dataclass(frozen=True)
class _Comparisons:
    """Read before the training: an hour later is too late to find something missing."""

    baseline: tuple[str, BenchResult] | None
    tester: TesterConfig | None
    store: Path | None

    @classmethod
    def read(cls, plan: BenchPlan, options: BenchOptions) -> _Comparisons:
        store = Path(options.store) if options.store else None
        tester = Path(options.tester) if options.tester else plan.tester
        return cls(_baseline(plan, options.baseline, store), load_tester(tester) if tester else None, store)


def _run(
    plan: BenchPlan, place: Path, compared: _Comparisons, outputs: _Outputs, progress: BenchProgress, *, logs: bool
) -> None:
    with Console(stderr=True).status("") as status, _kept(place, progress):
        listeners = RunListeners(_show_log if logs else _last_line(status), _print_progress)
        result, failure = run_benchmark(plan, place, listeners, progress)
    if compared.baseline is not None:
        called, before = compared.baseline
        result = msgspec.structs.replace(result, comparisons=compare(result, before, called))
    stored = save_result(result, compared.store)
    _write_reports(plan, place, result, outputs)
    _print_progress(f"report {place / 'report.html'}, result {place / 'result.json'}, in the history as {stored.stem}")
    if failure is not None:
        raise failure
    if (config := compared.tester) is not None:
        system = read_object(plan.system) if plan.system else None
        _print_progress(f"sent to {config.url} as {send(report_of(result, config, system), config)}")
    if result.verdict == "FAIL":
        raise typer.Exit(NOT_AS_EXPECTED)
    if any(each.verdict == "worse" for each in result.comparisons):
        raise typer.Exit(WORSE)


@contextmanager
def _kept(place: Path, progress: BenchProgress) -> Iterator[None]:
    """Whatever ends the benchmark early, finished runs are on disk; this says how to go on."""
    try:
        yield
    except (KeyboardInterrupt, PacelineError) as error:
        if progress.finished or isinstance(error, KeyboardInterrupt):
            finished = f"{progress.finished} finished run{'s' if progress.finished != 1 else ''}"
            _print_progress(f"{finished} kept; continue with: paceline bench resume {place}")
        if isinstance(error, KeyboardInterrupt):
            raise SystemExit(130) from None
        raise


def _write_reports(plan: BenchPlan, place: Path, result: BenchResult, outputs: _Outputs) -> None:
    page = result_page(result, outputs.language)
    atomic_write_text(place / "result.json", encode(result))
    atomic_write_text(place / "report.md", to_markdown(page))
    try:
        atomic_write_text(place / "report.html", to_html(page))
    except PacelineError as error:
        _print_progress(f"report.html is not written: {error} ({error.hint}); report.md has the same tables")
    if plan.mllog is not None:
        _write_mllog(result, plan.mllog, place / "mllog")
    write(outputs.json_file, encode(result))
    show(page, outputs.markdown_file, outputs.html_file, place, silent=outputs.json_file == STDOUT)


def _write_mllog(result: BenchResult, submission: MlperfLog, place: Path) -> None:
    if unknown := unknown_settings(result, submission):
        names = ", ".join(unknown)
        _print_progress(
            f"MLPerf's log is not written: {names} unknown; add to mllog: or to the workload's workload.json"
        )
        return
    for number, log in enumerate(mllog_of(result, submission)):
        atomic_write_text(place / f"result_{number}.txt", log)


@bench.command()
def score(
    result_dir: ResultDirectory,
    single_server: Annotated[
        bool,
        typer.Option("--single-server", "--single_server_mode", help="Every node trained alone: average over nodes."),
    ] = False,
    nodes: Annotated[Optional[int], typer.Option("--nodes", min=1, help="Number of nodes expected.")] = None,
    ranks: Annotated[Optional[int], typer.Option("--ranks", min=1, help="Number of ranks expected.")] = None,
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
    found = with_slow_parts(found)
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
        plan = load_bench_plan(find_description(description))
        if backend is not None:
            check_backend_name(backend)
            plan = msgspec.structs.replace(plan, job=msgspec.structs.replace(plan.job, backend=backend))
    except PacelineError as error:
        raise StartError(str(error), hint=error.hint) from error
    return msgspec.structs.replace(plan, repeat=repeat) if repeat else plan


def _baseline(plan: BenchPlan, asked: str | None, store: Path | None) -> tuple[str, BenchResult] | None:
    """What the report calls it, and the result: the newest or best accepted one, a pinned one, or a file."""
    if asked == "last":
        found = latest_result(plan.name, store)
        return f"last: {found.id}", found
    if asked == "best":
        found = best_result(plan.name, store)
        return f"best: {found.id}", found
    if asked and (pinned := pinned_result(asked, store)) is not None:
        return f"{asked}: {pinned.id}", pinned
    if asked and not Path(asked).exists() and (names := pinned_names(store)):
        raise StartError(f"baseline {asked}: no such file, and no pinned baseline", hint=f"pinned: {', '.join(names)}")
    if asked:
        return asked, read_result(Path(asked))
    return (str(plan.baseline), read_result(plan.baseline)) if plan.baseline else None


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
