"""Every benchmark of the repository, one run each, into benchmarks/report.md.

    python benchmarks/report.py [NAME …]      only these; the others keep the output of their last run

Printed tables are kept as they are, with the machine, the time and the commit they were measured at.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
REPORT = HERE / "report.md"


@dataclass(frozen=True)
class Benchmark:
    name: str
    question: str
    arguments: tuple[str, ...] = ()


BENCHMARKS = (
    Benchmark(
        "accuracy", "200 simulated clusters: is the true cause the first finding, does health alarm, is the gain right?"
    ),
    Benchmark("diagnose", "The full diagnosis, against msprof-analyze cluster + advisor"),
    Benchmark("ingest", "Reading a cluster profile, against msprof-analyze cluster"),
    Benchmark("kineto", "torch traces, against HolisticTraceAnalysis and traceinsight"),
    Benchmark(
        "scale", "From 16 to 10,240 ranks, and databases that blow up the peer", ("--peer-databases", "16", "64")
    ),
    Benchmark("web", "Pages and answers, against MindInsight"),
    Benchmark("transfer", "Moving data, against boto3, esdk-obs-python, s3fs and rclone"),
    Benchmark("checkpoint", "Resharding checkpoints, against MindSpore's transform_checkpoints and cp"),
    Benchmark("overhead", "What the always-on recorder costs a training step"),
    Benchmark("monitors", "What the monitors cost a training step"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(each.name for each in BENCHMARKS))
    chosen = parser.parse_args().names or [each.name for each in BENCHMARKS]
    unknown = set(chosen) - {each.name for each in BENCHMARKS}
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    sections = kept()
    for benchmark in BENCHMARKS:
        if benchmark.name in chosen:
            sections[benchmark.question] = run(benchmark)
            REPORT.write_text(document(sections), encoding="utf-8")


def kept() -> dict[str, str]:
    """What the report says now: question → all below it."""
    _, *sections = f"\n{REPORT.read_text(encoding='utf-8')}".split("\n## ") if REPORT.exists() else [""]
    return {question: body.strip() for question, _, body in (each.partition("\n") for each in sections)}


def run(benchmark: Benchmark) -> str:
    command = [sys.executable, "-u", str(HERE / f"{benchmark.name}.py"), *benchmark.arguments]
    print("$", " ".join(["python", f"benchmarks/{benchmark.name}.py", *benchmark.arguments]), flush=True)
    began, before = time.time(), os.getloadavg()[0]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    print(ended.stdout, flush=True)
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(began))
    head = (
        f"{when} UTC · commit {commit()} · load before {before:.1f} · took {time.time() - began:,.0f} s"
        f" · exit {ended.returncode}"
    )
    why = f"\n\n{ended.stderr.strip().splitlines()[-1]}" if ended.returncode and ended.stderr.strip() else ""
    return f"`benchmarks/{benchmark.name}.py` · {head}\n\n```\n{ended.stdout.rstrip()}{why}\n```"


def document(sections: dict[str, str]) -> str:
    pages = ["# What was measured", "", *machine(), ""]
    pages += ["Exit 1 means that a wanted number was missed: the line `missed:` says which.", ""]
    for benchmark in BENCHMARKS:
        body = sections.get(benchmark.question, f"`benchmarks/{benchmark.name}.py` · not run")
        pages += [f"## {benchmark.question}", "", body, ""]
    return "\n".join(pages)


def machine() -> list[str]:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor() or "unknown processor",
    )
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    return [
        f"{os.cpu_count()} cores of {cpu}, {memory:.0f} GiB, {platform.system()} {platform.release()}, Python"
        f" {platform.python_version()}. Such machines are shared: CPU seconds and ratios within one run are what counts.",
        "",
        "Written by `make bench-report`.",
    ]


def commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
