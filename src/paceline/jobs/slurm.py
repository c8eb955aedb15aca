"""Jobs on Slurm: sbatch, squeue, scancel; the job's directory must be on a file system that all nodes share."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from paceline.errors import PacelineError, UsageError
from paceline.jobs.backend import JobHandle, JobStatus, LogPiece, Phase
from paceline.jobs.description import JobDescription
from paceline.jobs.local import handle_of, prepare
from paceline.jobs.log_tail import LogTail
from paceline.jobs.outputs import fetch
from paceline.jobs.plan import Plan, make_plan
from paceline.jobs.record import remember
from paceline.jobs.state import read_status, read_workers
from paceline.storage.report import OnProgress
from paceline.storage.selection import Rule, everything
from paceline.storage.store import TransientError
from paceline.whole import write_whole

PHASES = {
    "PENDING": Phase.pending, "CONFIGURING": Phase.pending, "REQUEUED": Phase.pending, "REQUEUE_HOLD": Phase.pending,
    "REQUEUE_FED": Phase.pending, "RESV_DEL_HOLD": Phase.pending, "SPECIAL_EXIT": Phase.pending,
    "RUNNING": Phase.running, "SUSPENDED": Phase.running, "RESIZING": Phase.running, "SIGNALING": Phase.running,
    "STAGE_OUT": Phase.running, "STOPPED": Phase.running, "COMPLETING": Phase.stopping,
    "COMPLETED": Phase.completed, "CANCELLED": Phase.stopped, "REVOKED": Phase.stopped,
    "FAILED": Phase.failed, "TIMEOUT": Phase.failed, "NODE_FAIL": Phase.failed, "OUT_OF_MEMORY": Phase.failed,
    "BOOT_FAIL": Phase.failed, "DEADLINE": Phase.failed, "PREEMPTED": Phase.failed,
}  # fmt: skip
"""Slurm's words (squeue's JOB STATE CODES); any other is Phase.unknown."""
_TIMEOUT = 60.0
_PASSING = re.compile(r"unable to contact|connection (?:refused|timed out)|socket timed out|zero bytes", re.IGNORECASE)


class SlurmBackend:
    name = "slurm"

    def __init__(self) -> None:
        self._tail = LogTail()

    def submit(self, job: JobDescription, directory: Path, *, progress: OnProgress | None = None) -> JobHandle:
        plan = make_plan(job, directory.name, directory)
        prepare(plan, progress)
        script = directory / "job.sbatch"
        write_whole(script, batch_script(plan))
        remember(handle_of(plan, self.name, ""))
        number = _slurm("sbatch", "--parsable", *sbatch_options(plan), str(script)).partition(";")[0].strip()
        if not number.isdigit():
            raise PacelineError(f"sbatch said {number!r}, which is no job number")
        return handle_of(plan, self.name, number)

    def recover(self, handle: JobHandle) -> JobHandle | None:
        number = _slurm("squeue", "--noheader", "--states=all", f"--name={handle.name}", "--format=%i").strip()
        return msgspec.structs.replace(handle, remote_id=number) if number.isdigit() else None

    def status(self, handle: JobHandle) -> JobStatus:
        word, reason = _state(handle.remote_id)
        said = read_status(Path(handle.directory))
        if not word:
            # Slurm forgets a job some minutes after its end; what the job wrote itself stays.
            return said if said is not None and said.finished else JobStatus(Phase.lost, "unknown to Slurm")
        phase = PHASES.get(word, Phase.unknown)
        if phase is Phase.failed and said is not None and said.reason:
            reason = said.reason
        if phase is Phase.completed and said is not None and said.phase is Phase.failed:
            phase, reason = Phase.failed, said.reason
        started, ended = (said.started, said.ended) if said else (None, None)
        quiet = reason in ("None", "NonZeroExitCode") or phase in (Phase.completed, Phase.running)
        return JobStatus(phase, word, "" if quiet else reason, started, ended, read_workers(Path(handle.directory)))

    def sync_logs(self, handle: JobHandle, *, last: bool = False) -> list[LogPiece]:
        return self._tail.new(handle)

    def stop(self, handle: JobHandle) -> None:
        name = _slurm("squeue", "--noheader", "--states=all", f"--jobs={handle.remote_id}", "--format=%j", gone_ok=True)
        if name.strip() and name.strip() != handle.name:
            raise UsageError(
                f"{handle.id}: Slurm's job {handle.remote_id} is called {name.strip()}: not stopped",
                hint="numbers start again when a cluster is set up anew",
            )
        if name.strip():
            _slurm("scancel", handle.remote_id)

    def fetch_outputs(self, handle: JobHandle, target: Path, rule: Rule = everything) -> Path:
        return fetch(handle, target, rule)


def sbatch_options(plan: Plan) -> list[str]:
    """As words of the command: a directory's name may hold what a script's comment cannot."""
    job, slurm = plan.job, plan.job.slurm
    options = [
        f"--job-name={plan.id}", f"--nodes={job.nodes}", "--ntasks-per-node=1", f"--chdir={plan.directory}",
        f"--output={plan.path / 'log' / 'paceline.log'}", "--open-mode=append",
    ]  # fmt: skip
    for name, value in (("partition", slurm.partition), ("account", slurm.account), ("time", slurm.time_limit)):
        options += [f"--{name}={value}"] if value else []
    return [*options, *slurm.options]


def batch_script(plan: Plan) -> str:
    """Inputs once, ranks on every node, outputs once; scancel still lets outputs get home."""
    node = f"{shlex.quote(sys.executable)} -m paceline.jobs.node {shlex.quote(plan.directory)}"
    bad_exit = 0 if plan.job.single_server_mode else 1
    return "\n".join([
        "#!/bin/bash",
        "trap : TERM",
        'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        # Its address: a node's name need not mean anything to the others' resolvers.
        "export PACELINE_MASTER=$(scontrol show node \"$first\" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')",
        f"{node} prepare || exit 1",
        f"srun --ntasks-per-node=1 --kill-on-bad-exit={bad_exit} {node} run",
        "code=$?",
        f"{node} publish $code",
        "",
    ])  # fmt: skip


def _state(number: str) -> tuple[str, str]:
    """Slurm's word and reason; empty when it does not know the job any more."""
    text = _slurm("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T|%r", gone_ok=True).strip()
    if not text and shutil.which("sacct"):
        told = _slurm("sacct", "-X", "-n", "-P", "-j", number, "--format=State,Reason", gone_ok=True)
        text = (told.splitlines() or [""])[0]
    word, _, reason = text.partition("|")
    return word.partition(" ")[0], reason  # "CANCELLED by 1000"


def _slurm(program: str, *words: str, gone_ok: bool = False) -> str:
    if shutil.which(program) is None:
        raise UsageError(f"{program} is not installed here", hint="run this on a host of the Slurm cluster")
    try:
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise TransientError(f"{program} did not answer in {_TIMEOUT:.0f} s") from None
    said = done.stderr.strip()
    if done.returncode == 0:
        return done.stdout
    if _PASSING.search(said):
        raise TransientError(f"{program}: {said}", hint="is slurmctld running?")
    if gone_ok and ("Invalid job id" in said or program == "sacct"):
        return ""
    raise PacelineError(f"{program}: {said or f'exit code {done.returncode}'}")
