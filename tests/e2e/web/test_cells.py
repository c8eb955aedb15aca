"""Every cell of the pages' tables against the files, worked out independently (support/web/independent_cells.py).

The kit's MindInsight and msadvisor cases, and the real recordings. A cell of one step is what the file says of it; a mean is
taken over the steps after the first that were recorded whole.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from support.kit_tables import build_cases, needs_kit
from support.reader_helpers import FIXTURES, needs_fixtures
from support.web.independent_cells import Cells, all_reduces_of_neighbours, mindinsight, msadvisor
from support.web.servers import Serve, Server

Rows = list[dict[str, Any]]
REAL_R13 = "derived_r1.3_layout/run"
REAL_FLAT = "mindinsight-tests/tests/utils/resource/cluster_propose"
ASCEND = "ascend-pytorch/text-level1"


@pytest.fixture(scope="module")
def kit_server(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    target = tmp_path_factory.mktemp("cells")
    build_cases(target, ["k04", "k27", "k06"])
    return serve(target / "cases")


@pytest.fixture(scope="module")
def real_server(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    target = tmp_path_factory.mktemp("real-cells")
    for name in (REAL_R13, REAL_FLAT, ASCEND):
        shutil.copytree(FIXTURES / name, target / name.split("/")[-1])
    return serve(target)


def agree(shown: Rows, expected: dict[Any, dict[str, float]], key: Callable[[dict[str, Any]], Any]) -> int:
    """Compare every expected cell, also that no row is missing; how many were compared."""
    by_key = {key(row): row for row in shown}
    assert by_key.keys() == expected.keys()
    for place, cells in expected.items():
        for name, value in cells.items():
            assert by_key[place][name] == pytest.approx(value, rel=1e-5, abs=2e-6), (place, name)
    return sum(len(cells) for cells in expected.values())


def mean(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    listed = list(rows)
    return {name: sum(row[name] for row in listed) / len(listed) for name in listed[0]}


def by_rank(row: dict[str, Any]) -> int:
    return int(row["rank"])


def check_steps(server: Server, run: str, cells: Cells, names: tuple[str, ...]) -> int:
    def chosen(row: dict[str, float]) -> dict[str, float]:
        return {name: row[name] for name in names}

    ranks = sorted({rank for rank, _ in cells.steps})
    means = {rank: chosen(mean(cells.steps[rank, step] for step in cells.steady(rank))) for rank in ranks}
    compared = agree(server.rows(run, "step-trace", limit=500), means, by_rank)
    for step in cells.steady(ranks[0]):
        one = {rank: chosen(cells.steps[rank, step]) for rank in ranks if (rank, step) in cells.steps}
        compared += agree(server.rows(run, "step-trace", step=step, limit=500), one, by_rank)
    return compared


def check_communication(server: Server, run: str, cells: Cells) -> int:
    means, compared = {}, 0
    steps: dict[int, dict[int, dict[str, float]]] = defaultdict(dict)
    for (rank, step), row in cells.communication.items():
        if step in cells.steady(rank):
            steps[step][rank] = row
    for rank in {rank for rank, _ in cells.communication}:
        means[rank] = mean(cells.communication[rank, step] for step in cells.of_communication(rank))
    shown = server.rows(run, "communication", limit=500)
    compared += agree([row for row in shown if row["rank"] in means], means, by_rank)
    for step, rows in steps.items():
        shown = server.rows(run, "communication", step=step, limit=500)
        compared += agree([row for row in shown if row["rank"] in rows], rows, by_rank)
    return compared


def check_links(server: Server, run: str, cells: Cells) -> int:
    steady = {step for rank, _ in cells.steps for step in cells.steady(rank)}
    sums: dict[tuple[int, int, str], dict[str, float]] = {}
    for link, by_step in cells.links.items():
        used = [amount for step, amount in by_step.items() if step in steady]
        size, time = sum(amount[0] for amount in used), sum(amount[1] for amount in used)
        sums[link] = {"bytes": size, "time": time, "bandwidth": size / time / 1e6}
    per_step = {
        link: {
            name: row[name]
            / len({step for other, one in cells.links.items() if other[0] == link[0] for step in one} & steady)
            for name in ("bytes", "time")
        }
        for link, row in sums.items()
    }

    def ends(row: dict[str, Any]) -> tuple[int, int, str]:
        return row["src"], row["dst"], row["transport"]

    compared = agree(server.rows(run, "links", per="total", limit=500), sums, ends)
    compared += agree(server.rows(run, "links", limit=500), per_step, ends)
    for step in steady:
        one = {
            link: {"bytes": by_step[step][0], "time": by_step[step][1]}
            for link, by_step in cells.links.items()
            if step in by_step
        }
        compared += agree(server.rows(run, "links", step=step, limit=500), one, ends)
    return compared


@needs_kit
@pytest.mark.parametrize("name", ["k04", "k27"])
def test_every_cell_of_a_mindinsight_run(kit_server: Server, name: str) -> None:
    cells = mindinsight(kit_server.base / name)
    run = kit_server.ready(name)
    compared = check_steps(kit_server, run, cells, ("duration", "data", "forward_backward", "phase_tail"))
    compared += check_communication(kit_server, run, cells)
    compared += check_links(kit_server, run, cells)
    compared += agree(kit_server.rows(run, "memory", limit=500), cells.memory, by_rank)
    compared += agree(kit_server.rows(run, "flops", limit=500), cells.flops, by_rank)
    assert compared > 900


@needs_kit
def test_every_cell_of_an_msadvisor_run(kit_server: Server) -> None:
    cells = msadvisor(kit_server.base / "k06")
    run = kit_server.ready("k06")
    compared = check_steps(kit_server, run, cells, ("duration", "data", "forward_backward", "phase_tail"))
    compared += check_links(kit_server, run, cells)
    assert compared > 400
    slow = next(row for row in kit_server.rows(run, "links", limit=500) if (row["src"], row["dst"]) == (7, 8))
    assert 3.5 < slow["bandwidth"] < 4.0  # the injected fault; 11 GB/s elsewhere


@needs_fixtures
@pytest.mark.parametrize("name", [REAL_R13, REAL_FLAT])
def test_every_cell_of_a_real_mindinsight_run(real_server: Server, name: str) -> None:
    """Links are numbers inside a communicator: those of the all-reduces, between neighbours, are known to be of this pair."""
    cells = mindinsight(FIXTURES / name)
    run = real_server.ready(name.split("/")[-1])
    compared = check_steps(real_server, run, cells, ("duration", "data", "forward_backward", "phase_tail"))
    compared += check_communication(real_server, run, cells)
    if cells.memory:
        compared += agree(real_server.rows(run, "memory", limit=500), cells.memory, by_rank)
    compared += agree(real_server.rows(run, "flops", limit=500), cells.flops, by_rank)
    assert compared > 90
    steady = {step for rank, _ in cells.steps for step in cells.steady(rank)}
    sums = all_reduces_of_neighbours(FIXTURES / name, steady)
    assert len(sums) == 4
    shown = [row for row in real_server.rows(run, "links", per="total") if (row["src"], row["dst"]) in sums]
    agree(shown, sums, lambda row: (row["src"], row["dst"]))


@needs_fixtures
def test_every_cell_of_a_real_ascend_run(real_server: Server) -> None:
    run = real_server.ready("text-level1")
    steps, links, flops, peaks, outside = {}, {}, {}, {}, {}
    for rank in (0, 1):
        output = FIXTURES / ASCEND / f"rank{rank}_ascend_pt/ASCEND_PROFILER_OUTPUT"
        (row,) = _table(output / "step_trace_time.csv")
        times = {name: float(row[name]) / 1e3 for name in list(row)[1:]}
        steps[rank] = {
            "compute": times["Computing"] - times["Overlapped"],
            "overlapped": times["Overlapped"],
            "data": _loading(json.loads((output / "trace_view.json").read_text()), times["Preparing"]),
        }
        outside[rank] = times["Communication(Not Overlapped)"]
        links |= _matrix(json.loads((output / "communication_matrix.json").read_text()))
        flops[rank] = {"flops": float(sum(map(_work, _table(output / "kernel_details.csv"))))}
        allocated = [float(row["Total Allocated(MB)"] or 0) for row in _table(output / "memory_record.csv")]
        peaks[rank] = {"peak": max(allocated) * 2**20}
    shown = real_server.rows(run, "step-trace")
    compared = agree(shown, steps, by_rank)
    for row in shown:  # exposed communication is shown as transfer and waiting
        assert row["exposed"] + row["waiting"] == pytest.approx(outside[row["rank"]], rel=1e-6)
    both = [row for scope in ("global", "group") for row in real_server.rows(run, "links", scope=scope, limit=500)]
    compared += agree(both, links, lambda row: (row["src"], row["dst"], row["transport"]))
    compared += agree(real_server.rows(run, "flops"), flops, by_rank)
    compared += agree(real_server.rows(run, "memory"), peaks, by_rank)
    assert compared == 6 + 2 * len(links) + 4


def _loading(events: Rows, preparing: float) -> float:
    """ms in the data loader between the start of the one step and its first device work; times are text, in µs."""
    (start,) = [Decimal(event["ts"]) for event in events if str(event["name"]).startswith("ProfilerStep#")]
    loading = [event for event in events if str(event["name"]).startswith("enumerate(DataLoader)")]
    spans = [(Decimal(event["ts"]) - start, Decimal(str(event["dur"]))) for event in loading]
    within = [min(begin + length, Decimal(preparing) * 1000) - max(begin, Decimal(0)) for begin, length in spans]
    return float(sum(max(Decimal(0), each) for each in within)) / 1e3


def _table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def _matrix(document: dict[str, Any]) -> dict[tuple[int, int, str], dict[str, float]]:
    """Totals of the only step, MB of 1,000,000 bytes; cards send to themselves too."""
    (step,) = document.values()
    links = {}
    for operator, ends in step["collective"].items():
        if "-total@" not in operator:
            continue
        for link, about in ends.items():
            src, dst = (int(end) for end in link.split("-"))
            if src != dst:
                amount = {"bytes": about["Transit Size(MB)"] * 1e6, "time": about["Transit Time(ms)"]}
                links[src, dst, about["Transport Type"]] = amount
    return links


def _work(row: dict[str, str]) -> int:
    """FLOPs of a matrix product C = A B: two per element of C and element of the dimension that A and B share."""
    if not row["Type"].startswith("MatMul"):
        return 0
    first, out = (
        [int(size) for size in row[name].strip('"').split(";")[0].split(",")]
        for name in ("Input Shapes", "Output Shapes")
    )
    rows, columns = out
    return 2 * rows * columns * (first[0] * first[1] // rows)
