"""`paceline bench`: run a benchmark, score its files, compare, report, remember, send."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.status import Status

from paceline.bench.baseline import compare
from paceline.bench.history import last, remember
from paceline.bench.plan import Plan, load_plan
from paceline.bench.repetition import OnLog, StartError
from paceline.bench.report.content import page_of
from paceline.bench.report.html import to_html
from paceline.bench.report.markdown import to_markdown
from paceline.bench.result import Result, encode, read_result
from paceline.bench.running import Listeners, new_directory, run_benchmark
from paceline.bench.score import score_directory
from paceline.bench.sending import report_of, send
from paceline.bench.tester_config import load_tester, read_object
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
from paceline.cli.language import Language, is_chinese
from paceline.errors import PacelineError, UsageError
from paceline.jobs import LogPiece
from paceline.jobs.description import BackendName
from paceline.whole import write_whole

bench = typer.Typer(
    help="Run a benchmark: prepare, run, collect, score; compare with a baseline, report, remember, send.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
ResultDirectory = Annotated[str, typer.Argument(metavar="RESULT_DIR", help="Directory, obs://…, s3://… or ssh://….")]


@bench.command()
def run(
    description: Annotated[
        Path | None, typer.Argument(metavar="[BENCH.YAML]", help="What to run.  [default: the reference GPT-2, here]")
    ] = None,
    backend: Annotated[
        str | None, typer.Option("--backend", help="local, slurm or modelarts, instead of its own.")
    ] = None,
    repeat: Annotated[
        int | None, typer.Option("--repeat", min=1, help="Runs of every size, instead of its own.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where jobs and reports go.  [default: a new one in paceline-bench]")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="RESULT.json to compare with, or last: exit 5 when this is worse.")
    ] = None,
    tester: Annotated[
        Path | None, typer.Option("--tester", help="config.json with the tester server the result is sent to.")
    ] = None,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
    html_file: HtmlFile = None,
    lang: Lang = Language.auto,
    store: Store = None,
    logs: Annotated[
        bool, typer.Option("--logs", help="Show everything the jobs say, not just how far they are.")
    ] = False,
) -> None:
    """Run a benchmark: every size and repetition of a job, scored, compared, reported and remembered.

    Exit codes: 0 done, 1 not started, 2 training failed, 3 no accuracy, 4 result files missing or broken, 5 worse than
    the baseline. result.json, report.md and report.html are written below --out.

    Example:  paceline bench run bench.yaml --repeat 3 --baseline last
    """
    plan = _plan(description, backend, repeat)
    before = _baseline(plan, baseline, store)  # read now: after an hour of training is too late to find it missing
    sent_to = tester or plan.tester
    config = load_tester(sent_to) if sent_to else None
    place = new_directory(plan, out)
    say = _say_on_stderr
    with Console(stderr=True).status("") as status:
        listeners = Listeners(_show_log if logs else _last_line(status), say)
        result, failure = run_benchmark(plan, place, listeners)
    if before is not None:
        called = str(baseline or plan.baseline)
        result = msgspec.structs.replace(result, comparisons=compare(result, before, called))
    kept = remember(result, store)
    language = "zh" if is_chinese(lang) else "en"
    page = page_of(result, language)
    write_whole(place / "result.json", encode(result))
    write_whole(place / "report.md", to_markdown(page))
    write_whole(place / "report.html", to_html(page))
    write(json_file, encode(result))
    show(page, markdown_file, html_file, silent=json_file == STDOUT)
    say(f"report {place / 'report.html'}, result {place / 'result.json'}, remembered as {kept.stem}")
    if failure is not None:
        raise failure
    if config is not None:
        system = read_object(plan.system) if plan.system else None
        say(f"sent to {config.url} as {send(report_of(result, config, system), config)}")
    if any(each.verdict == "worse" for each in result.comparisons):
        raise typer.Exit(WORSE)


@bench.command()
def score(
    result_dir: ResultDirectory,
    single_server: Annotated[
        bool, typer.Option("--single-server", "--single_server_mode", help="Every node trained alone: mean over nodes.")
    ] = False,
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="How many nodes there must be.")] = None,
    ranks: Annotated[int | None, typer.Option("--ranks", min=1, help="How many ranks there must be.")] = None,
    accuracy: Annotated[bool, typer.Option("--accuracy/--no-accuracy", help="Whether accuracy was measured.")] = True,
    json_file: JsonFile = None,
) -> None:
    """Score the result files of a training: throughput_{rank}.json, accuracy.json, ranksize.json.

    Missing or broken files are named, and then there is no score: exit 4, or 3 when only accuracy is missing.

    Example:  paceline bench score obs://bucket/out/V0003 --single-server --nodes 2 --json score.json
    """
    if nodes and not single_server:
        raise UsageError("--nodes counts nodes that trained alone", hint="add --single-server, or use --ranks")
    if ranks and single_server:
        raise UsageError("--ranks counts the ranks of a cluster", hint="with --single-server use --nodes")
    found = score_directory(result_dir, single_server=single_server, nodes=nodes, ranks=ranks, accuracy=accuracy)
    for warning in found.warnings:
        typer.echo(f"paceline: {warning}", err=True)
    write(json_file, msgspec.json.format(msgspec.json.encode(found.as_json()), indent=2).decode() + "\n")
    if json_file == STDOUT:
        return
    for line in found.lines():
        typer.echo(line)


bench.command("report")(report)
bench.command("history")(history)
bench.command("send")(send_result)
bench.command("tester")(tester_server)


def _plan(description: Path | None, backend: str | None, repeat: int | None) -> Plan:
    """A description that is wrong is the documented exit code 1: nothing was started."""
    try:
        plan = load_plan(description or _shipped())
        if backend is not None:
            job = msgspec.structs.replace(plan.job, backend=msgspec.convert(backend, BackendName))
            plan = msgspec.structs.replace(plan, job=job)
    except msgspec.ValidationError:
        raise StartError(f"--backend {backend}: no such backend", hint="local, slurm or modelarts") from None
    except PacelineError as error:
        raise StartError(str(error), hint=error.hint) from error
    return msgspec.structs.replace(plan, repeat=repeat) if repeat else plan


def _shipped() -> Path:
    return Path(__file__).parents[1] / "bench" / "examples" / "gpt2" / "bench.yaml"


def _baseline(plan: Plan, asked: str | None, store: Path | None) -> Result | None:
    if asked == "last":
        return last(plan.name, store)
    if asked:
        return read_result(Path(asked))
    return read_result(plan.baseline) if plan.baseline else None


def _say_on_stderr(text: str) -> None:
    typer.echo(f"paceline: {text}", err=True)


def _last_line(status: Status) -> OnLog:
    """What the job said last, on a terminal; a log file sees only the stages."""

    def show(piece: LogPiece) -> None:
        lines = piece.text.splitlines()
        if lines:
            status.update(f"[dim]{escape(lines[-1][:100])}[/]")

    return show


def _show_log(piece: LogPiece) -> None:
    for line in piece.text.splitlines():
        typer.echo(f"  worker-{piece.worker} | {line}", err=True)
