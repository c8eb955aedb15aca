"""Moving data to and from a bucket: Paceline against boto3, esdk-obs-python, s3fs and rclone, one server, one run.

    python benchmarks/transfer.py [--rounds 3] [--large 1024] [--small 5000]

1 GiB in large files and 5,000 files of 20 KB, up and down, 16 at a time, each client in a process of its own. Clients
take turns, in another order each round, each with a new server and nothing left to write to the disk; the best of the
rounds counts, because whatever else runs can only make a client slower. Paceline verifies every byte it moves and syncs
what it wrote; what the others do is their default. Ends with exit code 1 when Paceline is not within 10 % of the
fastest in all four.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from measure import Cost, measure

HERE = Path(__file__).parent
WORK = HERE / "work" / "transfer"
sys.path.insert(0, str(HERE.parent / "tests"))
from support.storage.servers import S3Server  # noqa: E402

PEERS = ["boto3", "esdk-obs-python", "s3fs>=2026"]
CLIENTS = ("paceline", "boto3", "esdk", "s3fs", "rclone")
FILES_AT_A_TIME = 16
TARGET = 0.9
"""Of the fastest client's speed."""
Costs = dict[tuple[str, str], list[Cost]]
"""(client, way) → one per round."""
OURS = "import sys; from paceline.storage.transfer.transfer import transfer; transfer(*sys.argv[1:]).raise_failures()"
"""As a library, as the Python peers are used; the command adds 0.5 s to start."""


@dataclass(frozen=True)
class Case:
    name: str
    source: Path
    files: int
    size: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", type=int, default=1024, help="MiB in files of 128 MiB")
    parser.add_argument("--small", type=int, default=5000, help="files of 20 KB")
    parser.add_argument("--clients", default=",".join(CLIENTS), help="which of them, with commas")
    options = parser.parse_args()
    os.environ.pop("AWS_CA_BUNDLE", None)  # rclone 1.60 stops at it, and the server is on loopback
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    python = install_peers()
    clients = options.clients.split(",")
    if "rclone" in clients and not shutil.which("rclone"):
        sys.exit("rclone is not installed: apt-get install rclone, or leave it out with --clients")
    cases = [write_case("large", options.large // 128, 128 << 20), write_case("small", options.small, 20_000)]
    missed: list[str] = []
    for case in cases:
        missed += report(case, run(case, python, clients, options.rounds))
    shutil.rmtree(WORK, ignore_errors=True)
    if missed:
        sys.exit(f"\nmissed: not within {1 - TARGET:.0%} of the fastest: {', '.join(missed)}")
    print(f"\nall four within {1 - TARGET:.0%} of the fastest, or ahead")


def run(case: Case, python: Path, clients: list[str], rounds: int) -> Costs:
    costs: Costs = {(client, way): [] for client in clients for way in ("up", "down")}
    for turn in range(rounds):
        for client in clients[turn % len(clients) :] + clients[: turn % len(clients)]:
            with new_server() as server:
                for way, cost in up_and_down(case, server, python, client):
                    costs[client, way].append(cost)
    return costs


@contextmanager
def new_server() -> Iterator[S3Server]:
    """A server that nobody used before, in memory where there is room, so that no disk decides who was faster."""
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else WORK))
    server = S3Server(place / "server")
    try:
        server.start()
        yield server
    finally:
        server.stop(hard=True)
        shutil.rmtree(place)


def up_and_down(case: Case, server: S3Server, python: Path, client: str) -> Iterator[tuple[str, Cost]]:
    bucket, back, cache = server.bucket(), Path(tempfile.mkdtemp(prefix="back-", dir=WORK)), WORK / "cache"
    environment = {**server.environment(), **rclone_remote(server), "PACELINE_CACHE": str(cache)}
    for way, words in (("up", (str(case.source), bucket, "run")), ("down", (bucket, "run", str(back)))):
        os.sync()  # nobody pays for what another left to be written
        log = WORK / f"{client}-{way}.log"
        cost = measure(command(client, way, words, python), env=environment, log=log, memory=False)
        assert cost.exit_code == 0, f"{client} {way} failed: {log.read_text()[-2000:]}"
        yield way, cost
    same = subprocess.run(["diff", "-rq", case.source, back], check=False).returncode == 0
    assert same, f"{client} brought back something else"
    empty(back)
    shutil.rmtree(cache, ignore_errors=True)


def empty(directory: Path) -> None:
    """Files stay until the end: ext4 looks long for an inode after many were removed, and the next client would pay."""
    for path in directory.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)


def command(client: str, way: str, words: tuple[str, str, str], python: Path) -> list[str]:
    if client in ("paceline", "rclone"):
        local, remote = (words[0], f"{words[1]}/{words[2]}") if way == "up" else (words[2], f"{words[0]}/{words[1]}")
        if client == "paceline":
            place = f"s3://{remote}"
            return [sys.executable, "-c", OURS, *((local, place) if way == "up" else (place, local))]
        place = f"bench:{remote}"
        flags = ["--transfers", str(FILES_AT_A_TIME), "--checkers", "16", "--s3-upload-concurrency", "4"]
        return ["rclone", "copy", *((local, place) if way == "up" else (place, local)), *flags]
    return [str(python), str(HERE / "transfer_peers.py"), client, way, *words]


def report(case: Case, costs: Costs) -> list[str]:
    """Print the table; returns the ways in which Paceline missed its target."""
    rounds = len(next(iter(costs.values())))
    busy = f"{os.getloadavg()[2]:.1f} processes wanted the {os.cpu_count()} cores"
    print(f"\n{case.name}: {case.files:,} files, {case.size / 1e6:,.0f} MB, best of {rounds}; {busy}")
    print(
        f"{'client':10} {'way':5} {'wall s':>8} {'median s':>9} {'CPU s':>8} {'MB/s':>8} {'files/s':>9} "
        f"{'of the fastest':>15}"
    )
    best = {each: min(measured, key=lambda cost: cost.wall) for each, measured in costs.items()}
    missed = []
    for way in ("up", "down"):
        fastest = min(cost.wall for (_, each), cost in best.items() if each == way)
        for (client, each), cost in best.items():
            if each == way:
                middle = median(cost.wall for cost in costs[client, way])
                print(
                    f"{client:10} {way:5} {cost.wall:8.1f} {middle:9.1f} {cost.cpu:8.1f} {case.size / cost.wall / 1e6:8.0f} "
                    f"{case.files / cost.wall:9.0f} {fastest / cost.wall:15.0%}",
                    flush=True,
                )
        if fastest / best["paceline", way].wall < TARGET:
            missed.append(f"{case.name} {way}")
    return missed


def write_case(name: str, files: int, size: int) -> Case:
    source, chance = WORK / name, random.Random(1)
    for number in range(files):
        path = source / str(number // 500) / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(size))
    return Case(name, source, files, files * size)


def rclone_remote(server: S3Server) -> dict[str, str]:
    prefix = "RCLONE_CONFIG_BENCH_"
    return {
        f"{prefix}TYPE": "s3",
        f"{prefix}PROVIDER": "Other",
        f"{prefix}ENDPOINT": server.endpoint,
        f"{prefix}ENV_AUTH": "true",
        f"{prefix}REGION": "us-east-1",
        "HOME": os.environ.get("HOME", "/root"),
    }


def install_peers() -> Path:
    place = HERE / "work" / "transfer-peers"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS], check=True)
    return python


if __name__ == "__main__":
    main()
