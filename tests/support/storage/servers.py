"""Real servers on loopback for tests: an S3 server with generated credentials, and sshd hosts."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACELINE = Path(sys.executable).with_name("paceline")
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


@dataclass
class S3Server:
    """SeaweedFS with its own credentials; `stop(hard=True)` is kill -9, `start` afterwards keeps ports and data."""

    directory: Path
    key: str = field(default_factory=lambda: "AK" + secrets.token_hex(9).upper())
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(30), repr=False)
    process: subprocess.Popen[bytes] | None = None
    anonymous: bool = False
    """Accepts unsigned requests too, for a proxy that checks tokens itself."""
    domain: str = ""
    """Buckets are also found as host names below this one."""

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True)
        self.ports = _free_ports(4)
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": self.key, "secretKey": self.secret}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        anybody = {"name": "anonymous", "actions": ["Read", "Write", "List"]}
        identities = [identity, anybody] if self.anonymous else [identity]
        (self.directory / "keys.json").write_text(json.dumps({"identities": identities}))
        (self.directory / "data").mkdir()
        self.endpoint = f"http://127.0.0.1:{self.ports[0]}"

    def start(self) -> None:
        s3, master, volume, filer = self.ports
        weed = Path(sys.executable).with_name("weed")
        command = [
            str(weed),
            "-logtostderr=true",
            "server",
            f"-dir={self.directory / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-master.port={master}",
            f"-volume.port={volume}",
            f"-filer.port={filer}",
            "-filer",
            "-s3",
            f"-s3.port={s3}",
            f"-s3.config={self.directory / 'keys.json'}",
            "-master.telemetry=false",
            "-master.electionTimeout=1s",
            "-master.heartbeatInterval=100ms",
            "-master.volumeSizeLimitMB=128",
            "-volume.max=0",
            "-volume.preStopSeconds=0",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            *([f"-s3.domainName={self.domain}"] if self.domain else []),
        ]
        # By default every bucket reserves seven volumes: after thirty buckets a half-full disk has none left.
        env = {**os.environ, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "2"}
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory, env=env)
        self._wait()

    def stop(self, *, hard: bool = False) -> None:
        if self.process:
            self.process.kill() if hard else self.process.terminate()
            self.process.wait(600)
            self.process = None

    def client(self, **options: Any) -> Any:
        """Huawei's SDK, the other side of every interoperability test."""
        from obs import ObsClient

        return ObsClient(
            access_key_id=self.key,
            secret_access_key=self.secret,
            server=self.endpoint,
            signature="v4",
            region="us-east-1",
            path_style=True,
            **options,
        )

    def bucket(self) -> str:
        name = f"test-{secrets.token_hex(6)}"
        answer = self.client().createBucket(name)
        assert answer.status < 300, answer.errorCode
        return name

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_REGION": "us-east-1",
        }

    def _wait(self) -> None:
        """Ready when it stores an object: the S3 port opens before the volumes are there."""
        until = time.monotonic() + 600
        while time.monotonic() < until:
            assert self.process and self.process.poll() is None, (self.directory / "log").read_text()[-2000:]
            try:
                client = self.client(max_retry_count=0, timeout=60)
                client.createBucket("ready")
                if client.putContent("ready", "ready", content="1").status < 300:
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.1)
        raise AssertionError("the S3 server did not start")


@dataclass
class SshHost:
    """A real sshd with its own address; login as root with a generated key."""

    address: str
    directory: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True)
        self.port = self.port or _free_ports(1)[0]
        for name in ("host", "user"):
            _keygen(self.directory / name)
        self.files = self.directory / "files"
        self.files.mkdir()
        # Every host has its own files, as in a cluster: each sshd has its own mounts.
        self.summary = self.directory.parent / "summary"
        self.summary.mkdir(exist_ok=True)

    def start(self, *, keys: Path) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)
        config = self.directory / "sshd_config"
        config.write_text(
            f"ListenAddress {self.address}\nPort {self.port}\nHostKey {self.directory / 'host'}\n"
            f"AuthorizedKeysFile {keys}\nPermitRootLogin yes\nStrictModes no\nUsePAM no\nPidFile none\n"
            "PasswordAuthentication yes\nKbdInteractiveAuthentication no\nSubsystem sftp internal-sftp\n"
            "MaxStartups 100\nMaxSessions 100\nLogLevel ERROR\n"
        )
        with (self.directory / "log").open("ab") as log:
            own_mounts = f"mount --bind {self.files} {self.summary} && exec {SSHD} -D -e -f {config}"
            self.process = subprocess.Popen(["unshare", "-m", "sh", "-c", own_mounts], stdout=log, stderr=log)
        until = time.monotonic() + 600
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex((self.address, self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError((self.directory / "log").read_text())

    def stop(self) -> None:
        if self.process:
            # Its sessions too: a dead host does not respond.
            subprocess.run(["pkill", "-KILL", "-P", str(self.process.pid)], check=False)
            self.process.kill()
            self.process.wait(600)
            self.process = None

    @property
    def known(self) -> str:
        return self.known_at(self.port)

    def known_at(self, port: int) -> str:
        public = (self.directory / "host.pub").read_text().split()
        return f"[{self.address}]:{port} {public[0]} {public[1]}\n"

    def url(self, path: Path | str) -> str:
        return f"ssh://root@{self.address}:{self.port}{path}"


def make_home(directory: Path, hosts: list[SshHost]) -> Path:
    """A home directory whose ~/.ssh can log in to the hosts and knows their keys."""
    ssh = directory / ".ssh"
    ssh.mkdir(parents=True, exist_ok=True)
    if not (ssh / "id_ed25519").exists():
        _keygen(ssh / "id_ed25519")
    (ssh / "known_hosts").write_text("".join(host.known for host in hosts))
    return directory


def paceline(*words: object, env: dict[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PACELINE), *map(str, words)],
        env={**clean_environment(), **env},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def clean_environment() -> dict[str, str]:
    """Our environment without credentials."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "OBS_", "S3_"))}


def _keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def _free_ports(count: int) -> list[int]:
    """Free now, with port + 10000 free too: SeaweedFS takes those for gRPC.

    All below the range the kernel connects from: a client that finds nobody at a port there may meet itself.
    """
    found: list[int] = []
    while len(found) < count:
        port = 10_000 + secrets.randbelow(12_000)
        if port not in found and all(_is_free(each) for each in (port, port + 10_000)):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
