"""A real Dask scheduler and a real Ray head on loopback, with two workers each."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from distributed import Client

BIN = Path(sys.executable).parent
TESTS = Path(__file__).parents[1]


@contextmanager
def dask_cluster(directory: Path, env: Mapping[str, str]) -> Iterator[str]:
    """Address for --engine; workers that die are started again by their nannies, as in production."""
    port = free_port()
    where = ["--host", "127.0.0.1", "--no-dashboard"]
    settings = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
    with _running(directory, {**env, **settings}) as start:
        start(str(BIN / "dask"), "scheduler", "--port", str(port), *where)
        await_port(port)
        for _ in range(2):
            start(str(BIN / "dask"), "worker", f"tcp://127.0.0.1:{port}", "--nthreads", "1", *where,
                  "--local-directory", str(directory))  # fmt: skip
        with Client(f"tcp://127.0.0.1:{port}", timeout="60s", set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
        yield f"dask://127.0.0.1:{port}"


@contextmanager
def ray_cluster(directory: Path, env: Mapping[str, str]) -> Iterator[str]:
    port, client = free_port(), free_port()
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_DOCKER_CPU_WARNING": "1", "GRPC_ENABLE_FORK_SUPPORT": "0"}
    common = ["--block", "--disable-usage-stats", "--num-cpus", "1", "--object-store-memory", "80000000"]
    with _running(directory, {**env, **settings}) as start:
        # Sockets of Ray have long names, and pytest's directories too: together too long.
        start(str(BIN / "ray"), "start", "--head", "--node-ip-address", "127.0.0.1", "--port", str(port),
              "--ray-client-server-port", str(client), "--include-dashboard", "false", *common)  # fmt: skip
        await_port(client)
        for _ in range(2):
            start(
                str(BIN / "ray"), "start", "--address", f"127.0.0.1:{port}", "--node-ip-address", "127.0.0.1", *common
            )
        yield f"ray://127.0.0.1:{client}"


@contextmanager
def _running(directory: Path, env: Mapping[str, str]):  # type: ignore[no-untyped-def]
    """Gives a function that starts programs in sessions of their own; all of them end with everything they started."""
    processes: list[subprocess.Popen[bytes]] = []
    whole = {**os.environ, **env, "PYTHONPATH": f"{TESTS / 'engines'}:{TESTS}"}

    def start(*command: str) -> None:
        with (directory / f"{len(processes)}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(command, env=whole, cwd=directory, stdout=log, stderr=log, start_new_session=True)
            )

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


def await_port(port: int, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"nobody listens on {port}")
