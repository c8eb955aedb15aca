"""A real Dask scheduler and a real Ray head on loopback, with two workers each."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from distributed import Client

import paceline

BIN = Path(sys.executable).parent
TESTS = Path(__file__).parents[2]


@contextmanager
def dask_cluster(directory: Path, env: Mapping[str, str]) -> Iterator[str]:
    """Address for --engine; workers that die are started again by their nannies, as in production."""
    port = free_port()
    where = ["--host", "127.0.0.1", "--no-dashboard"]
    settings = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
    with _running(directory, {**env, **settings}) as start:
        scheduler = start(str(BIN / "dask"), "scheduler", "--port", str(port), *where)
        scheduler.await_port(port)
        for _ in range(2):
            start(
                str(BIN / "dask"),
                "worker",
                f"tcp://127.0.0.1:{port}",
                "--nthreads",
                "1",
                *where,
                "--local-directory",
                str(directory),
            )
        with Client(f"tcp://127.0.0.1:{port}", timeout="600s", set_as_default=False) as client:
            client.wait_for_workers(2, timeout=600)
        yield f"dask://127.0.0.1:{port}"


@dataclass(frozen=True)
class RayCluster:
    address: str
    nodes: tuple[int, ...]
    """The workers' sessions."""

    def kill_node(self) -> None:
        """Kill one node of the cluster with everything that runs on it."""
        _end_session(self.nodes[0])


@contextmanager
def ray_cluster(directory: Path, env: Mapping[str, str]) -> Iterator[RayCluster]:
    port, client = free_port(), free_port()
    settings = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
        "GRPC_ENABLE_FORK_SUPPORT": "0",
        # On a busy machine a client's server needs longer than the default of half a minute to start.
        "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "180",
    }
    common = ["--block", "--disable-usage-stats", "--num-cpus", "1", "--object-store-memory", "80000000"]
    # A directory of its own, so that no other cluster of this machine is used; short, because Ray's sockets are below it.
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as session,
        _running(directory, {**env, **settings}) as start,
    ):
        head = start(
            str(BIN / "ray"),
            "start",
            "--head",
            "--node-ip-address",
            "127.0.0.1",
            "--port",
            str(port),
            "--ray-client-server-port",
            str(client),
            "--include-dashboard",
            "false",
            "--temp-dir",
            session,
            *common,
        )
        head.await_port(client)
        nodes = []
        for _ in range(2):
            worker = start(
                str(BIN / "ray"), "start", "--address", f"127.0.0.1:{port}", "--node-ip-address", "127.0.0.1", *common
            )
            worker.await_line("Ray runtime started")
            nodes.append(worker.process.pid)
        yield RayCluster(f"ray://127.0.0.1:{client}", tuple(nodes))


@dataclass(frozen=True)
class _Program:
    """A started process and its log."""

    process: subprocess.Popen[bytes]
    log: Path

    def await_port(self, port: int) -> None:
        self._await(lambda: _listens(port), f"nothing listens on {port}")

    def await_line(self, text: str) -> None:
        self._await(lambda: text in self.log.read_text(errors="replace"), f"never printed {text!r}")

    def _await(self, is_ready: Callable[[], bool], otherwise: str, seconds: float = 600) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            if is_ready():
                return
            time.sleep(0.1)
        raise TimeoutError(f"{self.process.args!r}: {otherwise}\n{self.log.read_text(errors='replace')[-2000:]}")


@contextmanager
def _running(directory: Path, env: Mapping[str, str]) -> Iterator[Callable[..., _Program]]:
    """Gives a function that starts programs in sessions of their own; all are ended with everything they started."""
    processes: list[subprocess.Popen[bytes]] = []
    # Workers import the functions of the tests, and the same Paceline.
    paths = [TESTS, Path(paceline.__file__).parents[1]]
    whole = {**os.environ, **env, "PYTHONPATH": os.pathsep.join(map(str, paths))}

    def start(*command: str) -> _Program:
        path = directory / f"{len(processes)}.log"
        with path.open("wb") as log:
            processes.append(
                subprocess.Popen(command, env=whole, cwd=directory, stdout=log, stderr=log, start_new_session=True)
            )
        return _Program(processes[-1], path)

    try:
        yield start
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                pass
            _end_session(process.pid)
            process.wait()


def _end_session(leader: int) -> None:
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        try:
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it ended by itself


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
