"""The plan of a job that we run ourselves: paths of code, inputs and outputs, and the command of each node."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from paceline.core.atomic_write import atomic_write_text
from paceline.jobs.description import JobDescription, Scalar
from paceline.storage.url import is_remote

_FILE = "plan.json"


class JobPlan(msgspec.Struct, frozen=True):
    """Stored in the job's directory; the node runner reads nothing else."""

    id: str
    job: JobDescription
    directory: str
    inputs: dict[str, str]
    """Name → path the script reads."""
    outputs: dict[str, str]
    """Name → path the script writes."""
    fetch: dict[str, str] = {}
    """Remote inputs to download first: name → URL."""
    publish: dict[str, str] = {}
    """Remote outputs to upload at the end: name → URL."""

    @property
    def path(self) -> Path:
        return Path(self.directory)

    @property
    def destinations(self) -> dict[str, str]:
        """Final path or URL of each output."""
        return self.outputs | self.publish

    def arguments(self) -> list[str]:
        """As ModelArts passes them: --name=value for inputs, outputs and hyperparameters."""
        values: dict[str, Scalar] = {**self.inputs, **self.outputs, **self.job.hyperparameters}
        return [f"--{name}={value}" for name, value in values.items()]

    def command(self, node: int, rendezvous: tuple[str, int]) -> list[str]:
        """Starts the ranks of one node with `paceline launch`; in single-server mode every node is on its own."""
        job = self.job
        words = [
            sys.executable,
            "-m",
            "paceline.cli.main",
            "launch",
            "--ranks",
            str(job.ranks),
            "--show",
            "all",
            "--framework",
            job.framework,
            "--grace",
            "20",
            "--log-dir",
            str(self.path / "log" / f"worker-{node}"),
        ]
        if job.nodes > 1 and not job.single_server_mode:
            words += ["--nodes", str(job.nodes), "--node-rank", str(node)]
            words += ["--master-addr", rendezvous[0], "--master-port", str(rendezvous[1])]
        return [*words, "--", str(self.path / "code" / job.boot_file), *self.arguments()]

    def environment(self, node: int) -> dict[str, str]:
        """Variables added to the node's environment."""
        job = self.job
        values: dict[str, Scalar] = {**job.environment, **job.pre_start.log_levels}
        own = {"PACELINE_JOB": self.id, "VC_TASK_INDEX": str(node), "BATCH_TASK_INDEX": str(node)}
        if job.single_server_mode:
            own["SINGLESERVER_MODE"] = "True"
        return {name: str(value) for name, value in values.items()} | own

    def write(self) -> None:
        atomic_write_text(self.path / _FILE, msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n")

    @classmethod
    def read(cls, directory: Path) -> JobPlan:
        return msgspec.json.decode((directory / _FILE).read_bytes(), type=cls)


def make_job_plan(job: JobDescription, name: str, directory: Path) -> JobPlan:
    """Remote inputs and outputs get a path in the job's directory; local ones are used where they are."""
    wanted = output_locations(job, name)
    here = {each: str(directory / "output" / each) for each in wanted}
    remote_inputs = {each: where for each, where in job.inputs.items() if is_remote(where)}
    publish = {each: where for each, where in wanted.items() if is_remote(where)}
    return JobPlan(
        id=name,
        job=job,
        directory=str(directory),
        inputs={
            each: str(directory / "input" / each) if each in remote_inputs else job.inputs[each] for each in job.inputs
        },
        outputs={each: here[each] if each in publish or not where else where for each, where in wanted.items()},
        fetch=remote_inputs,
        publish=publish,
    )


def output_locations(job: JobDescription, name: str) -> dict[str, str]:
    """Outputs as described; if none, train_url below output_url/<job's name> ("": in the job's directory)."""
    if job.outputs:
        return dict(job.outputs)
    return {"train_url": f"{job.output_url.rstrip('/')}/{name}/" if job.output_url else ""}
