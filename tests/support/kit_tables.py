"""Cases of the independent kit in ../shared/kit, and what a perfect reader reads of them (its `--tables`).

Each check compares what a layout records; what it does not record is listed with the reason.

groups        ranks and kinds of all groups
ranks         device where it is recorded, stages of pipelines, one host per host
steps         duration and input wait; computing, communication, overlapped and exposed where kernels were recorded
collectives   joined as they ran; duration, bytes, start on the rank's clock, waiting before the first transfer
transfers     bandwidth of every link within 3 %
memory        peak and capacity
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paceline.run.run import Run

KIT = Path(os.environ.get("PACELINE_KIT", Path(__file__).parents[3] / "shared" / "kit"))

needs_kit = pytest.mark.skipif(
    not KIT.is_dir(), reason=f"the independent kit was not found at {KIT} (set PACELINE_KIT)"
)

OPS = {"allReduce": "all_reduce", "allGather": "all_gather", "reduceScatter": "reduce_scatter"}
FEW_BYTES = 1e6
"""Smaller transfers show latency."""
TINY = 64 << 10
"""The kit's smaller collectives run as a tree: one message of all bytes."""
STEP_SHARE, LINK_SHARE, VALUE_SHARE = 0.001, 0.03, 0.01
CLOSE_US = 2.0
IDLE_US = 12.0
"""The kit's Ascend writer calls up to this much of the waiting idle."""
MINDSPORE_MB = 1_024_000 / (1 << 20)
"""MindSpore writes KB / 1000 as MB (facts/mindspore.md); the kit writes MiB."""
LEGACY_MEMORY = 0.5
"""The cards of the kit's MindInsight trees have half of the memory."""
LEGACY = ("mindinsight", "msadvisor")
GIB = 1 << 30


@dataclass(frozen=True)
class Case:
    layout: str
    variant: Mapping[str, Any]
    tables: dict[str, Any]
    damaged: frozenset[int]
    """Ranks whose files were removed, cut or shortened on purpose."""

    def rows(self, table: str) -> list[dict[str, Any]]:
        return [row for row in self.tables[table] if row.get("rank") not in self.damaged]

    @property
    def is_mindspore(self) -> bool:
        return self.layout == "ascend" and self.variant["framework"] == "ms"

    @property
    def is_gloo(self) -> bool:
        return self.variant.get("backend") == "gloo"


def build_cases(target: Path, names: Sequence[str]) -> None:
    _run_kit("cases.py", target, "--only", *names)


def generate_cases(target: Path, *, count: int, seed: int) -> None:
    _run_kit("generate.py", target, "--count", str(count), "--seed", str(seed))


def _run_kit(script: str, target: Path, *arguments: str) -> None:
    command = [sys.executable, str(KIT / script), str(target), "--tables", *arguments]
    subprocess.run(command, check=True, capture_output=True, cwd=target)


def load_case(target: Path, name: str) -> Case:
    truth = json.loads((target / "truth.json").read_text())
    truth = truth.get("cases", truth)[name]
    tables = json.loads(gzip.decompress((target / "tables" / f"{name}.json.gz").read_bytes()))
    damaged = {
        fault["params"]["rank"]
        for fault in truth["faults"]
        if fault["fault"] in ("missing_rank", "truncated_file", "ragged_steps")
    }
    return Case(truth["layout"], truth["variant"], tables, frozenset(damaged))


def differences(run: Run, case: Case) -> list[str]:
    """Everything that was read otherwise than it was simulated, as sentences."""
    found: list[str] = []
    checks: tuple[Callable[[Run, Case], list[str]], ...] = (_groups, _ranks, _steps, _collectives, _links, _memory)
    for check in checks:
        found += check(run, case)
    return found


# -- groups and ranks -----------------------------------------------------------------------------------------------


def _groups(run: Run, case: Case) -> list[str]:
    # gloo records no group: only that of all ranks can be told.
    rows = run.sql('SELECT list(rank ORDER BY index), any_value(kind) FROM groups GROUP BY "group"').fetchall()
    read = {tuple(ranks): kind for ranks, kind in rows}
    ran = {tuple(group["ranks"]): group["kind"] for group in case.tables["groups"]}
    return [
        f"group {ranks[:8]}: {read.get(ranks)} for {ran.get(ranks)}"
        for ranks in sorted(read.keys() | ran.keys())
        if read.get(ranks) != ran.get(ranks)
    ]


def _ranks(run: Run, case: Case) -> list[str]:
    rows = run.sql("SELECT rank, host, device, stage FROM ranks").fetchall()
    read = {rank: values for rank, *values in rows}
    found, hosts = [], defaultdict(set)
    stages = {row["stage"] for row in case.tables["ranks"]}
    for row in case.rows("ranks"):
        host, device, stage = read[row["rank"]]
        if host is not None:
            hosts[host].add(row["host"])
        if device not in (None, row["device"]) or (len(stages) > 1 and stage != row["stage"]):
            found.append(f"rank {row['rank']}: device {device}, stage {stage} for {row['device']}, {row['stage']}")
    found += _coordinates(run, case)
    return found + [f"host {host} is hosts {names}" for host, names in hosts.items() if len(names) > 1]


