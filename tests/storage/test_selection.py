"""The rules of names against the readers: whatever a reader opens is kept, raw device data is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from collect.clusters import simulated
from paceline.formats.detect import find_parts
from paceline.simulate import LAYOUTS
from paceline.storage.selection import for_container, for_diagnosis, for_hccl, is_marker, is_unfinished
from paceline.storage.tree import walk
from reading import FIXTURES, needs_fixtures


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_file_a_reader_opens_is_kept(tmp_path: Path, layout: str) -> None:
    assert _left_behind(simulated(tmp_path / "run", layout)) == set()


@needs_fixtures
def test_every_file_of_real_recordings_a_reader_opens_is_kept() -> None:
    for recording in sorted(path for path in FIXTURES.iterdir() if path.is_dir()):
        assert _left_behind(recording) == set(), recording


def _left_behind(root: Path) -> set[str]:
    opened = {file.relative for part in find_parts(walk(root)) for section in part.sections for file in section.files}
    return {relative for relative in opened if not for_diagnosis(relative)}


@pytest.mark.parametrize(
    "key",
    [
        "PROF_000001_2026_A/device_0/data/hwts.data.join.0.slice_0",
        "x/PROF_1/device_12/data/HCCL.hcom_allReduce.0.slice_3",
        "PROF_1/host/data/unaging.api_event.data.slice_0",
        "PROF_1/host/sqlite/api_event.db",
        "h_1_2026_ascend_pt/FRAMEWORK/torch.op_range",
        "h_1_2026_ascend_ms/FRAMEWORK/op_range.slice_0",
        "checkpoint/rank_0/net-1_1.ckpt",
        "model.safetensors",
    ],
)
def test_raw_device_data_and_weights_are_left_behind(key: str) -> None:
    assert not for_diagnosis(key) and not for_hccl(key)


@pytest.mark.parametrize(
    "key",
    [
        "PROF_1/device_0/info.json.0",
        "PROF_1/mindstudio_profiler_output/msprof_20260101.json",
        "h_1_2026_ascend_ms/FRAMEWORK/cpu_op_detail_info_0.csv",
        "0/profiler/hccl_info_0/allReduce_1_1/iter1.trace",
        "memory_usage_0.pb",
        "worker.123.pt.trace.json.gz",
        "hccl.json",
    ],
)
def test_results_are_kept(key: str) -> None:
    assert for_diagnosis(key)


def test_markers_and_unfinished_files_are_known_by_name() -> None:
    assert is_marker("checkpoint/rank_0/meta.json") and is_marker("latest_checkpointed_iteration.txt")
    assert not is_marker("checkpoint/other_meta.json")
    assert all(map(is_unfinished, ("a.ckpt.tmp", "x.upload_record", ".big.paceline-part")))
    assert not is_unfinished("tmp/a.json")


def test_the_containers_rule_keeps_what_the_original_keeps() -> None:
    assert for_container("PROF_1/device_0/data/aicore.data.0.slice_0")
    assert not for_container("PROF_1/device_0/data/hwts.data.join.0.slice_0")
    assert not for_container("minddata_pipeline_raw_0.csv")
