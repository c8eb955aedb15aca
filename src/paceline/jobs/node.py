"""What runs where a job runs (this machine, a Slurm allocation): inputs in, ranks, outputs out, and a note of it all.

python -m paceline.jobs.node DIR all       this machine: everything, all nodes
python -m paceline.jobs.node DIR prepare   Slurm's first node: inputs
python -m paceline.jobs.node DIR run       every Slurm node: its ranks
python -m paceline.jobs.node DIR publish CODE   Slurm's first node: outputs, and how it ended
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from paceline.errors import PacelineError
from paceline.jobs.backend import JobStatus, Phase
from paceline.jobs.plan import Plan
from paceline.jobs.process import process_of
from paceline.jobs.state import read_status, read_workers, write_process, write_status
from paceline.jobs.workers import Workers
from paceline.storage.transfer import transfer
from paceline.training.placement import free_port


def main() -> None:
    directory, verb, *rest = sys.argv[1:]
    plan = Plan.read(Path(directory))
    if verb == "all":
        sys.exit(everything(plan))
    elif verb == "prepare":
        sys.exit(prepare(plan))
    elif verb == "run":
        sys.exit(run_one(plan, int(os.environ["SLURM_PROCID"])))
    else:
        sys.exit(publish(plan, int(rest[0])))


def everything(plan: Plan) -> int:
    """All nodes here, then the end; the status file always says how it ended."""
    write_process(plan.path, process_of(os.getpid()))
    code = prepare(plan)
    if code:
        return code
    write_status(plan.path, JobStatus(Phase.running, "running", started=time.time()))
    workers = Workers(plan, {node: plan.path / "log" / _log_name("local", plan.id, node) for node in _nodes(plan)})
    code = workers.run(("127.0.0.1", free_port()))
    return publish(plan, code, stopped=workers.stopped)


def prepare(plan: Plan) -> int:
    """Inputs from elsewhere; 0, or 1 with the reason in the status file."""
    write_status(plan.path, JobStatus(Phase.pending, "fetching inputs", started=time.time()))
    try:
        for name, url in plan.fetch.items():
            transfer(url, plan.inputs[name]).raise_failures()
        for where in plan.outputs.values():
            Path(where).mkdir(parents=True, exist_ok=True)
    except (PacelineError, OSError) as error:
        print(f"paceline: {error}", flush=True)
        write_status(plan.path, JobStatus(Phase.failed, "fetching inputs", str(error), ended=time.time()))
        return 1
    return 0


def run_one(plan: Plan, node: int) -> int:
    """This Slurm node's ranks."""
    if node == 0:
        write_status(plan.path, JobStatus(Phase.running, "running", started=time.time()))
    number = os.environ["SLURM_JOB_ID"]
    meeting = (os.environ["PACELINE_MASTER"], 20_000 + int(number) % 10_000)
    return Workers(plan, {node: plan.path / "log" / _log_name("slurm", number, node)}).run(meeting)


def publish(plan: Plan, code: int, *, stopped: bool = False) -> int:
    """Outputs to where they belong, whatever the outcome: a failed job's are what one wants to see."""
    reason = "" if code == 0 or stopped else _reason(plan, code)
    for name, url in plan.publish.items():
        try:
            if any(Path(plan.outputs[name]).iterdir()):
                transfer(plan.outputs[name], url).raise_failures()
        except (PacelineError, OSError) as error:
            print(f"paceline: output {name}: {error}", flush=True)
            reason = reason or f"output {name} did not arrive: {error}"
    phase = Phase.stopped if stopped else Phase.failed if reason else Phase.completed
    before = read_status(plan.path)
    started = before.started if before else None
    write_status(plan.path, JobStatus(phase, phase.value, reason, started, time.time(), read_workers(plan.path)))
    return code or int(bool(reason))


def _reason(plan: Plan, code: int) -> str:
    failed = [worker for worker in read_workers(plan.path) if worker.exit_code]
    if not failed:
        return f"exit code {code}"
    # The first to end badly: the others were stopped because of it.
    return f"{failed[0].name}: {failed[0].message}"


def _nodes(plan: Plan) -> range:
    return range(plan.job.nodes)


def _log_name(backend: str, number: str, node: int) -> str:
    return f"{backend}-job-{number}-worker-{node}.log"


if __name__ == "__main__":
    main()