def _coordinates(run: Run, case: Case) -> list[str]:
    """A rank's place in its groups of each kind."""
    read = {rank: (dp, tp) for rank, dp, tp in run.sql("SELECT rank, dp, tp FROM ranks").fetchall()}
    found = []
    for axis, kind in enumerate(("dp", "tp")):
        groups = [group["ranks"] for group in case.tables["groups"] if group["kind"] == kind]
        ran = {rank: index for ranks in groups for index, rank in enumerate(ranks)}
        found += [
            f"rank {rank}: {kind} coordinate {read[rank][axis]} for {ran.get(rank)}"
            for rank in sorted(read)
            if read[rank][axis] != ran.get(rank)
        ]
    return found


# -- steps ----------------------------------------------------------------------------------------------------------

_SPLIT = ("computing", "communication", "overlapped", "exposed")


def _steps(run: Run, case: Case) -> list[str]:
    """The first step is a warm-up. MindInsight's trees hold no kernels, and its "computation" is the rest of the step."""
    columns = ("duration", "data_wait", "preparing", *_SPLIT)
    rows = run.sql(f"SELECT rank, step, {', '.join(columns)} FROM steps").fetchall()
    read = {(rank, step): dict(zip(columns, values, strict=True)) for rank, step, *values in rows}
    split = () if case.layout == "mindinsight" else _SPLIT
    found = []
    for row in case.rows("steps"):
        if row["warmup"]:
            continue
        values = read.get((row["rank"], row["step"]))
        expected = {name: row[name] for name in ("duration", *split)}
        if values is None:
            found.append(f"rank {row['rank']} has no step {row['step']}")
            continue
        # The Ascend files only say when the device's work began: launching the first kernel belongs to that.
        if values["data_wait"] is not None:
            expected["data_wait"] = row["data_wait"]
        elif not row["data_wait"] <= (values["preparing"] or -1) / 1e3 + STEP_SHARE * row["duration"]:
            found.append(f"rank {row['rank']} step {row['step']}: prepares for {values['preparing']} ns")
        found += [
            f"rank {row['rank']} step {row['step']}: {name} {values[name]} ns for {wanted} us"
            for name, wanted in expected.items()
            if values[name] is None or abs(values[name] / 1e3 - wanted) > STEP_SHARE * row["duration"]
        ]
    return found


# -- collectives ----------------------------------------------------------------------------------------------------


def _collectives(run: Run, case: Case) -> list[str]:
    read, ran = defaultdict(list), defaultdict(list)
    for rank, step, op, *values in run.sql(
        'SELECT rank, step, op, "group", sequence, start, duration, bytes, sync FROM collectives ORDER BY rank, step, op, start'
    ).fetchall():
        read[rank, step, op].append(values)
    recorded = {(rank, step) for rank, step, _ in read}
    for row in sorted(case.rows("collectives"), key=lambda row: float(row["start"])):
        if (row["rank"], row["step"]) in recorded:
            ran[row["rank"], row["step"], OPS.get(row["op"], row["op"])].append(row)
    found, pairs, starts = [], set(), defaultdict(list)
    hosts = {row["rank"]: row["host"] for row in case.tables["ranks"]}
    groups = {group["group"]: tuple(group["ranks"]) for group in case.tables["groups"]}
    for place, rows in ran.items():
        here = read[place]
        if len(here) != len(rows):
            found.append(f"rank, step, op {place}: {len(here)} executions for {len(rows)}")
            continue
        for mine, true in zip(here, rows, strict=True):
            group, sequence, start, duration, size, sync = mine
            if true["op"] in OPS:
                pairs.add(((place[1:], group, sequence), (place[1:], true["group"], true["sequence"])))
            starts[place[0]].append(start / 1e3 - true["start"])
            wrong = _values(case, true, groups[true["group"]], hosts, (duration, size, sync))
            found += [f"rank, step, op {place}: {what}" for what in wrong]
    once = [Counter(side) for side in zip(*pairs, strict=True)]
    torn = sum(count - 1 for side in once for count in side.values())
    found += [f"{torn} collectives are not joined as they ran"] if torn else []
    return found + [
        f"rank {rank}: starts differ by {max(shifts) - min(shifts):.1f} us"
        for rank, shifts in starts.items()
        if max(shifts) - min(shifts) > CLOSE_US
    ]


