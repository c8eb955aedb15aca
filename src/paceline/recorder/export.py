"""Export the recorded steps as Ascend profiler output: step_trace_time.csv, communication.json, trace_view.json.

trace_view.json opens in chrome://tracing and Perfetto. The steps are read back from the log, so that nothing is kept in
memory for the export; each file is written under a temporary name and renamed.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Dict

FOLDER = "ASCEND_PROFILER_OUTPUT"
_HEADER = (
    "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive),Preparing"
)
_HCCL = {
    "all_reduce": "allReduce",
    "all_gather": "allGather",
    "reduce_scatter": "reduceScatter",
    "all_to_all": "alltoall",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "send": "send",
    "receive": "receive",
    "send_receive": "batchSendRecv",
}
_PEER_TO_PEER = ("send", "receive", "send_receive")
LogRecord = Dict[str, Any]
"""A line of the log; recorder/step.py describes its fields."""


def export(segments: Iterable[Path], directory: Path) -> None:
    """Write the five files of this rank's profile into its directory."""
    head, steps = _read(segments)
    if not head:
        return
    rank = head["rank"]
    _write(directory / f"profiler_info_{rank}.json", json.dumps({"rank_id": rank, "recorder": head["schema"]}))
    _write(directory / "profiler_metadata.json", json.dumps(_metadata(head)))
    output = directory / FOLDER
    output.mkdir(exist_ok=True)
    _write(output / "step_trace_time.csv", "\n".join([_HEADER, *map(_step_row, steps)]) + "\n")
    _write(output / "communication.json", json.dumps({f"step{s['step']}": _communication(s, head) for s in steps}))
    _write(output / "trace_view.json", "[\n" + ",\n".join(map(json.dumps, _events(steps, head))) + "\n]\n")


def _read(segments: Iterable[Path]) -> tuple[LogRecord, list[LogRecord]]:
    """The newest head, with the groups of all segments, and the steps; incomplete lines are skipped."""
    head: LogRecord = {}
    steps: list[LogRecord] = []
    for path in segments:
        for line in path.read_text().split("\n")[:-1]:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if "schema" in record:
                head = {**record, "groups": {**head.get("groups", {}), **record["groups"]}}
            elif "group" in record:
                head["groups"][record["group"]] = record
            elif "event" not in record:
                steps.append(record)
    return head, steps


def _metadata(head: LogRecord) -> LogRecord:
    groups = {
        name: {
            "group_name": group["called"],
            "global_ranks": group["ranks"],
            "group_rank": group["ranks"].index(head["rank"]) if head["rank"] in group["ranks"] else None,
        }
        for name, group in head["groups"].items()
    }
    return {"parallel_group_info": groups}


def _step_row(step: LogRecord) -> str:
    """In µs. Communication is the time the host was blocked: the recorder cannot see overlapped communication."""
    collectives = step.get("c", ())
    exposed = min(sum(collective[5] for collective in collectives) + step.get("more", (0, 0))[1], step["d"])
    waited = min(sum(length for name, _, length in step.get("p", ()) if name == "data_wait"), step["d"] - exposed)
    received = min(sum(collective[5] for collective in collectives if collective[0] == "receive"), exposed)
    spent = (
        step["d"] - exposed - waited,
        exposed,
        0,
        exposed,
        waited,
        step["d"] - received,
        received,
        exposed - received,
        waited,
    )
    return ",".join([str(step["step"]), *(f"{ns / 1000:.3f}" for ns in spent)])


def _communication(step: LogRecord, head: LogRecord) -> LogRecord:
    from paceline.core.collective_names import group_hash

    kinds: dict[str, LogRecord] = {"p2p": {}, "collective": {}}
    counts: Counter[tuple[str, str, int | None]] = Counter()
    for op, group, start, length, size, _, peer in step.get("c", ()):
        index = counts[op, group, peer]
        counts[op, group, peer] += 1
        if length is None:
            continue
        hashed = group_hash(group)
        name = f"hcom_{_HCCL.get(op, op)}__{hashed[-3:]}_{index}_{1 if peer is None else peer}@{hashed}"
        kinds["p2p" if op in _PEER_TO_PEER else "collective"][name] = {
            "Communication Time Info": {
                "Start Timestamp(us)": (head["started"] + step["t"] + start) / 1000,
                "Elapse Time(ms)": length / 1e6,
            },
            "Communication Bandwidth Info": {},
            "Message Size(B)": size,
        }
    return kinds


def _events(steps: list[LogRecord], head: LogRecord) -> Iterator[LogRecord]:
    rank = head["rank"]
    yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
    for thread, name in enumerate(("steps", "phases", "communication")):
        yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": thread, "args": {"name": name}}
    for step in steps:
        begin = head["started"] + step["t"]
        yield _span(rank, 0, f"ProfilerStep#{step['step']}", begin, step["d"])
        for name, start, length in step.get("p", ()):
            yield _span(rank, 1, name, begin + start, length)
        for op, group, start, length, size, blocked, _ in step.get("c", ()):
            if length is not None:
                args = {"group": group, "bytes": size, "blocked_us": blocked / 1000}
                yield {**_span(rank, 2, op, begin + start, length), "args": args}


def _span(rank: int, thread: int, name: str, start: int, length: int) -> LogRecord:
    return {"ph": "X", "name": name, "pid": rank, "tid": thread, "ts": start / 1000, "dur": length / 1000}


def _write(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text)
    os.replace(part, path)
