"""The process that runs a job on its nodes (this machine, a Slurm allocation): inputs, ranks, outputs, status.

python -m paceline.jobs.node.node_runner DIR all       this machine: everything, for all nodes
python -m paceline.jobs.node.node_runner DIR prepare   Slurm's first node: inputs
python -m paceline.jobs.node.node_runner DIR run       every Slurm node: its ranks
python -m paceline.jobs.node.node_runner DIR publish CODE   Slurm's first node: outputs and final status
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from paceline.core.errors import PacelineError
from paceline.jobs.backend import JobPhase, JobStatus
from paceline.jobs.cloud_place import locate_buckets
from paceline.jobs.detached_process import identify_process
from paceline.jobs.job_plan import JobPlan
from paceline.jobs.job_state import read_status, read_workers, write_process, write_status
from paceline.jobs.node.node_processes import NodeProcesses
from paceline.storage.transfer.transfer import transfer
from paceline.training.launcher.rank_placement import free_port


def main() -> None:
    directory, verb, *rest = sys.argv[1:]
    plan = JobPlan.read(Path(directory))
    locate_buckets(plan.job)
    if verb == "all":
        sys.exit(run_all(plan))
    elif verb == "prepare":
        sys.exit(prepare(plan))
    elif verb == "run":
        sys.exit(run_node(plan, int(os.environ["SLURM_PROCID"])))
    else:
        sys.exit(publish(plan, int(rest[0])))


def run_all(plan: JobPlan) -> int:
    """Prepare, run all nodes on this machine, publish; the final status is always written."""
    write_process(plan.path, identify_process(os.getpid()))
    code = prepare(plan)
    if code:
        return code
    write_status(plan.path, JobStatus(JobPhase.running, "running", started=time.time()))
    workers = NodeProcesses(
        plan, {node: plan.path / "log" / _log_name("local", plan.id, node) for node in _nodes(plan)}
    )
    code = workers.run(("127.0.0.1", free_port()))
    return publish(plan, code, stopped=workers.stopped)


def prepare(plan: JobPlan) -> int:
    """Download remote inputs; returns 0, or 1 with the reason in the status file."""
    write_status(plan.path, JobStatus(JobPhase.pending, "fetching inputs", started=time.time()))
    try:
        for name, url in plan.fetch.items():
            transfer(url, plan.inputs[name]).raise_failures()
        for where in plan.outputs.values():
            Path(where).mkdir(parents=True, exist_ok=True)
    except (PacelineError, OSError) as error:
        print(f"paceline: {error}", flush=True)
        write_status(plan.path, JobStatus(JobPhase.failed, "fetching inputs", str(error), ended=time.time()))
        return 1
    return 0


def run_node(plan: JobPlan, node: int) -> int:
    """Run the ranks of this Slurm node."""
    if node == 0:
        write_status(plan.path, JobStatus(JobPhase.running, "running", started=time.time()))
    number = os.environ["SLURM_JOB_ID"]
    rendezvous = (os.environ["PACELINE_MASTER"], 20_000 + int(number) % 10_000)
    return NodeProcesses(plan, {node: plan.path / "log" / _log_name("slurm", number, node)}).run(rendezvous)


def publish(plan: JobPlan, code: int, *, stopped: bool = False) -> int:
    """Upload outputs, also of a failed job, and write the final status."""
    reason = "" if code == 0 or stopped else _reason(plan, code)
    for name, url in plan.publish.items():
        try:
            if any(Path(plan.outputs[name]).iterdir()):
                transfer(plan.outputs[name], url).raise_failures()
        except (PacelineError, OSError) as error:
            print(f"paceline: output {name}: {error}", flush=True)
            reason = reason or f"output {name} was not uploaded: {error}"
    phase = JobPhase.stopped if stopped else JobPhase.failed if reason else JobPhase.completed
    before = read_status(plan.path)
    started = before.started if before else None
    write_status(plan.path, JobStatus(phase, phase.value, reason, started, time.time(), read_workers(plan.path)))
    return code or int(bool(reason))


def _reason(plan: JobPlan, code: int) -> str:
    failed = [worker for worker in read_workers(plan.path) if worker.exit_code]
    if not failed:
        return f"exit code {code}"
    # The first worker that failed: the others were stopped because of it.
    return f"{failed[0].name}: {failed[0].message}"


def _nodes(plan: JobPlan) -> range:
    return range(plan.job.nodes)


def _log_name(backend: str, number: str, node: int) -> str:
    return f"{backend}-job-{number}-worker-{node}.log"


if __name__ == "__main__":
    main()
