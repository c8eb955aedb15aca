"""Slurm backend: sbatch, squeue, scancel; the job's directory must be on a file system that all nodes share."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import PacelineError, UsageError
from paceline.core.waiting import waiting_for
from paceline.jobs.backend import JobHandle, JobPhase, JobStatus, LogPiece
from paceline.jobs.description import JobDescription
from paceline.jobs.job_plan import JobPlan, make_job_plan
from paceline.jobs.job_registry import save_record
from paceline.jobs.job_state import read_status, read_workers
from paceline.jobs.local import handle_of, prepare
from paceline.jobs.log_tail import LogTail
from paceline.jobs.outputs import fetch_outputs
from paceline.storage.file_selection import FileFilter, everything
from paceline.storage.store_errors import TransientError
from paceline.storage.transfer.transfer_report import OnProgress

PHASES = {
    "PENDING": JobPhase.pending,
    "CONFIGURING": JobPhase.pending,
    "REQUEUED": JobPhase.pending,
    "REQUEUE_HOLD": JobPhase.pending,
    "REQUEUE_FED": JobPhase.pending,
    "RESV_DEL_HOLD": JobPhase.pending,
    "SPECIAL_EXIT": JobPhase.pending,
    "RUNNING": JobPhase.running,
    "SUSPENDED": JobPhase.running,
    "RESIZING": JobPhase.running,
    "SIGNALING": JobPhase.running,
    "STAGE_OUT": JobPhase.running,
    "STOPPED": JobPhase.running,
    "COMPLETING": JobPhase.stopping,
    "COMPLETED": JobPhase.completed,
    "CANCELLED": JobPhase.stopped,
    "REVOKED": JobPhase.stopped,
    "FAILED": JobPhase.failed,
    "TIMEOUT": JobPhase.failed,
    "NODE_FAIL": JobPhase.failed,
    "OUT_OF_MEMORY": JobPhase.failed,
    "BOOT_FAIL": JobPhase.failed,
    "DEADLINE": JobPhase.failed,
    "PREEMPTED": JobPhase.failed,
}
"""Slurm's job state codes (see squeue); any other is JobPhase.unknown."""
_TIMEOUT = 60.0
_TRANSIENT = re.compile(
    r"unable to contact|connection (?:refused|timed out)|socket timed out|zero bytes", re.IGNORECASE
)


def create_backend(job: JobDescription) -> SlurmBackend:
    """Entry point; needs nothing of the description."""
    return SlurmBackend()


class SlurmBackend:
    name = "slurm"
    poll_seconds = 3.0

    def __init__(self) -> None:
        self._tail = LogTail()

    def submit(self, job: JobDescription, directory: Path, *, progress: OnProgress | None = None) -> JobHandle:
        plan = make_job_plan(job, directory.name, directory)
        prepare(plan, progress)
        script = directory / "job.sbatch"
        atomic_write_text(script, batch_script(plan))
        save_record(handle_of(plan, self.name, ""))
        number = _slurm("sbatch", "--parsable", *sbatch_options(plan), str(script)).partition(";")[0].strip()
        if not number.isdigit():
            raise PacelineError(f"sbatch printed {number!r}, expected a job id")
        return handle_of(plan, self.name, number)

    def recover(self, handle: JobHandle) -> JobHandle | None:
        number = _slurm("squeue", "--noheader", "--states=all", f"--name={handle.name}", "--format=%i").strip()
        return msgspec.structs.replace(handle, remote_id=number) if number.isdigit() else None

    def status(self, handle: JobHandle) -> JobStatus:
        word, reason = _state(handle.remote_id)
        own_status = read_status(Path(handle.directory))
        if not word:
            # Slurm forgets a job some minutes after its end; the job's own state files stay.
            return (
                own_status
                if own_status is not None and own_status.finished
                else JobStatus(JobPhase.lost, "unknown to Slurm")
            )
        phase = PHASES.get(word, JobPhase.unknown)
        if phase is JobPhase.failed and own_status is not None and own_status.reason:
            reason = own_status.reason
        if phase is JobPhase.completed and own_status is not None and own_status.phase is JobPhase.failed:
            phase, reason = JobPhase.failed, own_status.reason
        started, ended = (own_status.started, own_status.ended) if own_status else (None, None)
        quiet = reason in ("None", "NonZeroExitCode") or phase in (JobPhase.completed, JobPhase.running)
        return JobStatus(phase, word, "" if quiet else reason, started, ended, read_workers(Path(handle.directory)))

    def sync_logs(self, handle: JobHandle, *, last: bool = False) -> list[LogPiece]:
        return self._tail.new(handle)

    def stop(self, handle: JobHandle) -> None:
        name = _slurm("squeue", "--noheader", "--states=all", f"--jobs={handle.remote_id}", "--format=%j", gone_ok=True)
        if name.strip() and name.strip() != handle.name:
            raise UsageError(
                f"{handle.id}: Slurm's job {handle.remote_id} is named {name.strip()}: not stopped",
                hint="Slurm's ids start again when a cluster is set up again",
            )
        if name.strip():
            _slurm("scancel", handle.remote_id)

    def fetch_outputs(self, handle: JobHandle, target: Path, rule: FileFilter = everything) -> Path:
        return fetch_outputs(handle, target, rule)


