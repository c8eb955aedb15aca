"""What a job is: code, inputs, outputs, and where it runs; read from YAML, checked before anything starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from paceline.errors import UsageError
from paceline.jobs.document import Document

BackendName = Literal["local", "slurm", "modelarts"]
Scalar = str | int | float | bool
Count = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A mapping of the YAML file: its fields are the keys that may be used."""


class Engine(Section):
    """A framework of the platform's, as its console names it."""

    name: str
    version: str


class PreStart(Section):
    """What ModelArts does before training: written as ma-pre-start.sh beside the boot file."""

    wheels: tuple[str, ...] = ()
    """Installed with pip; files are uploaded into run/."""
    packages: tuple[str, ...] = ()
    """CANN's .run packages; uploaded into run/."""
    log_levels: dict[str, int] = {}
    """GLOG_v, ASCEND_GLOBAL_LOG_LEVEL, ASCEND_GLOBAL_EVENT_ENABLE, ASCEND_SLOG_PRINT_TO_STDOUT."""
    commands: tuple[str, ...] = ()


class ModelArts(Section):
    """Where the cloud is; keys never belong here."""

    endpoint: str = ""
    region: str = ""
    site: str = ""
    """An AICC's domain, e.g. cn-central-221.ovaijisuan.com."""
    project_id: str = ""
    workspace_id: str = "0"
    max_hours: int | None = None
    """Then ModelArts stops it."""


class Slurm(Section):
    partition: str = ""
    account: str = ""
    time_limit: str = ""
    options: tuple[str, ...] = ()
    """Further words for sbatch, e.g. --gres=npu:8."""


class JobDescription(Section):
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


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def load_job(path: str | Path) -> JobDescription:
    """From a YAML file; what is wrong is said with file and line, all of it at once."""
    return job_of(Document.read(Path(path)))


def job_of(document: Document) -> JobDescription:
    """From a document, or a part of one (bench.yaml keeps its job under a key)."""
    job = document.convert(JobDescription)
    if not _NAME.fullmatch(job.job_name):
        raise UsageError(
            f"{document.where('job_name')}: job_name {job.job_name!r} is not possible",
            hint="1 to 64 letters, digits, - and _",
        )
    return job
