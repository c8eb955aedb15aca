"""Build ModelArts' create request from a description: kind, metadata, algorithm, spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.jobs.description import JobDescription, ModelArtsSettings, Scalar
from paceline.storage.url import parse_url


def create_request(job: JobDescription, name: str, outputs: Mapping[str, str], log_url: str) -> Any:
    """The SDK's Job; paths are written as ModelArts expects them, /bucket/path/."""
    from huaweicloudsdkmodelarts.v1 import Job, JobMetadata

    metadata = JobMetadata(
        name=name,
        workspace_id=job.modelarts.workspace_id,
        description=job.description or None,
        annotations=_annotations(job.modelarts) or None,
    )
    return Job(kind="job", metadata=metadata, algorithm=_algorithm(job, outputs), spec=_spec(job, log_url))


def obs_path(url: str, *, directory: bool = True) -> str:
    """
    >>> obs_path("obs://bucket/code")
    '/bucket/code/'
    """
    location = parse_url(url)
    return f"/{location.host}/{location.path}".rstrip("/") + ("/" if directory else "")


def _algorithm(job: JobDescription, outputs: Mapping[str, str]) -> Any:
    from huaweicloudsdkmodelarts.v1 import (
        Input,
        InputDataInfo,
        InputDataInfoObs,
        JobAlgorithm,
        Output,
        Parameters,
        Remote,
        RemoteObs,
    )

    boot_file = obs_path(f"{job.code_url.rstrip('/')}/{job.boot_file}", directory=False)
    return JobAlgorithm(
        code_dir=obs_path(job.code_url),
        boot_file=None if job.command else boot_file,
        command=job.command or None,
        parameters=[Parameters(name=name, value=str(value)) for name, value in job.hyperparameters.items()],
        inputs=[
            Input(name=name, remote=InputDataInfo(obs=InputDataInfoObs(obs_url=obs_path(url))))
            for name, url in job.inputs.items()
        ],
        outputs=[
            Output(name=name, remote=Remote(obs=RemoteObs(obs_url=obs_path(url)))) for name, url in outputs.items()
        ],
        engine=_engine(job),
        environments=_environment(job) or None,
    )


def _engine(job: JobDescription) -> Any:
    from huaweicloudsdkmodelarts.v1 import JobEngine

    if job.engine is not None:
        return JobEngine(engine_name=job.engine.name, engine_version=job.engine.version)
    return JobEngine(image_url=job.image)


def _environment(job: JobDescription) -> dict[str, str]:
    values: dict[str, Scalar] = {**job.environment, **job.pre_start.log_levels}
    if job.single_server_mode:
        values["SINGLESERVER_MODE"] = "True"
    return {name: str(value) for name, value in values.items()}


def _spec(job: JobDescription, log_url: str) -> Any:
    from huaweicloudsdkmodelarts.v1 import (
        AutoStop,
        LogExportPath,
        Nfs,
        Notification,
        RetentionPolicy,
        SchedulePolicy,
        Spec,
        SpecResource,
        SpecVolumes,
    )

    wanted = job.modelarts
    mounts = [
        SpecVolumes(nfs=Nfs(nfs_server_path=each.server, local_path=each.path, read_only=each.read_only))
        for each in wanted.mounts
    ]
    notified, kept = wanted.notification, wanted.retention
    hours = job.modelarts.max_hours
    return Spec(
        resource=SpecResource(flavor_id=job.flavor or None, node_count=job.nodes, pool_id=job.pool_id or None),
        log_export_path=LogExportPath(obs_url=obs_path(log_url)) if log_url else None,
        auto_stop=AutoStop(time_unit="HOURS", duration=hours) if hours else None,
        volumes=mounts or None,
        retention=None if kept is None else RetentionPolicy(policy="enabled" if kept else "disabled"),
        schedule_policy=SchedulePolicy(priority=wanted.priority) if wanted.priority else None,
        notification=Notification(topic_urn=notified.topic_urn, events=list(notified.events)) if notified else None,
    )


def _annotations(wanted: ModelArtsSettings) -> dict[str, str]:
    """The platform restarts jobs by annotations of their metadata."""
    found = {
        "fault-tolerance/job-retry-num": str(wanted.restarts) if wanted.restarts else "",
        "fault-tolerance/job-unconditional-retry": "true" if wanted.restart_always else "",
        "fault-tolerance/hang-retry": "true" if wanted.hang_restart else "",
    }
    return {name: value for name, value in found.items() if value}
