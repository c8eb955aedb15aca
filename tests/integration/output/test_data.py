"""The report's numbers against sums worked out row by row in Python."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pytest

from paceline.core.i18n import LANGUAGES
from paceline.metrics.rank_performance import RankPerformance
from paceline.metrics.table import Table
from paceline.output.json_columns import PackedF32, PackedI32, PackedU8, PackedU16, pack_numbers, pack_table
from paceline.output.report_data import ReportData, report_data
from paceline.run.run import Run
from paceline.simulate import ClusterSpec, simulate

STEPS = (2, 3)


def rows(run: Run, table: str, columns: str) -> list[tuple[Any, ...]]:
    return run.sql(f"SELECT {columns} FROM {table} WHERE step IN {STEPS}").fetchall()


def test_parts_of_a_step_add_up_to_the_mean_step(run: Run, report: ReportData) -> None:
    shares = report.tables["breakdown"].numbers
    durations = defaultdict(list)
    for rank, duration in rows(run, "steps", "rank, duration"):
        durations[rank].append(duration / 1e6)
    for i, rank in enumerate(shares["rank"]):
        parts = sum(shares[part][i] for part in ("compute", "overlapped", "exposed", "waiting", "tail", "free", "data"))
        assert shares["duration"][i] == pytest.approx(mean(durations[int(rank)]))
        assert parts == pytest.approx(shares["duration"][i])


def test_waiting_is_the_wait_share_of_exposed_communication_beside_the_bubble(run: Run, report: ReportData) -> None:
    shares = report.tables["breakdown"].numbers
    waiting = []
    for step, exposed, bubble in [row[1:] for row in rows(run, "steps", "rank, step, exposed, bubble") if row[0] == 0]:
        calls = [
            row[3:]
            for row in rows(run, "collectives", "rank, step, op, wait, duration")
            if row[:2] == (0, step) and row[2] != "receive"
        ]
        waited, spent = (sum(column) for column in zip(*calls, strict=True))
        waiting.append(bubble + (exposed - bubble) * waited / spent)
    assert shares["waiting"][0] == pytest.approx(mean(waiting) / 1e6)


def test_steps_have_the_extremes_of_all_ranks(run: Run, report: ReportData) -> None:
    table = report.tables["steps"].numbers
    assert list(table["step"]) == list(STEPS)
    every = rows(run, "steps", "step, duration, computing, rank")
    for i, step in enumerate(STEPS):
        durations = [row[1] / 1e6 for row in every if row[0] == step]
        assert table["step_median"][i] == pytest.approx(median(durations))
        assert table["step_max"][i] == pytest.approx(max(durations))
        assert table["slowest"][i] == max((row[2], row[3]) for row in every if row[0] == step)[1] == 5


def test_collectives_are_summed_by_operator_and_kind_of_group(run: Run, report: ReportData) -> None:
    kinds = dict(run.sql('SELECT DISTINCT "group", kind FROM groups').fetchall())
    sums: dict[tuple[str, str], list[tuple[int, int, int, int]]] = defaultdict(list)
    seen = defaultdict(set)
    for rank, step, group, op, duration, wait, size, transit in rows(
        run, "collectives", 'rank, step, "group", op, duration, wait, bytes, transit'
    ):
        sums[op, kinds[group]].append((duration, wait, size, transit))
        seen[op, kinds[group]].add((rank, step))
    table = report.tables["collectives"]
    assert set(sums) == set(zip(table.texts["op"], table.texts["kind"], strict=True))
    for i, key in enumerate(zip(table.texts["op"], table.texts["kind"], strict=True)):
        duration, wait, size, transit = (sum(column) for column in zip(*sums[key], strict=True))  # type: ignore[index]
        assert table.numbers["time"][i] == pytest.approx(duration / len(seen[key]) / 1e6)  # type: ignore[index]
        assert table.numbers["wait"][i] == pytest.approx(wait / len(seen[key]) / 1e6)  # type: ignore[index]
        assert table.numbers["bytes"][i] == size
        assert table.numbers["bandwidth"][i] == pytest.approx(size / transit if transit else np.nan, nan_ok=True)


def test_the_slow_rank_arrives_last_and_holds_the_others_up(run: Run, report: ReportData) -> None:
    meetings = defaultdict(list)
    for rank, group, op, sequence, start in rows(run, "collectives", 'rank, "group", op, sequence, start'):
        if op not in ("send", "receive"):
            meetings[group, op, sequence].append((start, rank))
    last, held = defaultdict(int), defaultdict(int)
    for arrived in meetings.values():
        (before, _), (latest, who) = sorted(arrived)[-2:]
        last[who] += 1
        held[who] += latest - before
    table = report.tables["arrivals"].numbers
    for i, rank in enumerate(table["rank"]):
        assert table["last"][i] == last[int(rank)]
        assert table["blocked_time"][i] == pytest.approx(held[int(rank)] / len(STEPS) / 1e6)
    assert table["rank"][np.argmax(table["blocked_time"])] == 5


def test_links_keep_every_byte_and_nanosecond(run: Run, report: ReportData) -> None:
    expected: dict[tuple[int, int, str], list[int]] = defaultdict(lambda: [0, 0])
    for src, dst, transport, size, duration in rows(run, "transfers", "src, dst, transport, bytes, duration"):
        if src != dst:
            expected[src, dst, transport][0] += size
            expected[src, dst, transport][1] += duration
    table = report.tables["links"]
    columns = (
        table.numbers["src"],
        table.numbers["dst"],
        table.texts["transport"],
        table.numbers["bytes"],
        table.numbers["time"],
    )
    got = {(int(s), int(d), t): [b, round(ms * 1e6)] for s, d, t, b, ms in zip(*columns, strict=True)}
    assert got == expected
    by_host = report.tables["host_links"].numbers
    assert by_host["bytes"].sum() == sum(size for size, _ in expected.values())


def test_bandwidth_of_a_transport_is_bytes_over_time_never_an_average(run: Run, report: ReportData) -> None:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for transport, size, duration in rows(run, "transfers", "transport, bytes, duration"):
        sums[transport][0] += size
        sums[transport][1] += duration
    table = report.tables["transports"]
    for transport, bandwidth in zip(table.texts["transport"], table.numbers["bandwidth"], strict=True):
        assert bandwidth == pytest.approx(sums[str(transport)][0] / sums[str(transport)][1])


def test_packets_fall_into_powers_of_two(run: Run, report: ReportData) -> None:
    expected: dict[tuple[str, int], int] = defaultdict(int)
    for transport, size, count in rows(run, "packets", "transport, packet_bytes, count"):
        expected[transport, size.bit_length() - 1] += count
    table = report.tables["packets"]
    got = zip(table.texts["transport"], table.numbers["power"], table.numbers["count"], strict=True)
    assert {(transport, int(power)): count for transport, power, count in got} == expected


def test_operators_hold_classes_and_single_collectives_of_every_member(report: ReportData) -> None:
    names, times = report.tables["operators"], report.tables["operator_times"].numbers
    for i, number in enumerate(names.numbers["id"]):
        assert (times["id"] == number).sum() == names.numbers["members"][i]
    assert (np.nan_to_num(times["transit"] + times["wait"]) <= times["elapse"] * 1.001 + 1e-6).all()


def test_layout_and_hosts_are_told(report: ReportData) -> None:
    assert report.layout == {"dp": 2, "tp": 2, "pp": 2}
    assert report.hosts == ["node1", "node2"]


def test_warnings_of_the_diagnosis_are_said_once(report: ReportData) -> None:
    assert report.warnings == {each: ["node2_10004/trace_view.json: cut off"] for each in LANGUAGES}


def test_without_a_diagnosis_all_steps_count(run: Run) -> None:
    assert list(report_data(run, {}).tables["steps"].numbers["step"]) == [1, 2, 3]


def test_columns_take_the_smallest_type_that_keeps_whole_numbers_whole() -> None:
    kinds = [type(pack_numbers(np.full(100, value))) for value in (7.0, 300.0, -1.0, 70_000.0, 1e12, 0.5)]
    assert kinds == [PackedU8, PackedU16, PackedI32, PackedI32, PackedF32, PackedF32]


def test_unknown_numbers_and_texts_stay_unknown() -> None:
    columns = pack_table(Table({"a": np.array([1.0, np.nan])}, {"b": ["x", None]}))
    assert columns == {"a": [1, None], "b": ["x", None]}


def test_waits_come_from_the_arrivals_where_the_device_records_none(run: Run) -> None:
    recorded = RankPerformance(run).rank_means.numbers
    run.connection.execute(
        "CREATE OR REPLACE TEMP TABLE collectives AS SELECT * REPLACE (0 AS wait) FROM main.collectives"
    )
    try:
        worked_out = RankPerformance(run).rank_means.numbers
    finally:
        run.connection.execute("DROP TABLE temp.collectives")
    innocent = recorded["rank"] != 5
    assert (worked_out["waiting"][innocent] > 0.5 * recorded["waiting"][innocent]).all()
    assert (worked_out["waiting"] + worked_out["exposed"]) == pytest.approx(recorded["waiting"] + recorded["exposed"])


def test_a_pipeline_of_pairs_is_as_long_as_it_has_stages(tmp_path: Path) -> None:
    spec = ClusterSpec(hosts=1, devices=8, dp=1, tp=2, pp=4, steps=2, layers=4, micro_batches=2)
    simulate(tmp_path / "run", spec, [], "ascend-text")
    with Run(tmp_path / "run", store=tmp_path / "store") as run:
        assert report_data(run, {}).layout == {"tp": 2, "pp": 4}