def sbatch_options(plan: JobPlan) -> list[str]:
    """As arguments: a directory's name may contain characters that #SBATCH lines do not allow."""
    job, slurm = plan.job, plan.job.slurm
    options = [
        f"--job-name={plan.id}",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.ranks}",
        f"--cpus-per-task={slurm.cpus_per_task}",
        f"--chdir={plan.directory}",
        f"--output={plan.path / 'log' / 'paceline.log'}",
        "--open-mode=append",
    ]
    given = {
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "time": slurm.time_limit,
        "gres": slurm.gres,
        "gpus-per-node": slurm.gpus_per_node,
    }
    options += [f"--{name}={value}" for name, value in given.items() if value]
    return [*options, *(["--exclusive"] if slurm.exclusive else []), *slurm.options]


def step_options(plan: JobPlan) -> list[str]:
    """One launcher per node, with the cores of all its ranks: srun does not take them over from sbatch."""
    job = plan.job
    cores = "$SLURM_CPUS_ON_NODE" if job.slurm.exclusive else str(job.ranks * job.slurm.cpus_per_task)
    return [f"--nodes={job.nodes}", f"--ntasks={job.nodes}", "--ntasks-per-node=1", f"--cpus-per-task={cores}"]


def batch_script(plan: JobPlan) -> str:
    """Download inputs once, run ranks on every node, upload outputs once, also after scancel."""
    node = f"{shlex.quote(sys.executable)} -m paceline.jobs.node.node_runner {shlex.quote(plan.directory)}"
    bad_exit = 0 if plan.job.single_server_mode else 1
    return "\n".join(
        [
            "#!/bin/bash",
            "trap : TERM",
            'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            # Its address, because a node's name need not resolve on the other nodes.
            "export PACELINE_MASTER=$(scontrol show node \"$first\" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p')",
            f"{node} prepare || exit 1",
            f"srun {' '.join(step_options(plan))} --kill-on-bad-exit={bad_exit} {node} run",
            "code=$?",
            f"{node} publish $code",
            "",
        ]
    )


def _state(number: str) -> tuple[str, str]:
    """Slurm's state and reason; empty when it does not know the job any more."""
    text = _slurm("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T|%r", gone_ok=True).strip()
    if not text and shutil.which("sacct"):
        answer = _slurm("sacct", "-X", "-n", "-P", "-j", number, "--format=State,Reason", gone_ok=True)
        text = (answer.splitlines() or [""])[0]
    word, _, reason = text.partition("|")
    return word.partition(" ")[0], reason  # "CANCELLED by 1000"


def _slurm(program: str, *words: str, gone_ok: bool = False) -> str:
    if shutil.which(program) is None:
        raise UsageError(f"{program} is not installed on this machine", hint="run this on a host of the Slurm cluster")
    try:
        with waiting_for(f"Slurm ({program})"):
            done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise TransientError(f"{program} did not answer within {_TIMEOUT:.0f} s") from None
    error = done.stderr.strip()
    if done.returncode == 0:
        return done.stdout
    if _TRANSIENT.search(error):
        raise TransientError(f"{program}: {error}", hint="check that slurmctld is running")
    if gone_ok and ("Invalid job id" in error or program == "sacct"):
        return ""
    raise PacelineError(f"{program}: {error or f'exit code {done.returncode}'}")
