"""Small Ascend text profiles written by hand, for tests of the store and the Run."""

from __future__ import annotations

import json
from pathlib import Path

GROUP = "group_name_0"
GROUP_HASH = "5862276093215481612"


def write_rank(
    root: Path,
    rank: int,
    *,
    ranks: int = 2,
    steps: int = 2,
    late_ms: float = 0.0,
    clock_ms: float = 0.0,
    host: str = "h0",
) -> Path:
    """One rank: one all-reduce per step of 2 ms transfer after `late_ms` of extra computing, its clock ahead by `clock_ms`."""
    profile = root / f"{host}_{100 + rank}_20260101000000000_ascend_pt"
    output = profile / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True, exist_ok=True)
    (profile / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank}))
    groups = {GROUP: {"group_name": "dp", "group_rank": rank, "global_ranks": list(range(ranks))}}
    (profile / "profiler_metadata.json").write_text(json.dumps({"parallel_group_info": groups}))
    computing = 10 + late_ms
    header = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,Preparing\n"
    lines = [f"{step},{computing * 1000},7000,0,7000,1000,0,0,0" for step in range(1, steps + 1)]
    (output / "step_trace_time.csv").write_text(header + "\n".join(lines) + "\n")
    communication, matrix = {}, {}
    for step in range(1, steps + 1):
        # µs; all ranks leave the collective 20 ms after the step began.
        begin = 1_764_000_000_000_000 + step * 100_000 + clock_ms * 1000
        elapse = 20 - computing
        name = f"hcom_allReduce__612_{step}_1"
        time = {
            "Start Timestamp(us)": f"{begin + computing * 1000:.3f}",
            "Elapse Time(ms)": elapse,
            "Transit Time(ms)": 2.0,
            "Wait Time(ms)": elapse - 2.0,
            "Synchronization Time(ms)": elapse - 2.0,
            "Idle Time(ms)": 0.0,
        }
        moved = {"HCCS": {"Transit Size(MB)": 20.0, "Transit Time(ms)": 2.0, "Size Distribution": {"20.0": [1, 2.0]}}}
        operation = {"Communication Time Info": time, "Communication Bandwidth Info": moved}
        communication[f"step{step}"] = {"p2p": {}, "collective": {f"{name}@{GROUP_HASH}": operation}}
        link = {"Transport Type": "HCCS", "Transit Size(MB)": 20.0, "Transit Time(ms)": 2.0}
        links = {f"{rank}-{(rank + 1) % ranks}": link}
        matrix[f"step{step}"] = {"p2p": {}, "collective": {f"allreduce-total@{GROUP_HASH}": links}}
    (output / "communication.json").write_text(json.dumps(communication))
    (output / "communication_matrix.json").write_text(json.dumps(matrix))
    return profile
