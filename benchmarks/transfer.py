"""Moving data to and from a bucket: Paceline against boto3, esdk-obs-python, s3fs and rclone, one server, one run.

    python benchmarks/transfer.py [--repeat 2] [--large 1024] [--small 5000]

1 GiB in large files and 5,000 files of 20 KB, up and down, 16 at a time, each client in a process of its own, in turns;
the best of the repeats counts. Paceline verifies every byte it moves; what the others verify is their default.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from measure import Cost, measure

HERE = Path(__file__).parent
WORK = HERE / "work" / "transfer"
sys.path.insert(0, str(HERE.parent / "tests"))
from storage.servers import S3Server  # noqa: E402

PEERS = ["boto3", "esdk-obs-python", "s3fs>=2026"]
CLIENTS = ("paceline", "boto3", "esdk", "s3fs", "rclone")
FILES_AT_A_TIME = 16
OURS = "import sys; from paceline.storage.transfer import transfer; transfer(*sys.argv[1:]).raise_failures()"
"""As a library, as the Python peers are used; the command adds 0.5 s to start."""


@dataclass(frozen=True)
class Case:
    name: str
    source: Path
    files: int
    size: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--large", type=int, default=1024, help="MiB in files of 128 MiB")
    parser.add_argument("--small", type=int, default=5000, help="files of 20 KB")
    options = parser.parse_args()
    os.environ.pop("AWS_CA_BUNDLE", None)  # rclone 1.60 stops at it, and the server is on loopback
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    python = install_peers()
    cases = [write_case("large", options.large // 128, 128 << 20), write_case("small", options.small, 20_000)]
    server = S3Server(WORK / "server")
    server.start()
    try:
        for case in cases:
            report(case, run(case, server, python, options.repeat))
    finally:
        server.stop(hard=True)
        shutil.rmtree(WORK / "server", ignore_errors=True)


def run(case: Case, server: S3Server, python: Path, repeat: int) -> dict[tuple[str, str], Cost]:
    best: dict[tuple[str, str], Cost] = {}
    bucket = server.bucket()
    for turn in range(repeat):
        for client in CLIENTS if turn % 2 == 0 else reversed(CLIENTS):
            if client == "rclone" and not shutil.which("rclone"):
                continue
            prefix, back = f"{client}-{turn}", WORK / "back"
            environment = {
                **server.environment(),
                **rclone_remote(server),
                "PACELINE_CACHE": str(WORK / f"cache-{turn}"),
            }
            for way, words in (("up", (str(case.source), bucket, prefix)), ("down", (bucket, prefix, str(back)))):
                cost = measure(command(client, way, words, python), env=environment, log=WORK / f"{client}-{way}.log")
                if (client, way) not in best or cost.wall < best[client, way].wall:
                    best[client, way] = cost
            same = subprocess.run(["diff", "-rq", case.source, back], check=False).returncode == 0
            assert same, f"{client} brought back something else"
            shutil.rmtree(back)
    return best


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


def report(case: Case, best: dict[tuple[str, str], Cost]) -> None:
    print(f"\n{case.name}: {case.files:,} files, {case.size / 1e6:,.0f} MB")
    print(f"{'client':10} {'way':5} {'wall s':>8} {'CPU s':>8} {'MB/s':>8} {'files/s':>9} {'of the fastest':>15}")
    for way in ("up", "down"):
        fastest = min(cost.wall for (_, each), cost in best.items() if each == way)
        for client in CLIENTS:
            if (client, way) in best:
                cost = best[client, way]
                print(f"{client:10} {way:5} {cost.wall:8.1f} {cost.cpu:8.1f} {case.size / cost.wall / 1e6:8.0f} "
                      f"{case.files / cost.wall:9.0f} {fastest / cost.wall:15.0%}", flush=True)  # fmt: skip


def write_case(name: str, files: int, size: int) -> Case:
    source, chance = WORK / name, random.Random(1)
    for number in range(files):
        path = source / str(number // 500) / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(size))
    return Case(name, source, files, files * size)


def rclone_remote(server: S3Server) -> dict[str, str]:
    prefix = "RCLONE_CONFIG_BENCH_"
    return {f"{prefix}TYPE": "s3", f"{prefix}PROVIDER": "Other", f"{prefix}ENDPOINT": server.endpoint,
            f"{prefix}ENV_AUTH": "true", f"{prefix}REGION": "us-east-1", "HOME": os.environ.get("HOME", "/root")}  # fmt: skip


def install_peers() -> Path:
    place = HERE / "work" / "transfer-peers"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS], check=True)
    return python


if __name__ == "__main__":
    main()
