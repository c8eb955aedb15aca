"""A job made concrete on a machine: where its code, inputs and outputs lie, and the command of each node."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from paceline.jobs.description import JobDescription, Scalar
from paceline.storage.location import is_remote
from paceline.whole import write_whole

_FILE = "plan.json"


class Plan(msgspec.Struct, frozen=True):
    """Written into the job's directory; what runs there reads nothing else."""

    id: str
    job: JobDescription
    directory: str
    inputs: dict[str, str]
    """Name → where the script finds it."""
    outputs: dict[str, str]
    """Name → where the script writes it."""
    fetch: dict[str, str] = {}
    """Inputs that are elsewhere: name → URL."""
    publish: dict[str, str] = {}
    """Outputs that go elsewhere: name → URL."""

    @property
    def path(self) -> Path:
        return Path(self.directory)

    @property
    def destinations(self) -> dict[str, str]:
        """Where each output ends up."""
        return self.outputs | self.publish

    def arguments(self) -> list[str]:
        """As ModelArts passes them: --name=value for inputs, outputs and hyperparameters."""
        values: dict[str, Scalar] = {**self.inputs, **self.outputs, **self.job.hyperparameters}
        return [f"--{name}={value}" for name, value in values.items()]

    def command(self, node: int, meeting: tuple[str, int]) -> list[str]:
        """One node's ranks, through `paceline launch`; in single-server mode every node is alone."""
        job = self.job
        words = [sys.executable, "-m", "paceline.cli.main", "launch", "--ranks", str(job.ranks), "--show", "all",
                 "--framework", job.framework, "--grace", "20",
                 "--log-dir", str(self.path / "log" / f"worker-{node}")]  # fmt: skip
        if job.nodes > 1 and not job.single_server_mode:
            words += ["--nodes", str(job.nodes), "--node-rank", str(node)]
            words += ["--master-addr", meeting[0], "--master-port", str(meeting[1])]
        return [*words, "--", str(self.path / "code" / job.boot_file), *self.arguments()]

    def environment(self, node: int) -> dict[str, str]:
        """Added to what the node has."""
        job = self.job
        values: dict[str, Scalar] = {**job.environment, **job.pre_start.log_levels}
        own = {"PACELINE_JOB": self.id, "VC_TASK_INDEX": str(node), "BATCH_TASK_INDEX": str(node)}
        if job.single_server_mode:
            own["SINGLESERVER_MODE"] = "True"
        return {name: str(value) for name, value in values.items()} | own

    def write(self) -> None:
        write_whole(self.path / _FILE, msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n")

    @classmethod
    def read(cls, directory: Path) -> Plan:
        return msgspec.json.decode((directory / _FILE).read_bytes(), type=cls)


def make_plan(job: JobDescription, name: str, directory: Path) -> Plan:
    """Inputs and outputs that are elsewhere get a place in the job's directory; the others are used where they are."""
    wanted = output_places(job, name)
    here = {each: str(directory / "output" / each) for each in wanted}
    remote_inputs = {each: where for each, where in job.inputs.items() if is_remote(where)}
    publish = {each: where for each, where in wanted.items() if is_remote(where)}
    return Plan(
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


def output_places(job: JobDescription, name: str) -> dict[str, str]:
    """Outputs as asked for; else one, train_url, under the job's own name below output_url ("": in its directory)."""
    if job.outputs:
        return dict(job.outputs)
    return {"train_url": f"{job.output_url.rstrip('/')}/{name}/" if job.output_url else ""}
