"""The text output of torch_npu's profiler: one *_ascend_pt directory per rank, CSV and JSON files in it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import msgspec

from paceline.simulate.cluster import Cluster
from paceline.simulate.layouts import ascend_csv
from paceline.simulate.layouts.ascend_communication import communication_json, matrix_json
from paceline.simulate.layouts.ascend_names import worker
from paceline.simulate.layouts.ascend_trace import trace_view
from paceline.simulate.layouts.dialect import TORCH, Dialect
from paceline.simulate.layouts.layout import has_detail_files
from paceline.simulate.recording import Recording

OUTPUT = "ASCEND_PROFILER_OUTPUT"


class AscendText:
    dialect: Dialect = TORCH

    def __init__(self, out: Path, cluster: Cluster) -> None:
        self.out, self.cluster = out, cluster

    def write(self, recording: Recording) -> Path:
        root = self.out / f"{worker(recording)}{self.dialect.suffix}"
        output = root / OUTPUT
        output.mkdir(parents=True, exist_ok=True)
        self._write_identity(recording, root)
        write_text(output / "step_trace_time.csv", ascend_csv.step_trace_time(recording, self.dialect))
        write_text(output / "communication.json", communication_json(recording, self.dialect))
        write_text(output / "communication_matrix.json", matrix_json(recording, self.dialect))
        write_text(output / "op_statistic.csv", ascend_csv.op_statistic(recording))
        write_text(output / "api_statistic.csv", ascend_csv.api_statistic(recording))
        if has_detail_files(recording):
            self._write_details(recording, output)
        return output / "communication.json"

    def finish(self) -> None:
        """There are no files of the whole cluster."""

    def _write_identity(self, recording: Recording, root: Path) -> None:
        write_json(root / f"profiler_info_{recording.rank}.json", profiler_info(recording, export="text"))
        write_json(root / "profiler_metadata.json", metadata(recording))

    def _write_details(self, recording: Recording, output: Path) -> None:
        write_text(output / "kernel_details.csv", ascend_csv.kernel_details(recording, self.dialect))
        write_text(output / "operator_memory.csv", ascend_csv.operator_memory(recording, self.dialect))
        write_text(output / "memory_record.csv", ascend_csv.memory_record(recording, self.dialect))
        write_text(output / "npu_module_mem.csv", ascend_csv.npu_module_mem(recording))
        write_text(output / "l2_cache.csv", ascend_csv.l2_cache(recording))
        write_json_array(output / "trace_view.json", trace_view(recording, self.dialect))


def profiler_info(recording: Recording, *, export: str) -> dict[str, object]:
    start, end = int(recording.steps.start[0]), int(recording.steps.end[-1])
    return {
        "config": {
            "common_config": {
                "activities": ["ProfilerActivity.CPU", "ProfilerActivity.NPU"],
                "schedule": {
                    "wait": 0,
                    "active": len(recording.steps.number),
                    "warmup": 1,
                    "repeat": 1,
                    "skip_first": 0,
                },
                "record_shapes": True,
                "profile_memory": True,
                "with_stack": False,
                "with_flops": False,
                "with_modules": False,
            },
            "experimental_config": {
                "_profiler_level": "Level1",
                "_aic_metrics": "ACL_AICORE_PIPE_UTILIZATION",
                "_l2_cache": True,
                "_msprof_tx": False,
                "_data_simplification": True,
                "record_op_args": False,
                "_export_type": export,
                "_op_attr": False,
                "_gc_detect_threshold": None,
            },
        },
        "start_info": {"syscnt_enable": True, "freq": 100, "start_cnt": start // 10, "start_monotonic": start},
        "end_info": {"collectionTimeEnd": end, "MonotonicTimeEnd": end},
        "torch_npu_version": "2.7.1",
        "cann_version": "8.3.RC1",
        "rank_id": recording.rank,
    }


def metadata(recording: Recording) -> dict[str, object]:
    """Environment, sizes of the parallel dimensions and, if declared, the members of the groups."""
    spec = recording.cluster.spec
    content: dict[str, object] = {
        "ENV_VARIABLES": {
            "ASCEND_GLOBAL_LOG_LEVEL": "3",
            "HCCL_RDMA_TC": "",
            "HCCL_RDMA_SL": "",
            "ACLNN_CACHE_LIMIT": "10000",
            "HOST_CACHE_CAPACITY": "20",
            "ASCEND_ENHANCE_ENABLE": "1",
            "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
            "ASCEND_LAUNCH_BLOCKING": "",
            "HCCL_ALGO": "",
        },
    }
    if spec.declare_groups:
        content["distributed_args"] = {
            "tensor_model_parallel_size": spec.tp,
            "pipeline_model_parallel_size": spec.pp,
            "data_parallel_size": spec.dp,
            "context_parallel_size": 1,
            "expert_model_parallel_size": 1,
            "sequence_parallel": spec.sequence_parallel,
            "rank": recording.rank,
            "world_size": spec.world,
        }
        content["parallel_group_info"] = group_info(recording)
    return content


def group_info(recording: Recording) -> dict[str, object]:
    rank = recording.rank
    return {
        group.id: {"group_name": group.kind, "group_rank": group.index(rank), "global_ranks": list(group.ranks)}
        for group in recording.cluster.groups_of(rank)
    }


def write_text(path: Path, text: str) -> None:
    path.write_bytes(text.encode())


def write_json(path: Path, value: object) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=4))


def write_json_array(path: Path, events: Iterable[str], batch: int = 20_000) -> None:
    """Write a JSON array in batches, so that a trace is never in memory as a whole."""
    source = iter(events)
    with path.open("wb") as file:
        separator = b"["
        while chunk := list(islice(source, batch)):
            file.write(separator + ",\n".join(chunk).encode())
            separator = b",\n"
        file.write(b"[]" if separator == b"[" else b"]")
