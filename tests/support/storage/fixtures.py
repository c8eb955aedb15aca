"""Servers for the storage tests: one S3 server per test process, a proxy in front of it, hosts with sshd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.storage import secret
from support.storage.faults import Proxy
from support.storage.servers import S3Server, SshHost, make_home


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("weed") / "server")
    server.start()
    yield server
    server.stop(hard=True)


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[Proxy]:
    made = Proxy(s3.endpoint)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests see neither the user's credentials, home and cache, nor secrets that another test registered for redaction."""
    monkeypatch.setattr(secret, "_KNOWN", set())
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "OBS_ACCESS_KEY_ID",
        "S3_ACCESS_KEY_ID",
        "HUAWEICLOUD_SDK_AK",
        "PACELINE_ACCESS",
        "SSL_CERT_FILE",
        "SSH_AUTH_SOCK",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.fixture
def bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket, with its credentials in the environment."""
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    return s3.bucket()


@pytest.fixture
def faulty(bucket: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket, accessed through the proxy."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
    return bucket


@pytest.fixture(scope="session")
def ssh_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SshHost]]:
    """Three hosts, each with its own address."""
    base = tmp_path_factory.mktemp("ssh")
    hosts = [SshHost(f"127.0.0.{number}", base / f"host{number}") for number in (2, 3, 4)]
    make_home(base / "home", hosts)
    for host in hosts:
        host.start(keys=base / "home" / ".ssh" / "id_ed25519.pub")
    yield hosts
    for host in hosts:
        host.stop()


@pytest.fixture
def hosts(ssh_hosts: list[SshHost], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[SshHost]:
    """The hosts, all running, with a home directory that can log in to them."""
    home = ssh_hosts[0].directory.parent / "home"
    for host in ssh_hosts:
        if host.process is None:
            host.start(keys=home / ".ssh" / "id_ed25519.pub")
    make_home(home, ssh_hosts)
    monkeypatch.setenv("HOME", str(home))
    return ssh_hosts
