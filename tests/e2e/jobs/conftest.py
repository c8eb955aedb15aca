"""Places of their own for job tests: state, keys, a bucket, a ModelArts stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.jobs import region as cloud
from support.jobs.region import CloudRegion
from support.jobs.slurm_cluster import SlurmCluster, missing
from support.jobs.standin import PROJECT, StandIn
from support.storage.fixtures import bucket, own_places, proxy
from support.storage.servers import S3Server

__all__ = ["bucket", "own_places", "proxy"]


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("weed") / "server", domain=cloud.OBS)
    server.start()
    yield server
    server.stop(hard=True)


@pytest.fixture(scope="session")
def region_server(
    s3: S3Server, standin_server: StandIn, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CloudRegion]:
    """The region's names resolve in this process from now on."""
    if why := cloud.missing():
        pytest.skip(why)
    made = CloudRegion(tmp_path_factory.mktemp("region"), obs=s3.ports[0], modelarts=standin_server.port)
    cloud.enter(made)
    yield made
    cloud.leave()
    made.close()


@pytest.fixture
def region(region_server: CloudRegion, bucket: str, monkeypatch: pytest.MonkeyPatch) -> CloudRegion:
    """What a user has: a region in the description, credentials, and the private cloud's CA."""
    region_server.silent.clear()
    region_server.add_bucket(bucket)
    monkeypatch.setenv("SSL_CERT_FILE", str(region_server.ca_file))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    return region_server


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
def modelarts(
    standin_server: StandIn, s3: S3Server, region: CloudRegion, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StandIn]:
    """The stand-in without faults or jobs, with its keys in the environment; it answers on the names of its region."""
    standin_server.faults.clear()
    standin_server.seen.clear()
    standin_server.refused.clear()
    standin_server.tokens = None
    monkeypatch.setenv("HUAWEICLOUD_SDK_AK", s3.key)
    monkeypatch.setenv("HUAWEICLOUD_SDK_SK", s3.secret)
    monkeypatch.setenv("HUAWEICLOUD_SDK_PROJECT_ID", PROJECT)
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
