"""Merged outputs of msprof-analyze: operators are read, totals are not."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from paceline.formats.cluster_analysis.reader import READER
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

OUTPUT = FIXTURES / "ascend-pytorch" / "cluster_analysis_output"


@needs_fixtures
def test_steps_of_sixteen_ranks_are_what_the_tool_wrote(tmp_path: Path) -> None:
    batch, _ = read_all(READER, OUTPUT, tmp_path)
    with (OUTPUT / "cluster_step_trace_time.csv").open() as file:
        expected = {
            int(row["Index"]): round(float(row["Computing"]) * 1000)
            for row in csv.DictReader(file)
            if row["Type"] == "rank"
        }
    found = dict(rows(batch, "steps", "rank, computing", "step = 2"))
    assert found.keys() == expected.keys()
    assert all(abs(found[rank] - expected[rank]) <= 1 for rank in expected)


@needs_fixtures
def test_collectives_and_links_leave_totals_out(tmp_path: Path) -> None:
    batch, _ = read_all(READER, OUTPUT, tmp_path)
    written = json.loads((OUTPUT / "cluster_communication.json").read_text())
    elapsed = sum(
        info["Communication Time Info"]["Elapse Time(ms)"]
        for steps in written.values()
        for operations in steps.values()
        for name, ranks in operations.items()
        if not name.startswith("Total")
        for info in ranks.values()
    )
    assert abs(rows(batch, "collectives", "sum(duration)")[0][0] / 1e6 - elapsed) < 1e-3
    assert rows(batch, "transfers", "bytes, duration", "src = 0 AND dst = 8 AND transport = 'RDMA'") == [
        (20_971_520, 863_815)
    ]
    assert rows(batch, "collectives", "sequence", "op = 'send' AND rank = 0") == [(0,)]
    assert [row[0] for row in rows(batch, "groups", "DISTINCT rank")] != []
