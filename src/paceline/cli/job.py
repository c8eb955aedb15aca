"""`paceline job`: start a job, follow it, stop it; on this machine, on Slurm, on ModelArts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import msgspec
import typer
from typing_extensions import Annotated

from paceline.cli.console.job_output import LogPrinter, outcome_text, phase_text, print_note, status_text, table
from paceline.cli.console.transfer_output import progress_bar
from paceline.cli.job_offers import engines, flavors, pools
from paceline.cli.options.backend_option import BackendOption
from paceline.core.errors import PacelineError
from paceline.core.str_enum import StrEnum

if TYPE_CHECKING:
    from paceline.jobs import JobHandle, JobOutcome

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
    Optional[Path], typer.Option("--job", help="Description of a ModelArts job that was not started on this machine.")
]
Fetching = Annotated[FetchOutputs, typer.Option("--fetch", help="Outputs to download at the end.")]
Every = Annotated[Optional[float], typer.Option("--every", min=0.05, help="Seconds between two polls.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON; logs go to stderr.")]


@job.command()
def submit(
    description: Description,
    backend: BackendOption = None,
    into: Annotated[
        Optional[Path], typer.Option("--into", help="Directory for this job.  [default: paceline-jobs/NAME-TIME]")
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
    with progress_bar("uploading", before=f"the answers of {found.backend}, before uploading") as show:
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
    """List the jobs this user started on this machine, newest first, with the status their backends report now.

    Where a backend does not answer within ten seconds, the last known status is shown with its age.

    Example:  paceline job list
    """
    from paceline.jobs.job_registry import list_records
    from paceline.jobs.live_status import with_live_status

    known = with_live_status(list_records())
    if as_json:
        rows = [_row(record.handle, record.status) | {"checked": record.checked} for record in known]
        typer.echo(json.dumps(rows, ensure_ascii=False))
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
    worker: Annotated[Optional[int], typer.Option("--worker", min=0, help="Only the log of this node.")] = None,
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

    Of several jobs with this name, the one that runs is stopped; if several run, their ids are listed.

    Example:  paceline job stop gpt2-20261117-020000-3fa2
    """
    from paceline.jobs import backend_for
    from paceline.jobs.job_registry import save_record

    handle = _find(name, elsewhere, only_running=True)
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
    config: Annotated[
        Path,
        typer.Argument(
            metavar="PACKAGE", help="Directory of an unpacked ais-bench package, or its modelarts_config.py."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Description to write.")] = Path("job.yaml"),
    code_dir: Annotated[
        Optional[str],
        typer.Option(
            "--code-dir", "--local_code_path", help="Code directory on this machine.  [default: the package's]"
        ),
    ] = None,
    version: Annotated[
        Optional[ConfigVersion],
        typer.Option("--version", "--modelarts_version", help="Which session.  [default: config.sh's, else V1]"),
    ] = None,
    single_server_mode: Annotated[
        bool, typer.Option("--single-server-mode", "--single_server_mode", help="Every node trains alone.")
    ] = False,
    save_keys: Annotated[
        bool, typer.Option("--save-keys", help="Save its credentials to the access file (mode 0600).")
    ] = False,
) -> None:
    """Convert an ais-bench package to job.yaml and bench.yaml, without running it; credentials are not written there.

    Of a package, config.sh (SINGLESERVER_MODE, MODELARTS_VERSION) and config.json are read too.

    Example:  paceline job import train_huawei_train_mindspore_resnet -o job.yaml
    """
    from paceline.jobs.aisbench.aisbench_import import import_package
    from paceline.jobs.aisbench.aisbench_package import open_package

    package = open_package(config)
    found = import_package(
        package,
        output,
        code_dir=code_dir,
        version=version.value if version else package.version,
        single_server_mode=single_server_mode or package.single_server_mode,
        save_keys=save_keys,
    )
    for note in found.notes:
        print_note(note)
    for path in found.written:
        typer.echo(str(path))


job.command("flavors")(flavors)
job.command("engines")(engines)
job.command("pools")(pools)


def _find(name: str, elsewhere: Path | None, *, only_running: bool = False) -> JobHandle:
    from paceline.jobs import load_job
    from paceline.jobs.job_registry import find_record, save_record
    from paceline.jobs.submission import recover_handle

    if elsewhere is None:
        from paceline.jobs.live_status import running_records

        found = find_record(name, running_records) if only_running else find_record(name)
        return recover_handle(found.handle)
    from paceline.jobs.modelarts.backend import ModelArtsBackend

    description = load_job(elsewhere, "modelarts")
    place = Path("paceline-jobs").absolute()
    handle = ModelArtsBackend(description).find(description, name, place, only_running=only_running)
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
        later = f"fetch them later with: paceline job follow {handle.id}"
        if fetch is FetchOutputs.all:
            raise PacelineError(str(error), hint=f"{error.hint}; {later}" if error.hint else later) from error
        print_note(f"{error}; {later}")
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
