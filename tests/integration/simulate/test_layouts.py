"""Every layout writes files that parse and can be damaged on purpose."""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.core.errors import UsageError
from paceline.simulate import LAYOUTS, TRUTH_FILE, ClusterSpec, simulate
from paceline.simulate.layouts.ascend_names import group_hash

SPEC = ClusterSpec(hosts=2, devices=2, dp=2, tp=1, pp=2, steps=2, layers=2, micro_batches=2)


def parse(path: Path) -> None:
    """Raises unless the file has the format of its suffix."""
    if path.suffix in (".json", ".trace") or path.name.startswith(("info.json", "start_info", "end_info")):
        json.loads(path.read_text())
    elif path.suffix == ".gz":
        json.loads(gzip.decompress(path.read_bytes()))
    elif path.suffix == ".db":
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    elif path.suffix == ".csv" and "summary" not in path.name:
        with path.open(newline="") as file:
            assert len({len(row) for row in csv.reader(file)}) == 1, path


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_file_parses(layout: str, tmp_path: Path) -> None:
    simulate(tmp_path / "run", SPEC, [], layout)
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and not path.name.endswith(".done")]
    assert len(files) > SPEC.world
    for path in files:
        parse(path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_single_card_can_be_simulated(layout: str, tmp_path: Path) -> None:
    alone = ClusterSpec(hosts=1, devices=1, dp=1, tp=1, pp=1, steps=1, layers=1, micro_batches=1)
    simulate(tmp_path / "run", alone, [], layout)
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file() and not path.name.endswith(".done"):
            parse(path)


@pytest.mark.parametrize("layout", ["ascend-text", "mindinsight", "msadvisor", "msprof"])
def test_same_seed_writes_the_same_bytes(layout: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        simulate(tmp_path / name, SPEC, ["random"], layout)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_ground_truth_has_faults_times_clocks_and_groups(tmp_path: Path) -> None:
    simulate(tmp_path / "run", SPEC, ["slow-rank:3:1.5", "clock-skew:1:40"], "kineto")
    truth = json.loads((tmp_path / "run" / TRUTH_FILE).read_text())
    assert [fault["id"] for fault in truth["faults"]] == ["slow-rank", "clock-skew"]
    assert truth["faults"][0]["subject"]["ranks"] == [3]
    assert truth["step_ms"]["mean"] > truth["step_ms_healthy"]["mean"]
    assert truth["clock_offsets"][3] - truth["clock_offsets"][0] > 25_000_000
    assert {group["kind"] for group in truth["groups"]} == {"default_group", "dp", "pp", "mp"}


def test_missing_ranks_are_not_written(tmp_path: Path) -> None:
    truth = simulate(tmp_path / "run", SPEC, ["data-incomplete:missing-rank:1+2"], "ascend-text")
    found = {path.stem.removeprefix("profiler_info_") for path in (tmp_path / "run").rglob("profiler_info_*.json")}
    assert found == {"0", "3"}
    assert truth.missing_ranks == (1, 2)


def test_truncated_rank_does_not_parse(tmp_path: Path) -> None:
    simulate(tmp_path / "run", SPEC, ["data-incomplete:truncated:1"], "ascend-text")
    truncated = []
    for path in sorted((tmp_path / "run").rglob("communication.json")):
        try:
            parse(path)
        except json.JSONDecodeError:
            truncated.append(path.parents[1].name.split("_")[1])
    assert truncated == ["10001"]


def test_missing_step_leaves_the_other_steps(tmp_path: Path) -> None:
    simulate(tmp_path / "run", replace(SPEC, steps=3), ["data-incomplete:missing-step:1"], "ascend-text")
    steps = {}
    for path in (tmp_path / "run").rglob("step_trace_time.csv"):
        with path.open(newline="") as file:
            steps[path.parents[1].name.split("_")[1]] = len(list(csv.DictReader(file)))
    assert steps == {"10000": 3, "10001": 2, "10002": 3, "10003": 3}


def test_large_files_are_written_for_detail_ranks_only(tmp_path: Path) -> None:
    simulate(tmp_path / "run", replace(SPEC, detail_ranks=1), [], "ascend-text")
    assert len(list((tmp_path / "run").rglob("trace_view.json"))) == 1
    assert len(list((tmp_path / "run").rglob("communication.json"))) == SPEC.world


def test_groups_can_be_undeclared(tmp_path: Path) -> None:
    simulate(tmp_path / "run", replace(SPEC, declare_groups=False), [], "ascend-text")
    for path in (tmp_path / "run").rglob("profiler_metadata.json"):
        assert "parallel_group_info" not in json.loads(path.read_text())


def test_collectives_have_the_hash_of_their_group() -> None:
    assert group_hash("group_name_0") == "5862276093215481612"
    assert group_hash("90.91.105.46%enp189s0f0_60000_0_1736410538306028") == "17148521525495523210"


def test_existing_directory_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(UsageError, match="already exists"):
        simulate(tmp_path, SPEC, [], "kineto")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_unknown_layout_is_rejected_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        simulate(tmp_path / "run", SPEC, [], "excel")
    assert all(layout in str(refused.value.hint) for layout in LAYOUTS)
    assert not (tmp_path / "run").exists()


def test_progress_counts_the_ranks(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    simulate(tmp_path / "run", SPEC, [], "mindinsight", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(rank + 1, 4) for rank in range(4)]
