"""What a job is: code, inputs, outputs, and where it runs; read from YAML, checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from paceline.errors import UsageError
from paceline.jobs.document import Document
from paceline.storage.location import is_remote

BackendName = Literal["local", "slurm", "modelarts"]
Scalar = str | int | float | bool
Count = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A mapping of the YAML file: its fields are the keys that may be used."""


class Engine(Section, frozen=True):
    """A framework of the platform's, as its console names it."""

    name: str
    version: str


class PreStart(Section, frozen=True):
    """What ModelArts does before training: written as ma-pre-start.sh beside the boot file."""

    wheels: tuple[str, ...] = ()
    """Installed with pip; files are uploaded into run/."""
    packages: tuple[str, ...] = ()
    """CANN's .run packages; uploaded into run/."""
    log_levels: dict[str, int] = {}
    """GLOG_v, ASCEND_GLOBAL_LOG_LEVEL, ASCEND_GLOBAL_EVENT_ENABLE, ASCEND_SLOG_PRINT_TO_STDOUT."""
    commands: tuple[str, ...] = ()


class ModelArts(Section, frozen=True):
    """Where the cloud is; keys never belong here."""

    endpoint: str = ""
    region: str = ""
    site: str = ""
    """An AICC's domain, e.g. cn-central-221.ovaijisuan.com."""
    project_id: str = ""
    workspace_id: str = "0"
    max_hours: int | None = None
    """Then ModelArts stops it."""


class Slurm(Section, frozen=True):
    partition: str = ""
    account: str = ""
    time_limit: str = ""
    options: tuple[str, ...] = ()
    """Further words for sbatch, e.g. --gres=npu:8."""


class JobDescription(Section, frozen=True):
    """One job; paths are absolute after `load_job`."""

    job_name: str
    boot_file: str
    """Below code_dir."""
    code_dir: str = "."
    """Here."""
    code_url: str = ""
    """There: where the code is uploaded to."""
    backend: BackendName = "local"
    inputs: dict[str, str] = {}
    outputs: dict[str, str] = {}
    """Name → where it goes; none: train_url below output_url."""
    hyperparameters: dict[str, Scalar] = {}
    environment: dict[str, Scalar] = {}
    framework: Literal["torch", "mindspore"] = "torch"
    """Whose variables the ranks find, where we start them."""
    engine: Engine | None = None
    image: str = ""
    flavor: str = ""
    pool_id: str = ""
    nodes: Count = 1
    ranks: Count = 1
    """Processes per node (cards)."""
    output_url: str = ""
    log_url: str = ""
    single_server_mode: bool = False
    """Each node trains alone, and is measured alone."""
    naming: Literal["timestamp", "version", "exact"] = "timestamp"
    description: str = ""
    pre_start: PreStart = PreStart()
    modelarts: ModelArts = ModelArts()
    slurm: Slurm = Slurm()

    @property
    def world_size(self) -> int:
        return self.ranks if self.single_server_mode else self.nodes * self.ranks


def load_job(path: str | Path, backend: BackendName | None = None) -> JobDescription:
    """From a YAML file, for the backend it names or another; what is wrong is said with file and line."""
    document = Document.read(Path(path))
    return job_of(document.having(backend=backend) if backend else document)


def job_of(document: Document) -> JobDescription:
    """From a document, or a part of one (bench.yaml keeps its job under a key)."""
    # The checks look at descriptions: they cannot be loaded before this module is.
    from paceline.jobs.checks import problems

    job = _placed(document.convert(JobDescription), document.file.absolute().parent)
    found = problems(job)
    if found:
        said = [f"{document.where(*each.key)}: {each.text}" for each in found]
        raise UsageError("\n".join(said), hint="docs/jobs.md; paceline doctor checks more than the description")
    return job


def _placed(job: JobDescription, base: Path) -> JobDescription:
    """Paths mean the same wherever the command is run: they count from the file that names them."""

    def place(where: str) -> str:
        if not where or is_remote(where):
            return where
        if job.backend == "modelarts" and where.startswith("/"):
            return f"obs:/{where}"  # ModelArts' own spelling: /bucket/path/
        return str(base / where)

    def places(channels: dict[str, str]) -> dict[str, str]:
        return {name: place(where) for name, where in channels.items()}

    return msgspec.structs.replace(
        job,
        code_dir=str(Path(base / job.code_dir).resolve()),
        code_url=place(job.code_url),
        inputs=places(job.inputs),
        outputs=places(job.outputs),
        output_url=place(job.output_url),
        log_url=place(job.log_url),
    )
