"""`paceline job`: start a job, follow it, stop it; on this machine, on Slurm, on ModelArts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from paceline.cli.job_output import LogPrinter, outcome_text, phase_text, status_text, table, tell_trouble
from paceline.cli.moving import progress_bar
from paceline.errors import PacelineError, UsageError

if TYPE_CHECKING:
    from paceline.jobs import JobHandle, JobOutcome
    from paceline.jobs.record import Record

job = typer.Typer(
    help="Start training jobs, follow and stop them: on this machine, on Slurm, on ModelArts.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Place(StrEnum):
    local = "local"
    slurm = "slurm"
    modelarts = "modelarts"


class Fetch(StrEnum):
    """What comes home at the end."""

    results = "results"
    all = "all"
    none = "none"


class Version(StrEnum):
    V1 = "V1"
    V2 = "V2"


Description = Annotated[Path, typer.Argument(metavar="JOB.YAML", help="What to run, and where.")]
Known = Annotated[str, typer.Argument(metavar="JOB", help="Id, exact name, or the backend's number of it.")]
Elsewhere = Annotated[
    Path | None, typer.Option("--job", help="Description of a ModelArts job that was not started on this machine.")
]
Fetching = Annotated[Fetch, typer.Option("--fetch", help="Outputs to bring here at the end.")]
Every = Annotated[float | None, typer.Option("--every", min=0.05, help="Seconds between two looks.")]
Json = Annotated[bool, typer.Option("--json", help="Result as JSON; logs go to stderr.")]


@job.command()
def submit(
    description: Description,
    backend: Annotated[Place | None, typer.Option("--backend", help="Instead of the description's.")] = None,
    into: Annotated[
        Path | None, typer.Option("--into", help="Directory of this job.  [default: paceline-jobs/NAME-TIME]")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start it and return.")] = False,
    fetch: Fetching = Fetch.results,
    every: Every = None,
    as_json: Json = False,
) -> None:
    """Upload the code (verified), start the job, and follow it to its end; Ctrl-C leaves it running.

    Example:  paceline job submit job.yaml

    Example:  paceline job submit job.yaml --backend slurm --detach
    """
    from paceline.jobs import load_job
    from paceline.jobs import submit as start

    found = load_job(description, backend.value if backend else None)
    with progress_bar("uploading") as show:
        handle = start(found, into, progress=show)
    for warning in handle.warnings:
        typer.echo(f"note: {warning}", err=True)
    if detach:
        typer.echo(json.dumps({"id": handle.id, "remote_id": handle.remote_id}) if as_json else handle.id)
        return
    typer.echo(f"started {handle.id} ({handle.backend} {handle.remote_id}); logs: {handle.logs}", err=True)
    _follow(handle, fetch, every, as_json)


@job.command()
def follow(
    name: Known,
    elsewhere: Elsewhere = None,
    fetch: Fetching = Fetch.results,
    every: Every = None,
    as_json: Json = False,
) -> None:
    """Show a job's logs until it ends; from any shell, as often as you like. Ctrl-C leaves it running.

    Example:  paceline job follow gpt2-20261117-020000-3fa2
    """
    _follow(_find(name, elsewhere), fetch, every, as_json)


@job.command("list")
def list_(as_json: Json = False) -> None:
    """All jobs started from this account on this machine, newest first; those elsewhere as last heard of.

    Example:  paceline job list
    """
    from paceline.jobs.record import records

    known = [_now(record) for record in records()]
    if as_json:
        typer.echo(json.dumps([_row(record.handle, record.status) for record in known], ensure_ascii=False))
    elif known:
        typer.echo(table(known))
    else:
        typer.echo("no jobs yet: paceline job submit job.yaml", err=True)


@job.command()
def status(name: Known, elsewhere: Elsewhere = None, as_json: Json = False) -> None:
    """How a job is now; asks its backend. The exit code is 1 for one that failed or is lost.

    Example:  paceline job status gpt2-20261117-020000-3fa2
    """
    from paceline.jobs import Phase, backend_for
    from paceline.jobs.record import remember

    handle = _find(name, elsewhere)
    found = backend_for(handle).status(handle)
    remember(handle, found)
    typer.echo(json.dumps(_row(handle, found), ensure_ascii=False) if as_json else status_text(handle, found))
    if found.phase in (Phase.failed, Phase.lost):
        raise typer.Exit(1)


@job.command()
def logs(
    name: Known,
    keep_on: Annotated[bool, typer.Option("-f", "--follow", help="Until the job ends.")] = False,
    worker: Annotated[int | None, typer.Option("--worker", min=0, help="Only this node's.")] = None,
    elsewhere: Elsewhere = None,
    every: Every = None,
) -> None:
    """A job's logs, brought up to date first; all workers', or one's.

    Example:  paceline job logs gpt2-20261117-020000-3fa2 -f --worker 0
    """
    from paceline.jobs import backend_for, wait
    from paceline.storage.store import TransientError

    handle = _find(name, elsewhere)
    printer = LogPrinter(handle, only=worker)
    if keep_on:
        with _detaching(handle):
            wait(handle, on_log=printer, on_trouble=tell_trouble, interval=every)
    else:
        backend = backend_for(handle)
        try:
            last = backend.status(handle).finished
        except TransientError as error:
            tell_trouble(f"{error}; showing what is here")
            last = False
        for piece in backend.sync_logs(handle, last=last):
            printer(piece)
    printer.end()


@job.command()
def stop(name: Known, elsewhere: Elsewhere = None) -> None:
    """End a job: only one whose name or id is exactly this. Outputs and logs so far are kept.

    Example:  paceline job stop gpt2-20261117-020000-3fa2
    """
    from paceline.jobs import backend_for
    from paceline.jobs.record import remember

    handle = _find(name, elsewhere)
    backend = backend_for(handle)
    before = backend.status(handle)
    if before.finished and before.phase.value != "lost":
        typer.echo(f"{handle.id} had ended already: {before.phase.value}", err=True)
        return
    backend.stop(handle)
    after = backend.status(handle)
    remember(handle, after)
    typer.echo(f"{handle.id}: {after.phase.value}")


@job.command("import")
def import_(
    config: Annotated[Path, typer.Argument(metavar="MODELARTS_CONFIG.PY", help="The original configuration.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the description goes.")] = Path("job.yaml"),
    code_dir: Annotated[
        str, typer.Option("--code-dir", "--local_code_path", help="The code on this machine.")
    ] = "code",
    version: Annotated[Version | None, typer.Option("--version", "--modelarts_version", help="Which session.")] = None,
    single_server_mode: Annotated[
        bool, typer.Option("--single-server-mode", "--single_server_mode", help="Every node trains alone.")
    ] = False,
    save_keys: Annotated[bool, typer.Option("--save-keys", help="Its keys into the 0600 access file.")] = False,
) -> None:
    """Turn ais-bench's modelarts_config.py into job.yaml without running it; keys are never written there.

    Example:  paceline job import modelarts_config.py -o job.yaml
    """
    from paceline.jobs.importing import as_yaml, description_of, left_out
    from paceline.jobs.importing import save_keys as save
    from paceline.jobs.original_config import read_original
    from paceline.whole import write_whole

    if output.exists():
        raise UsageError(f"{output}: is there already", hint="give another name with --output")
    found = read_original(config, version.value if version else None)
    text = as_yaml(description_of(found, code_dir, single_server_mode=single_server_mode), config)
    if save_keys:
        typer.echo(f"keys: {save(found.access)}", err=True)
    elif found.access.access_key:
        typer.echo("note: keys were left out; --save-keys keeps them in a 0600 file", err=True)
    for each in left_out(found):
        typer.echo(f"note: left out: {each}", err=True)
    write_whole(output, text)
    typer.echo(str(output))


def _now(record: Record) -> Record:
    """Jobs on this machine are looked at; asking Slurm and ModelArts for all of theirs would take too long."""
    from paceline.jobs import backend_for

    if record.handle.backend != "local" or (record.status is not None and record.status.finished):
        return record
    return msgspec.structs.replace(record, status=backend_for(record.handle).status(record.handle))


def _find(name: str, elsewhere: Path | None) -> JobHandle:
    from paceline.jobs import load_job
    from paceline.jobs.record import find, remember
    from paceline.jobs.submission import recover

    if elsewhere is None:
        return recover(find(name).handle)
    from paceline.jobs.modelarts.backend import ModelArtsBackend

    description = load_job(elsewhere, "modelarts")
    handle = ModelArtsBackend(description).find(description, name, Path("paceline-jobs").absolute())
    remember(handle)
    return handle


def _follow(handle: JobHandle, fetch: Fetch, every: float | None, as_json: bool) -> None:
    from paceline.jobs import wait

    printer = LogPrinter(handle, stream=sys.stderr if as_json else sys.stdout)
    with _detaching(handle):
        outcome = wait(
            handle, on_log=printer, on_trouble=tell_trouble, interval=every,
            on_status=lambda now: typer.echo(phase_text(now), err=True),
        )  # fmt: skip
        printer.end()
        fetched = _fetch(handle, fetch) if outcome.succeeded else None
    _tell(outcome, fetched, as_json)


def _fetch(handle: JobHandle, fetch: Fetch) -> Path | None:
    from paceline.jobs import backend_for
    from paceline.jobs.outputs import is_result

    if fetch is Fetch.none:
        return None
    target = Path(handle.directory) / "output"
    try:
        if fetch is Fetch.all:
            return backend_for(handle).fetch_outputs(handle, target)
        return backend_for(handle).fetch_outputs(handle, target, is_result)
    except PacelineError as error:
        if fetch is Fetch.all:
            raise
        tell_trouble(str(error))
        return None


def _tell(outcome: JobOutcome, fetched: Path | None, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(outcome).decode())
    else:
        typer.echo(outcome_text(outcome, fetched))
    if not outcome.succeeded:
        reason = f": {outcome.status.reason}" if outcome.status.reason else ""
        raise PacelineError(
            f"{outcome.id} {outcome.status.phase.value}{reason}", hint=f"logs: {', '.join(outcome.logs) or 'none'}"
        )


@contextmanager
def _detaching(handle: JobHandle) -> Iterator[None]:
    """Ctrl-C ends the looking, never the job, and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(
            f"\ndetached: the job goes on\n  look again:  paceline job follow {handle.id}\n"
            f"  end it:      paceline job stop {handle.id}",
            err=True,
        )
        raise SystemExit(130) from None


def _row(handle: JobHandle, found: object) -> dict[str, object]:
    return {
        "id": handle.id, "name": handle.name, "backend": handle.backend, "remote_id": handle.remote_id,
        "directory": handle.directory, "submitted": handle.submitted, "outputs": handle.outputs,
        "status": msgspec.to_builtins(found),
    }  # fmt: skip
