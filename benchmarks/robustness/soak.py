"""A server under mixed requests, in fast-forward: memory and descriptors must stay flat.

    python -m robustness.soak [--requests 50000] [--clients 8] [--seed 1]               (in benchmarks/; `make soak`)

Clients ask for pages, tables, charts, comparisons and nonsense, and hang up in the middle of one request in fifty; every few
hundred requests a run is added or removed. Exits with 1 if memory or descriptors grow after the caches are warm, or if an
answer is a server error.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import httpx

from paceline.simulate import ClusterSpec, simulate

SAMPLES = 40
WARM = 0.4
"""Share of the requests after which caches are full."""
GROWTH, SLACK_BYTES = 1.15, 32 << 20
"""What the last fifth may take beyond the fifth after warming up."""
GROWTH_DESCRIPTORS = 16
ABORTED, CHANGE_EVERY = 0.02, 250
PLACES = (
    "runs?limit=50", "runs/{run}", "runs/{run}/overview", "runs/{run}/fixes", "runs/{run}/charts/breakdown",
    "runs/{run}/charts/self-time", "runs/{run}/charts/links", "runs/{run}/charts/communication", "runs/{run}/charts/memory",
    "runs/{run}/tables/links?limit={n}", "runs/{run}/tables/operators?limit={n}&rank=1", "runs/{run}/tables/nothing",
    "runs/{run}/charts/resources", "runs/{run}/cards/{n}", "runs/no-such-run", "compare?before={run}&after={other}",
    "tables", "openapi.json",
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    requests: int
    bytes: int
    descriptors: int
    threads: int


@dataclass
class Soak:
    """One server, its clients, and what they saw."""

    base: Path
    port: int
    process: subprocess.Popen[bytes]
    codes: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)

    def one_request(self, client: httpx.Client, chance: random.Random, runs: list[str]) -> None:
        place = chance.choice(PLACES).format(
            run=chance.choice(runs), other=chance.choice(runs), n=chance.randrange(1, 60)
        )
        if chance.random() < ABORTED:
            self.hang_up(place)
            return
        try:
            self.codes[str(client.get(f"/api/v1/{place}").status_code)] += 1
        except httpx.HTTPError as error:
            self.codes[type(error).__name__] += 1

    def hang_up(self, place: str) -> None:
        """Send a request and close before the answer, without a farewell."""
        with socket.create_connection(("127.0.0.1", self.port), 600) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            connection.sendall(f"GET /api/v1/{place} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self.codes["aborted"] += 1

    def sample(self, requests: int) -> None:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        resident, threads = (int(re.search(rf"{name}:\s+(\d+)", status)[1]) for name in ("VmRSS", "Threads"))  # type: ignore[index]
        descriptors = sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())
        self.samples.append(Sample(requests, resident << 10, descriptors, threads))


def soak(requests: int, *, clients: int, seed: int, progress: bool = False) -> Soak:
    """Start a server on simulated runs and ask it so many times."""
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        base = Path(scratch) / "runs"
        models = Path(scratch) / "models"
        for number in range(3):
            spec = ClusterSpec(hosts=2, devices=4, dp=4, tp=2, pp=1, steps=3, layers=2, seed=number)
            simulate(models / str(number), spec, ["slow-rank:1:1.5"], "ascend-text")
            shutil.copytree(models / str(number), base / f"run-{number}")
        process, port = _serve(base, Path(scratch) / "cache")
        try:
            found = Soak(base, port, process)
            _ask(found, models, requests, clients, seed, progress)
            return found
        finally:
            process.terminate()
            process.wait(600)


def _serve(base: Path, cache: Path) -> tuple[subprocess.Popen[bytes], int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "paceline", "serve", str(base), "--port", str(port)]
    environment = {**os.environ, "PACELINE_CACHE": str(cache)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return process, port
        time.sleep(0.1)
    process.kill()
    raise TimeoutError("the server does not listen")


def _ask(found: Soak, models: Path, requests: int, clients: int, seed: int, progress: bool) -> None:
    runs = _open_runs(found)
    asked, lock = iter(range(requests)), threading.Lock()

    def work(number: int) -> None:
        chance = random.Random(seed * 1000 + number)
        with httpx.Client(base_url=f"http://127.0.0.1:{found.port}", timeout=600) as client:
            while True:
                with lock:
                    place = next(asked, None)
                    if place is None:
                        return
                    if place % max(1, requests // SAMPLES) == 0:
                        found.sample(place)
                        if progress:
                            print(f"{found.samples[-1]}", flush=True)
                    if place % CHANGE_EVERY == CHANGE_EVERY - 1:
                        _change_runs(found.base, models, chance)
                found.one_request(client, chance, runs)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(1)  # the last connections close
    found.sample(requests)


def _open_runs(found: Soak) -> list[str]:
    """Ids of the runs, each read and examined."""
    with httpx.Client(base_url=f"http://127.0.0.1:{found.port}/api/v1", timeout=600) as client:
        while (listed := client.get("/runs").json())["scanning"]:
            time.sleep(0.1)
        runs = [run["id"] for run in listed["runs"]]
        for run in runs:
            client.post(f"/runs/{run}/open")
            while client.get(f"/runs/{run}").json()["state"]["phase"] not in ("ready", "failed"):
                time.sleep(0.1)
    return runs


def _change_runs(base: Path, models: Path, chance: random.Random) -> None:
    """A run appears or disappears."""
    target = base / f"passing-{chance.randrange(4)}"
    if target.exists():
        shutil.rmtree(target)
    else:
        shutil.copytree(models / str(chance.randrange(3)), target)


def growth(samples: list[Sample]) -> list[str]:
    """What grew after the caches were warm, in words; nothing is good.

    >>> growth([Sample(n, 100 << 20, 40, 9) for n in range(10)])
    []
    >>> growth([Sample(n, (100 + 30 * n) << 20, 40 + 5 * n, 9) for n in range(10)])
    ['memory grew from 235 to 355 MiB', 'descriptors grew from 62 to 82']
    """
    warm = samples[int(WARM * len(samples)) :]
    fifth = max(1, len(warm) // 3)
    before, after = warm[:fifth], warm[-fifth:]
    memory = [median(each.bytes for each in part) for part in (before, after)]
    descriptors = [median(each.descriptors for each in part) for part in (before, after)]
    found = []
    if memory[1] > GROWTH * memory[0] + SLACK_BYTES:
        found.append(f"memory grew from {memory[0] / 2**20:.0f} to {memory[1] / 2**20:.0f} MiB")
    if descriptors[1] > descriptors[0] + GROWTH_DESCRIPTORS:
        found.append(f"descriptors grew from {descriptors[0]:.0f} to {descriptors[1]:.0f}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = soak(options.requests, clients=options.clients, seed=options.seed, progress=True)
    print(" · ".join(f"{count} × {code}" for code, count in sorted(found.codes.items())))
    problems = growth(found.samples) + [f"{count} × {code}" for code, count in found.codes.items() if code == "500"]
    print("flat" if not problems else "; ".join(problems))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
