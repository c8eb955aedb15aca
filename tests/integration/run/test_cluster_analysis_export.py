"""A run written as msprof-analyze writes it: read back it is the same run, and its keys are those of the real tool."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.core.errors import UsageError
from paceline.output.cluster_analysis import export_cluster_analysis
from paceline.run.run import Run
from paceline.simulate import ClusterSpec, simulate
from support.reader_helpers import FIXTURES, needs_fixtures

SPEC = ClusterSpec(hosts=2, devices=4, dp=2, tp=2, pp=2, steps=3, layers=4, micro_batches=2, detail_ranks=0, seed=3)
PEER = FIXTURES / "ascend-pytorch" / "cluster_analysis_output"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster-export")


@pytest.fixture(scope="module")
def run(root: Path) -> Iterator[Run]:
    simulate(root / "run", SPEC)
    with Run(root / "run", store=root / "store") as opened:
        export_cluster_analysis(opened, root / "out")
        yield opened


def written(root: Path, name: str) -> Any:
    return json.loads((root / "out" / name).read_text())


@pytest.mark.parametrize(
    "query",
    [
        "SELECT rank, step, computing, exposed, overlapped, communication, free, bubble, preparing FROM steps",
        'SELECT rank, step, "group", op, name, sequence, start, duration, transit, wait, sync, idle, bytes '
        "FROM collectives",
        'SELECT rank, step, "group", name, transport, packet_bytes, count, duration FROM packets',
        "SELECT step, src, dst, transport, bytes, duration FROM links",
    ],
    ids=["steps", "collectives", "packets", "links"],
)
def test_read_back_every_table_is_the_same(run: Run, root: Path, query: str) -> None:
    with Run(root / "out", store=root / "store-out") as again:
        expected, found = run.sql(query).fetchall(), again.sql(query).fetchall()
    assert len(expected) > 20
    assert sorted(found) == sorted(expected)


@needs_fixtures
def test_keys_are_those_of_the_real_tool(run: Run, root: Path) -> None:
    def shape(operations: dict[str, Any]) -> tuple[set[str], set[str], set[str]]:
        operation = next(iter(next(iter(operations.values())).values()))
        links = operation["Communication Bandwidth Info"]
        return set(operation["Communication Time Info"]), set(links), set(links["RDMA"])

    real = json.loads((PEER / "cluster_communication.json").read_text())
    times, transports, bandwidth = shape(next(iter(next(iter(real.values())).values())))
    ours = shape(written(root, "cluster_communication.json")["(0, 4)"]["step1"])
    assert ours == (times, transports | {"SIO"}, bandwidth)  # SIO came with later CANN versions
    header = (PEER / "cluster_step_trace_time.csv").read_text().splitlines()[0].split(",")
    assert (root / "out" / "cluster_step_trace_time.csv").read_text().splitlines()[0].split(",") == [
        *header,
        "Preparing",
        "DP Index",
        "PP Index",
        "TP Index",
    ]
    link = json.loads((PEER / "cluster_communication_matrix.json").read_text())["p2p"]["step2"]["Total Op Info"]["0-8"]
    matrix = written(root, "cluster_communication_matrix.json")["(0, 1)"]["step1"]
    assert set(next(iter(matrix.values()))["0-1"]) == {*link, "Op Name"}
    groups = json.loads((PEER / "communication_group.json").read_text())
    assert {*groups, "comm_group_parallel_info"} == set(written(root, "communication_group.json"))


def test_totals_are_the_sums_of_their_operators(run: Run, root: Path) -> None:
    operations = written(root, "cluster_communication.json")["(0, 1)"]["step2"]
    single = [ranks["1"] for name, ranks in operations.items() if not name.startswith("Total")]
    (total,) = (ranks["1"] for name, ranks in operations.items() if name.startswith("Total"))
    assert len(single) == 16  # 2 layers x 2 micro-batches x 2 all-reduces, forward and backward
    for name in ("Elapse Time(ms)", "Transit Time(ms)", "Wait Time(ms)"):
        summed = sum(operation["Communication Time Info"][name] for operation in single)
        assert total["Communication Time Info"][name] == pytest.approx(summed)
    moved = total["Communication Bandwidth Info"]["HCCS"]
    assert moved["Transit Size(MB)"] == pytest.approx(16 * 4.194304)
    assert moved["Bandwidth(GB/s)"] == pytest.approx(moved["Transit Size(MB)"] / moved["Transit Time(ms)"], abs=1e-4)
    assert total["Communication Bandwidth Info"]["SDMA"]["Transit Size(MB)"] == moved["Transit Size(MB)"]


def test_stage_rows_are_the_maximum_of_their_ranks(run: Run, root: Path) -> None:
    with (root / "out" / "cluster_step_trace_time.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["Step"] == "2"]
    (stage,) = (row for row in rows if row["Type"] == "stage" and row["Index"] == "(4, 5, 6, 7)")
    ranks = [row for row in rows if row["Type"] == "rank" and int(row["Index"]) >= 4]
    assert float(stage["Computing"]) == max(float(row["Computing"]) for row in ranks)
    assert [(row["DP Index"], row["PP Index"], row["TP Index"]) for row in ranks] == [
        ("0", "1", "0"),
        ("0", "1", "1"),
        ("1", "1", "0"),
        ("1", "1", "1"),
    ]  # Megatron numbers tp fastest, then dp, then pp
    for row in ranks:
        whole = sum(float(row[name]) for name in ("Computing", "Communication(Not Overlapped)", "Free"))
        assert float(row["Stage"]) + float(row["Bubble"]) == pytest.approx(whole, abs=0.05)


def test_existing_files_are_never_touched(run: Run, root: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in (root / "out").iterdir()}
    with pytest.raises(UsageError, match="already exists"):
        export_cluster_analysis(run, root / "out")
    assert {path.name: path.stat().st_mtime_ns for path in (root / "out").iterdir()} == before
    assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("layout", ["kineto", "msprof", "mindinsight", "ascend-db"])
def test_runs_of_other_tools_lose_no_collective(tmp_path: Path, layout: str) -> None:
    """Names may repeat (Kineto), or be different executions on different ranks (msprof); none overwrites another."""
    spec = ClusterSpec(hosts=1, devices=4, dp=1, tp=2, pp=2, steps=2, layers=2, micro_batches=2)
    simulate(tmp_path / "run", spec, layout=layout)
    query = "SELECT rank, step, op, duration FROM collectives"
    with Run(tmp_path / "run", store=tmp_path / "store") as run:
        export_cluster_analysis(run, tmp_path / "out")
        expected = run.sql(query).fetchall()
    with Run(tmp_path / "out", store=tmp_path / "store-out") as again:
        assert sorted(again.sql(query).fetchall()) == sorted(expected)
        assert again.sql("SELECT count(*), count(computing) FROM steps").fetchall() == [(8, 8)]
        grouped = again.sql('SELECT count(*) FROM collectives WHERE "group" IS NOT NULL AND sequence IS NULL')
        assert grouped.fetchall() == [(0,)]
