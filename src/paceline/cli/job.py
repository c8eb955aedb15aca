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

from paceline.cli.backend_option import BackendOption
from paceline.cli.job_output import LogPrinter, outcome_text, phase_text, print_note, status_text, table
from paceline.cli.transfer_output import progress_bar
from paceline.core.errors import PacelineError, UsageError

if TYPE_CHECKING:
    from paceline.jobs import JobHandle, JobOutcome
    from paceline.jobs.job_registry import JobRecord

job = typer.Typer(
    help="Start training jobs, follow and stop them: on this machine, on Slurm, on ModelArts.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class FetchOutputs(StrEnum):
    """Which outputs are downloaded at the end."""

    results = "results"
    all = "all"
    none = "none"


class ConfigVersion(StrEnum):
    V1 = "V1"
    V2 = "V2"


Description = Annotated[Path, typer.Argument(metavar="JOB.YAML", help="Job description.")]
Known = Annotated[str, typer.Argument(metavar="JOB", help="Id, exact name, or the backend's id.")]
Elsewhere = Annotated[
    Path | None, typer.Option("--job", help="Description of a ModelArts job that was not started on this machine.")
]
Fetching = Annotated[FetchOutputs, typer.Option("--fetch", help="Outputs to download at the end.")]
Every = Annotated[float | None, typer.Option("--every", min=0.05, help="Seconds between two polls.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON; logs go to stderr.")]


@job.command()
def submit(
    description: Description,
    backend: BackendOption = None,
    into: Annotated[
        Path | None, typer.Option("--into", help="Directory for this job.  [default: paceline-jobs/NAME-TIME]")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start the job and return.")] = False,
    fetch: Fetching = FetchOutputs.results,
    every: Every = None,
    as_json: Json = False,
) -> None:
    """Upload the code, start the job, and follow it to its end; Ctrl-C detaches and leaves it running.

    Example:  paceline job submit job.yaml

    Example:  paceline job submit job.yaml --backend slurm --detach
    """
    from paceline.jobs import load_job
    from paceline.jobs import submit as start

    found = load_job(description, backend)
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
    fetch: Fetching = FetchOutputs.results,
    every: Every = None,
    as_json: Json = False,
) -> None:
    """Show a job's logs until it ends, from any shell; Ctrl-C detaches and leaves it running.

    Example:  paceline job follow gpt2-20261117-020000-3fa2
    """
    _follow(_find(name, elsewhere), fetch, every, as_json)


@job.command("list")
def list_(as_json: Json = False) -> None:
    """List the jobs this user started on this machine, newest first; remote ones with their last known status.

    Example:  paceline job list
    """
    from paceline.jobs.job_registry import list_records

    known = [_with_current_status(record) for record in list_records()]
    if as_json:
        typer.echo(json.dumps([_row(record.handle, record.status) for record in known], ensure_ascii=False))
    elif known:
        typer.echo(table(known))
    else:
        typer.echo("no jobs yet: paceline job submit job.yaml", err=True)


@job.command()
def status(name: Known, elsewhere: Elsewhere = None, as_json: Json = False) -> None:
    """Show the status of a job, asked from its backend; exit code 1 if it failed or is lost.

    Example:  paceline job status gpt2-20261117-020000-3fa2
    """
    from paceline.jobs import JobPhase, backend_for
    from paceline.jobs.job_registry import save_record

    handle = _find(name, elsewhere)
    found = backend_for(handle).status(handle)
    save_record(handle, found)
    typer.echo(json.dumps(_row(handle, found), ensure_ascii=False) if as_json else status_text(handle, found))
    if found.phase in (JobPhase.failed, JobPhase.lost):
        raise typer.Exit(1)


@job.command()
def logs(
    name: Known,
    follow_log: Annotated[bool, typer.Option("-f", "--follow", help="Continue until the job ends.")] = False,
    worker: Annotated[int | None, typer.Option("--worker", min=0, help="Only the log of this node.")] = None,
    elsewhere: Elsewhere = None,
    every: Every = None,
) -> None:
    """Show a job's logs, updated first; of all workers, or of one.

    Example:  paceline job logs gpt2-20261117-020000-3fa2 -f --worker 0
    """
    from paceline.jobs import backend_for, wait
    from paceline.storage.store_errors import TransientError

    handle = _find(name, elsewhere)
    printer = LogPrinter(handle, only=worker)
    if follow_log:
        with _detaching(handle):
            wait(handle, on_log=printer, on_trouble=print_note, interval=every)
    else:
        backend = backend_for(handle)
        try:
            last = backend.status(handle).finished
        except TransientError as error:
            print_note(f"{error}; showing the local copy")
            last = False
        for piece in backend.sync_logs(handle, last=last):
            printer(piece)
    printer.end()


@job.command()
def stop(name: Known, elsewhere: Elsewhere = None) -> None:
    """Stop the job with exactly this id or name; its outputs and logs are kept.

    Example:  paceline job stop gpt2-20261117-020000-3fa2
    """
    from paceline.jobs import backend_for
    from paceline.jobs.job_registry import save_record

    handle = _find(name, elsewhere)
    backend = backend_for(handle)
    before = backend.status(handle)
    if before.finished and before.phase.value != "lost":
        typer.echo(f"{handle.id} has already ended: {before.phase.value}", err=True)
        return
    backend.stop(handle)
    after = backend.status(handle)
    save_record(handle, after)
    typer.echo(f"{handle.id}: {after.phase.value}")


@job.command("import")
def import_(
    config: Annotated[Path, typer.Argument(metavar="MODELARTS_CONFIG.PY", help="ais-bench's configuration.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Description to write.")] = Path("job.yaml"),
    code_dir: Annotated[
        str, typer.Option("--code-dir", "--local_code_path", help="Code directory on this machine.")
    ] = "code",
    version: Annotated[
        ConfigVersion | None,
        typer.Option("--version", "--modelarts_version", help="Which session of the configuration."),
    ] = None,
    single_server_mode: Annotated[
        bool, typer.Option("--single-server-mode", "--single_server_mode", help="Every node trains alone.")
    ] = False,
    save_keys: Annotated[
        bool, typer.Option("--save-keys", help="Save its credentials to the access file (mode 0600).")
    ] = False,
) -> None:
    """Convert ais-bench's modelarts_config.py to job.yaml without running it; credentials are not written there.

    Example:  paceline job import modelarts_config.py -o job.yaml
    """
    from paceline.core.atomic_write import atomic_write_text
    from paceline.jobs.aisbench_config import read_aisbench_config
    from paceline.jobs.import_config import as_yaml, to_job_description, unsupported_settings
    from paceline.jobs.import_config import save_credentials as save

    if output.exists():
        raise UsageError(f"{output} already exists", hint="choose another --output")
    found = read_aisbench_config(config, version.value if version else None)
    text = as_yaml(to_job_description(found, code_dir, single_server_mode=single_server_mode), config)
    if save_keys:
        typer.echo(f"credentials: {save(found.access)}", err=True)
    elif found.access.access_key:
        typer.echo("note: credentials were left out; --save-keys saves them to a file with mode 0600", err=True)
    for each in unsupported_settings(found):
        typer.echo(f"note: not supported: {each}", err=True)
    atomic_write_text(output, text)
    typer.echo(str(output))


def _with_current_status(record: JobRecord) -> JobRecord:
    """Local jobs are asked for their status; asking Slurm or ModelArts for every job would take too long."""
    from paceline.jobs import backend_for

    if record.handle.backend != "local" or (record.status is not None and record.status.finished):
        return record
    return msgspec.structs.replace(record, status=backend_for(record.handle).status(record.handle))


def _find(name: str, elsewhere: Path | None) -> JobHandle:
    from paceline.jobs import load_job
    from paceline.jobs.job_registry import find_record, save_record
    from paceline.jobs.submission import recover_handle

    if elsewhere is None:
        return recover_handle(find_record(name).handle)
    from paceline.jobs.modelarts.backend import ModelArtsBackend

    description = load_job(elsewhere, "modelarts")
    handle = ModelArtsBackend(description).find(description, name, Path("paceline-jobs").absolute())
    save_record(handle)
    return handle


def _follow(handle: JobHandle, fetch: FetchOutputs, every: float | None, as_json: bool) -> None:
    from paceline.jobs import wait

    printer = LogPrinter(handle, stream=sys.stderr if as_json else sys.stdout)
    with _detaching(handle):
        outcome = wait(
            handle,
            on_log=printer,
            on_trouble=print_note,
            interval=every,
            on_status=lambda now: typer.echo(phase_text(now), err=True),
        )
        printer.end()
        fetched = _fetch(handle, fetch) if outcome.succeeded else None
    _print_outcome(outcome, fetched, as_json)


def _fetch(handle: JobHandle, fetch: FetchOutputs) -> Path | None:
    from paceline.jobs import backend_for
    from paceline.jobs.outputs import is_benchmark_result

    if fetch is FetchOutputs.none:
        return None
    target = Path(handle.directory) / "output"
    try:
        if fetch is FetchOutputs.all:
            return backend_for(handle).fetch_outputs(handle, target)
        return backend_for(handle).fetch_outputs(handle, target, is_benchmark_result)
    except PacelineError as error:
        if fetch is FetchOutputs.all:
            raise
        print_note(str(error))
        return None


def _print_outcome(outcome: JobOutcome, fetched: Path | None, as_json: bool) -> None:
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
    """Ctrl-C detaches from the job and prints how to re-attach or stop it."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(
            f"\ndetached: the job keeps running\n  re-attach:  paceline job follow {handle.id}\n"
            f"  stop:       paceline job stop {handle.id}",
            err=True,
        )
        raise SystemExit(130) from None


def _row(handle: JobHandle, found: object) -> dict[str, object]:
    return {
        "id": handle.id,
        "name": handle.name,
        "backend": handle.backend,
        "remote_id": handle.remote_id,
        "directory": handle.directory,
        "submitted": handle.submitted,
        "outputs": handle.outputs,
        "status": msgspec.to_builtins(found),
    }
