"""Simulated clusters of 16, 64 and 1,024 ranks below one directory, and real servers in front of them."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from paceline import simulate
from support.reader_helpers import FIXTURES
from support.web.browsing import CHROMIUM, FLAGS
from support.web.servers import Serve, Server

SMALL = simulate.ClusterSpec(hosts=2, devices=8, dp=4, tp=2, pp=2, steps=4, layers=4, micro_batches=4, seed=3)
MIDDLE = simulate.ClusterSpec(
    hosts=8, devices=8, dp=16, tp=2, pp=2, steps=3, layers=4, micro_batches=4, seed=4, detail_ranks=4
)
LARGE = simulate.ClusterSpec(
    hosts=128, devices=8, dp=32, tp=8, pp=4, steps=2, layers=4, micro_batches=2, seed=5, detail_ranks=2
)
FAULTS = ["slow-rank:5:1.5", "slow-link:3-5:2"]
REAL = (
    "mindinsight-tests/tests/utils/resource/cluster_propose",
    "derived_r1.3_layout/run",
    "kineto/hta-2-ranks",
    "ascend-pytorch/text-level1",
    "mindinsight-tests/tests/utils/resource/run_2",
    "osdi25-straggler",
)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory all workers of a test run share."""
    root = tmp_path_factory.getbasetemp()
    return root.parent if os.environ.get("PYTEST_XDIST_WORKER") else root


@pytest.fixture(scope="session")
def base(shared: Path) -> Path:
    """Runs of three sizes and some real ones, made once by the first worker."""
    target = shared / "web-runs"
    with (shared / "web-runs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            making = shared / "web-runs.new"
            shutil.rmtree(making, ignore_errors=True)
            simulate.simulate(making / "llama-16", SMALL, FAULTS, "ascend-text")
            simulate.simulate(making / "llama-16-fixed", SMALL, FAULTS[1:], "ascend-text")
            simulate.simulate(making / "team" / "mixtral-64", MIDDLE, ["slow-host:2"], "ascend-text")
            simulate.simulate(making / "large-1024", LARGE, ["slow-rank:517:1.5"], "ascend-text")
            for name in REAL:
                if (FIXTURES / name).is_dir():
                    shutil.copytree(FIXTURES / name, making / "real" / name)
            making.rename(target)
    return target


@pytest.fixture(scope="session")
def serve(shared: Path) -> Iterator[Serve]:
    """Starts servers, of these sources or of `source`; all of them end with the tests."""
    started: list[Server] = []

    def start(base: Path, *options: str, token: str | None = None, source: Path | None = None) -> Server:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        host = options[options.index("--host") + 1] if "--host" in options else "127.0.0.1"
        environment = {**os.environ, "PACELINE_CACHE": str(shared / "web-cache")}
        environment.pop("PACELINE_TOKEN", None)
        if source is not None:
            environment["PYTHONPATH"] = str(source)
        if token:
            environment["PACELINE_TOKEN"] = token
        log = shared / f"serve-{port}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "paceline.cli.main", "serve", str(base), "--port", str(port), *options],
                env=environment,
                stderr=out,
            )
        server = Server(f"http://127.0.0.1:{port}", process, token, base)
        started.append(server)
        _wait_for(port, host)
        _, _, given = log.read_text().partition("?token=")
        server.token = given.split()[0] if given else token
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def server(serve: Serve, base: Path) -> Server:
    return serve(base)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=600_000)
        yield chromium
        chromium.close()


def _wait_for(port: int, host: str) -> None:
    for _ in range(3000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1" if host == "0.0.0.0" else host, port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the server does not listen")