def _values(
    case: Case, true: dict[str, Any], ranks: tuple[int, ...], hosts: Mapping[int, int], values: tuple[Any, ...]
) -> list[str]:
    duration, size, sync = values
    wrong = []
    if abs(duration / 1e3 - true["duration"]) > VALUE_SHARE * true["duration"] + CLOSE_US:
        wrong.append(f"takes {duration} ns for {true['duration']} us")
    moved = _moved(case, true, ranks, hosts)
    if size is not None and (moved is None or abs(size - moved) > VALUE_SHARE * moved + 16):
        wrong.append(f"moves {size} bytes for {moved}")
    # A puller's own tasks (msadvisor) do not show when its first chunk left; MindInsight's trees have no such column.
    if case.layout == "ascend" and not (case.variant.get("idle_only") and len(ranks) == 2):
        least = min(true["sync"], true["duration"]) - IDLE_US - CLOSE_US
        if not least <= sync / 1e3 <= true["sync"] + CLOSE_US:
            wrong.append(f"waits {sync} ns for {true['sync']} us")
    return wrong


def _moved(case: Case, true: dict[str, Any], ranks: tuple[int, ...], hosts: Mapping[int, int]) -> float | None:
    """Bytes that the files of this rank show: the payload (torch), what it sent (Ascend), or, in legacy trees, what it
    pulled inside its host and wrote to another one; None where it recorded neither."""
    if case.layout == "kineto":
        return float(true["bytes"])
    if true["op"] not in OPS:
        return 0.0 if case.layout == "ascend" and true["op"] == "receive" else float(true["bytes"])
    n, me = len(ranks), ranks.index(true["rank"])
    rounds = 1 if true["bytes"] < TINY else 2 * (n - 1) if true["op"] == "allReduce" else n - 1
    sent = true["bytes"] * (1.0 if true["bytes"] < TINY else rounds / n)
    if case.layout == "ascend":
        return sent
    here, before, behind = (hosts[ranks[at % n]] for at in (me, me - 1, me + 1))
    times = (before == here) + (behind != here)
    return sent * times if times else None


# -- links and memory -----------------------------------------------------------------------------------------------


def _links(run: Run, case: Case) -> list[str]:
    """Links of which a recorded rank was the one that writes them down; torch records none."""
    read = {
        (step, src, dst): size / time
        for step, src, dst, size, time in run.sql(
            "SELECT step, src, dst, sum(bytes), sum(duration) FROM transfers WHERE scope = 'global' AND src <> dst GROUP BY ALL"
        ).fetchall()
        if time
    }
    local = run.sql("SELECT count(*) FROM transfers WHERE scope <> 'global'").fetchall()[0][0]
    # A file that was cut leaves operators whose group nothing tells: their links are marked, not drawn on a wrong card.
    found = [f"{local} transfers have no global ends"] if local and not case.damaged else []
    if case.layout == "kineto":
        return found
    steps = _complete_steps(run)
    return found + [
        f"link {row['src']}-{row['dst']} in step {row['step']}: {read.get((row['step'], row['src'], row['dst']))} GB/s "
        f"for {row['bytes'] / row['time'] / 1e3}"
        for row in case.tables["links"]
        if row["step"] in steps
        and row["bytes"] > FEW_BYTES
        and case.damaged.isdisjoint((row["src"], row["dst"]))
        and not abs(read.get((row["step"], row["src"], row["dst"]), 0.0) / (row["bytes"] / row["time"] / 1e3) - 1)
        <= LINK_SHARE
    ]


def _complete_steps(run: Run) -> set[int]:
    """Steps of which transfers were recorded, without those that a parser's limit cut (and the reader names)."""
    steps = {step for (step,) in run.sql("SELECT DISTINCT step FROM transfers").fetchall()}
    cut = {
        int(word)
        for warning in run.warnings
        if "incomplete: step" in warning.message
        for word in warning.message.rpartition("step")[2].replace("s ", " ").replace(",", " ").split()
        if word.isdigit()
    }
    return steps - cut


def _memory(run: Run, case: Case) -> list[str]:
    if case.layout == "msadvisor" or case.is_gloo:
        return []
    read = {rank: values for rank, *values in run.sql("SELECT rank, peak, capacity FROM ranks_memory").fetchall()}
    unit = LEGACY_MEMORY if case.layout == "mindinsight" else MINDSPORE_MB if case.is_mindspore else 1.0
    found = []
    for row in case.rows("memory"):
        peak, capacity = read.get(row["rank"], (None, None))
        if peak is None or abs(peak / GIB / unit - row["peak_gib"]) > 0.002 * row["peak_gib"]:
            found.append(f"rank {row['rank']}: peak {peak} for {row['peak_gib']} GiB")
        # The Ascend files do not hold the size of the card: it is unknown, not guessed.
        wanted = None if case.layout == "ascend" else round(row["capacity_gib"] * unit * GIB)
        if capacity != wanted:
            found.append(f"rank {row['rank']}: capacity {capacity} for {wanted}")
    return found
