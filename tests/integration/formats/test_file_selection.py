"""File patterns of the formats against their readers: every file a reader opens is fetched, raw device data is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.collect.container_files import needed_outside_container
from paceline.formats.file_selection import needed_for_communication, needed_for_diagnosis
from paceline.formats.registry import find_recordings
from paceline.simulate import LAYOUTS
from paceline.storage.file_selection import is_marker, is_unfinished
from paceline.storage.file_tree import walk
from support.collect.clusters import simulated
from support.reader_helpers import FIXTURES, needs_fixtures


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_file_a_reader_opens_is_fetched(tmp_path: Path, layout: str) -> None:
    assert _not_fetched(simulated(tmp_path / "run", layout)) == set()


@needs_fixtures
def test_every_file_of_real_recordings_a_reader_opens_is_fetched() -> None:
    for recording in sorted(path for path in FIXTURES.iterdir() if path.is_dir()):
        assert _not_fetched(recording) == set(), recording


def _not_fetched(root: Path) -> set[str]:
    recordings = find_recordings(walk(root))
    opened = {file.relative for each in recordings for section in each.sections for file in section.files}
    return {relative for relative in opened if not needed_for_diagnosis(relative)}


@pytest.mark.parametrize(
    "key",
    [
        "PROF_000001_2026_A/device_0/data/hwts.data.join.0.slice_0",
        "x/PROF_1/device_12/data/HCCL.hcom_allReduce.0.slice_3",
        "PROF_1/host/data/unaging.api_event.data.slice_0",
        "PROF_1/host/sqlite/api_event.db",
        "PROF_1/device_0/sqlite/step_trace.db",
        "h_1_2026_ascend_pt/FRAMEWORK/torch.op_range",
        "h_1_2026_ascend_ms/FRAMEWORK/op_range.slice_0",
        "kernel_meta/te_add.json",
        "rank_0/kernel_meta/a/te_mul.json",
        "checkpoint/rank_0/net-1_1.ckpt",
        "model.safetensors",
        "results.csv",
        "notes.txt",
    ],
)
def test_raw_device_data_weights_and_unknown_files_are_not_fetched(key: str) -> None:
    assert not needed_for_diagnosis(key) and not needed_for_communication(key)


@pytest.mark.parametrize(
    "key",
    [
        "PROF_1/device_0/info.json.0",
        "PROF_1/mindstudio_profiler_output/msprof_20260101.json",
        "h_1_2026_ascend_ms/FRAMEWORK/cpu_op_detail_info_0.csv",
        "h_1_2026_ascend_pt/profiler_info_0.json",
        "0/profiler/hccl_info_0/allReduce_1_1/iter1.trace",
        "memory_usage_0.pb",
        "worker.123.pt.trace.json.gz",
        "hccl.json",
        "host_ips_mapping.txt",
        "rank-0000/steps-000001.jsonl",
        "export/steps.parquet",
        "study/meta-ST.yaml",
    ],
)
def test_results_are_fetched(key: str) -> None:
    assert needed_for_diagnosis(key)


@pytest.mark.parametrize(
    ("key", "needed"),
    [
        ("a_ascend_pt/ASCEND_PROFILER_OUTPUT/communication.json", True),
        ("a_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv", True),
        ("a_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json", False),
        ("a_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", False),
        ("PROF_1/mindstudio_profiler_output/msprof_2026.json", True),
        ("a_ascend_pt/PROF_1/mindstudio_profiler_output/msprof_2026.json", False),
        ("PROF_1/msprof_2026.db", True),
        ("a_ascend_ms/PROF_1/msprof_2026.db", False),
        ("worker.1.pt.trace.json", True),
        ("worker.json", False),
        ("rank_table_16.json", True),
        ("memory_usage_0.pb", False),
    ],
)
def test_steps_and_communication_alone(key: str, needed: bool) -> None:
    assert needed_for_communication(key) == needed


def test_markers_and_unfinished_files_are_known_by_name() -> None:
    assert is_marker("checkpoint/rank_0/meta.json") and is_marker("latest_checkpointed_iteration.txt")
    assert not is_marker("checkpoint/other_meta.json")
    assert all(map(is_unfinished, ("a.ckpt.tmp", "x.upload_record", ".big.paceline-part")))
    assert not is_unfinished("tmp/a.json")


def test_from_a_container_the_same_is_copied_as_by_the_original() -> None:
    assert needed_outside_container("PROF_1/device_0/data/aicore.data.0.slice_0")
    assert not needed_outside_container("PROF_1/device_0/data/hwts.data.join.0.slice_0")
    assert not needed_outside_container("minddata_pipeline_raw_0.csv")
    assert needed_outside_container("hccl_raw_0.csv") and needed_outside_container("profiler_info_0.json")
