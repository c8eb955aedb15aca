"""The keys of job.yaml: code, inputs, outputs, hyperparameters, and where the job runs."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Scalar = str | int | float | bool
Count = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class YamlMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A mapping of the YAML file: its fields are the keys that may be used."""


class FrameworkEngine(YamlMapping, frozen=True):
    """A framework image of ModelArts, as its console names it."""

    name: str
    version: str


class PreStart(YamlMapping, frozen=True):
    """What ModelArts runs before training: written to ma-pre-start.sh in the boot file's directory."""

    wheels: tuple[str, ...] = ()
    """Installed with pip; files are uploaded into run/."""
    packages: tuple[str, ...] = ()
    """CANN's .run packages; uploaded into run/."""
    log_levels: dict[str, int] = {}
    """GLOG_v, ASCEND_GLOBAL_LOG_LEVEL, ASCEND_GLOBAL_EVENT_ENABLE, ASCEND_SLOG_PRINT_TO_STDOUT."""
    commands: tuple[str, ...] = ()
    agent: bool | tuple[Literal["commands", "storage", "checkpoint"], ...] = True
    """Whether the job can import Paceline: with the extras of the agent wheel, true for commands; false for none of it."""
    python: str = ""
    """The image's Python, such as 3.9; default: from the engine's name."""
    agent_wheels: str = ""
    """Directory with the wheels that the agent needs, where they cannot be downloaded."""


class NfsMount(YamlMapping, frozen=True):
    """A directory of an NFS server (SFS Turbo) on every node."""

    server: str
    """HOST:/path"""
    path: str
    """On the node."""
    read_only: bool = False


class Notification(YamlMapping, frozen=True):
    """Messages of a topic of the cloud's notification service."""

    topic_urn: str
    events: tuple[str, ...] = ("JobCompleted", "JobFailed", "JobTerminated")


class ModelArtsSettings(YamlMapping, frozen=True):
    """Endpoint and project of ModelArts; never credentials."""

    endpoint: str = ""
    region: str = ""
    site: str = ""
    """Domain of an AICC, e.g. cn-central-221.ovaijisuan.com."""
    project_id: str = ""
    workspace_id: str = "0"
    max_hours: int | None = None
    """ModelArts stops the job after this time."""
    mounts: tuple[NfsMount, ...] = ()
    priority: Annotated[int, msgspec.Meta(ge=1, le=3)] | None = None
    """In a dedicated pool; 3 is the highest."""
    restarts: Annotated[int, msgspec.Meta(ge=0, le=128)] = 0
    """How often the platform restarts a job that failed because of a fault."""
    hang_restart: bool = False
    """Also a job that hangs."""
    restart_always: bool = False
    """After any failure, not only after faults of the platform."""
    retention: bool | None = None
    """Whether ModelArts may delete the job's record when it has aged; None: what the account is set to."""
    notification: Notification | None = None


class SlurmSettings(YamlMapping, frozen=True):
    partition: str = ""
    account: str = ""
    qos: str = ""
    time_limit: str = ""
    cpus_per_task: Count = 1
    """Cores of every rank."""
    gres: str = ""
    """Of every node, e.g. npu:8."""
    gpus_per_node: Count | None = None
    exclusive: bool = False
    """The whole node, with all its cores."""
    options: tuple[str, ...] = ()
    """More options for sbatch, e.g. --gres=npu:8."""


class JobDescription(YamlMapping, frozen=True):
    """One job; paths are absolute after `load_job`."""

    job_name: str
    boot_file: str
    """Relative to code_dir."""
    code_dir: str = "."
    """On this machine."""
    code_url: str = ""
    """Bucket path that the code is uploaded to."""
    backend: str = "local"
    """local, slurm, modelarts, or a name in the entry-point group paceline.job_backends."""
    backend_options: dict[str, Scalar] = {}
    """For backends of other packages; ours have keys of their own."""
    inputs: dict[str, str] = {}
    outputs: dict[str, str] = {}
    """Name → path or URL; none: train_url below output_url."""
    hyperparameters: dict[str, Scalar] = {}
    environment: dict[str, Scalar] = {}
    framework: Literal["torch", "mindspore"] = "torch"
    """Which environment variables our launcher sets for the ranks."""
    engine: FrameworkEngine | None = None
    image: str = ""
    command: str = ""
    """What a custom image runs, instead of the boot file."""
    flavor: str = ""
    pool_id: str = ""
    nodes: Count = 1
    ranks: Count = 1
    """Processes per node (cards)."""
    output_url: str = ""
    log_url: str = ""
    single_server_mode: bool = False
    """Every node trains alone and is scored alone."""
    naming: Literal["timestamp", "version", "exact"] = "timestamp"
    description: str = ""
    pre_start: PreStart = PreStart()
    modelarts: ModelArtsSettings = ModelArtsSettings()
    slurm: SlurmSettings = SlurmSettings()

    @property
    def world_size(self) -> int:
        return self.ranks if self.single_server_mode else self.nodes * self.ranks
