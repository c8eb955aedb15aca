"""collect_data as training scripts call it: both spellings, everything copied by default, failures raised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.collect import collect_data
from paceline.core.errors import UsageError
from support.collect.clusters import add_raw_data, simulated
from support.storage.trees import content, stored


@pytest.fixture
def rank0(tmp_path: Path) -> Path:
    """/cache/profiler_data0 of a container: MindSpore appends /profiler itself."""
    job = simulated(tmp_path / "job", "msadvisor")
    place = job / "0"
    add_raw_data(place / "profiler", 60_000)
    (place / "profiler" / "PROF_000001_20260101000000000_ABC" / "device_0" / "info.json.0").write_text("{}")
    (place / "summary.log").write_text("kept by ALL only")
    return place


@pytest.mark.parametrize("data", ["ALL", "All", "all"])
def test_all_copies_everything_in_any_spelling(rank0: Path, tmp_path: Path, data: str) -> None:
    collect_data(str(rank0), str(tmp_path / "out"), data=data)
    assert content(tmp_path / "out") == content(rank0)


def test_the_default_copies(rank0: Path, bucket: str) -> None:
    collect_data(src_url=str(rank0), dst_url=f"obs://{bucket}/run/0")
    assert set(stored(f"obs://{bucket}/run/0")) == set(content(rank0))


def test_hccl_leaves_out_the_two_large_kinds_of_raw_data(rank0: Path, bucket: str) -> None:
    collect_data(srt_url=str(rank0), dst_url=f"obs://{bucket}/run/0", data="HCCL")
    there = set(stored(f"obs://{bucket}/run/0"))
    assert all(key.startswith("profiler/") for key in there)
    assert not any("hwts.data.join" in key or "HCCL.hcom" in key for key in there)
    for name in (
        "ascend_timeline_display_0.json",
        "step_trace_raw_0_detail_time.csv",
        "PROF_000001_20260101000000000_ABC/device_0/info.json.0",
        "hccl_info_0/allReduce_1_1/iter1.trace",
    ):
        assert f"profiler/{name}" in there


def test_nothing_to_copy_and_wrong_arguments_are_errors(rank0: Path, tmp_path: Path) -> None:
    for words in ({"src_url": str(tmp_path / "none"), "dst_url": str(tmp_path / "o")}, {"src_url": str(rank0)}):
        with pytest.raises(UsageError):
            collect_data(**words)
    with pytest.raises(UsageError, match="must be one of"):
        collect_data(str(rank0), str(tmp_path / "o"), data="SOME")


def test_it_accepts_the_arguments_of_copy_parallel(rank0: Path, tmp_path: Path) -> None:
    listed = ["summary.log", "profiler/ascend_timeline_display_0.json"]
    collect_data(rank0, tmp_path / "out", file_list=listed, threads=4, is_processing=False, use_queue=False)
    assert set(content(tmp_path / "out")) == set(listed)
    with pytest.raises(UsageError, match="file_list"):
        collect_data(rank0, tmp_path / "out", file_list=["summary.log", "none.log"])


def test_paths_work_and_two_different_sources_are_rejected(rank0: Path, tmp_path: Path) -> None:
    collect_data(rank0, tmp_path / "out", data="hccl")
    assert (tmp_path / "out/profiler/step_trace_raw_0_detail_time.csv").exists()
    with pytest.raises(UsageError, match="differ"):
        collect_data(src_url=rank0, srt_url=tmp_path, dst_url=tmp_path / "out")
    with pytest.raises(UsageError, match="must be one of"):
        collect_data(rank0, tmp_path / "out", data=None)  # type: ignore[arg-type]


def test_importing_it_loads_no_client_library() -> None:
    code = (
        "import sys, paceline.collect, paceline.storage; print([m for m in sys.modules if m in "
        "('obstore', 'asyncssh', 'obs', 'duckdb', 'numpy')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
