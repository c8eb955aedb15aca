"""Places of their own for job tests: state, keys, a bucket, a ModelArts stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.jobs.slurm_cluster import SlurmCluster, missing
from support.jobs.standin import PROJECT, StandIn
from support.storage.fixtures import bucket, own_places, proxy, s3
from support.storage.servers import S3Server

__all__ = ["bucket", "own_places", "proxy", "s3"]


@pytest.fixture(autouse=True)
def own_state(own_places: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees another's jobs, or the machine's."""
    monkeypatch.setenv("PACELINE_STATE", str(tmp_path / "state"))
    for name in ("HUAWEICLOUD_SDK_SK", "HUAWEICLOUD_SDK_SECURITY_TOKEN", "HUAWEICLOUD_SDK_PROJECT_ID", "OBS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def standin_server(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    made = StandIn(tmp_path_factory.mktemp("modelarts"), s3)
    yield made
    made.close()


@pytest.fixture
def modelarts(standin_server: StandIn, s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """The stand-in without faults or jobs, with its keys in the environment."""
    standin_server.faults.clear()
    standin_server.seen.clear()
    standin_server.refused.clear()
    standin_server.tokens = None
    monkeypatch.setenv("HUAWEICLOUD_SDK_AK", s3.key)
    monkeypatch.setenv("HUAWEICLOUD_SDK_SK", s3.secret)
    monkeypatch.setenv("HUAWEICLOUD_SDK_PROJECT_ID", PROJECT)
    monkeypatch.setenv("OBS_ENDPOINT", s3.endpoint)
    yield standin_server
    for job in list(standin_server.jobs.values()):
        job.close()
    standin_server.jobs.clear()


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if why := missing():
        pytest.skip(why)
    made = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    """A cluster of two nodes that this test's sbatch talks to."""
    for name, value in slurm_cluster.environment.items():
        monkeypatch.setenv(name, value)
    return slurm_cluster
