"""MindInsight's trees: finding ranks in every layout, and the numbers of a real four-rank pipeline job."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline.diagnosis.hardware import default_hardware
from paceline.formats.mindinsight.groups import PipelineShape, RecordedLinkEnds, communicators_of_ranks
from paceline.formats.mindinsight.reader import READER
from paceline.run.tables.batch import BatchSink
from paceline.simulate import ClusterSpec, simulate
from paceline.storage.file_tree import walk
from paceline.web.paging import read_page
from paceline.web.snapshot import make_snapshot
from paceline.web.tables import TABLES
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

PROPOSE = FIXTURES / "mindinsight-tests" / "tests" / "utils" / "resource" / "cluster_propose"
DERIVED = FIXTURES / "derived_r1.3_layout"
HEADER = "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail"


def _golden(version: str, name: str) -> Any:
    return json.loads((FIXTURES / f"golden_api_mindinsight_{version}" / name).read_text())


def write_steps(directory: Path, key: int, *lines: str, header: str = HEADER) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"step_trace_raw_{key}_detail_time.csv"
    path.write_text("\n".join((header, *(lines or ("1,100,300,200,120,250,20,130,50",)))) + "\n")
    return path


def _places(root: Path, tmp_path: Path) -> list[tuple[Any, ...]]:
    batch, _ = read_all(READER, root, tmp_path)
    return sorted(rows(batch, "ranks", "rank, host, device"))


def _query(batch: BatchSink, sql: str) -> list[tuple[Any, ...]]:
    batch.flush()
    return batch.connection.execute(sql).fetchall()


# -- the real job, ranks in file names --------------------------------------------------------------------------------


@needs_fixtures
def test_real_job_has_two_stages_and_ragged_steps(tmp_path: Path) -> None:
    batch, _ = read_all(READER, PROPOSE, tmp_path)
    assert rows(batch, "ranks", "rank, stage") == [(0, 0), (1, 0), (2, 1), (3, 1)]
    steps = _query(
        batch,
        "SELECT rank, count(DISTINCT step) FROM in_collectives WHERE transit IS NOT NULL GROUP BY rank ORDER BY rank",
    )
    assert steps == [(0, 6), (1, 6), (2, 2), (3, 2)]
    assert rows(batch, "steps", "rank, count(*)", "true GROUP BY rank ORDER BY rank") == [
        (rank, 5) for rank in range(4)
    ]


@needs_fixtures
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        # The published 20.93 and 19.38 add up two communicators: the stage's all-reduce and the pair's receive.
        ("rank = 0", 20.93),
        ("rank = 3", 19.38),
        ("rank = 1 AND \"group\" = 'stage0'", 5.06),
        ("rank = 2 AND \"group\" = 'stage1'", 17.37),
        ("rank = 0 AND \"group\" = 'stage0'", 5.09),
        ("rank = 3 AND \"group\" = 'stage1'", 17.37),
        ("rank = 0 AND \"group\" = 'p2p0-2'", 22.67),
        ("rank = 3 AND \"group\" = 'p2p1-3'", 22.65),
    ],
)
def test_real_job_bandwidth_is_bytes_over_time(tmp_path: Path, where: str, expected: float) -> None:
    batch, _ = read_all(READER, PROPOSE, tmp_path)
    [(bandwidth,)] = rows(batch, "transfers", "sum(bytes) / sum(duration)", f"{where} AND transport <> 'LOCAL'")
    assert bandwidth == pytest.approx(expected, abs=5e-3)


@needs_fixtures
def test_real_job_links_are_numbered_inside_their_stage(tmp_path: Path) -> None:
    batch, _ = read_all(READER, PROPOSE, tmp_path)
    assert rows(batch, "groups", '"group", index, rank', "kind = 'other'") == [
        ("stage0", 0, 0),
        ("stage0", 1, 1),
        ("stage1", 0, 2),
        ("stage1", 1, 3),
    ]
    assert rows(batch, "transfers", "DISTINCT rank, src, dst", "scope = 'global' ORDER BY rank") == [
        (0, 2, 0), (1, 3, 1), (2, 0, 2), (3, 1, 3),
    ]  # fmt: skip
    assert rows(batch, "collectives", "DISTINCT rank, peer", "op = 'receive' ORDER BY rank") == [
        (0, 2),
        (1, 3),
        (2, 0),
        (3, 1),
    ]


@needs_fixtures
def test_real_job_collectives_join_across_the_ranks_of_a_stage(tmp_path: Path) -> None:
    """Streams differ between ranks 0 and 1, and still every all-reduce finds its other half, ending together."""
    batch, _ = read_all(READER, PROPOSE, tmp_path)
    pairs = _query(
        batch,
        """
        SELECT count(*), max(spread) FILTER (names = 1), max(names) FROM (
            SELECT count(DISTINCT name) AS names, max(start + duration) - min(start + duration) AS spread
            FROM in_collectives WHERE op = 'all_reduce' AND start IS NOT NULL
            GROUP BY "group", op, sequence HAVING count(*) = 2 AND count(DISTINCT rank) = 2)
    """,
    )
    assert pairs[0][0] == 5 * (89 + 341)
    assert pairs[0][2] == 1
    assert pairs[0][1] < 1_000_000  # ns


@needs_fixtures
def test_real_job_reports_where_the_parser_stopped(tmp_path: Path) -> None:
    batch, _ = read_all(READER, PROPOSE, tmp_path)
    assert [(warning.rank, warning.message) for warning in batch.warnings] == [
        (0, "transfers are recorded for 500 collectives (the parser's limit)"),
        (1, "transfers are recorded for 500 collectives (the parser's limit)"),
        (2, "transfers are recorded for only 500 of 1,745 collectives (the parser's limit); incomplete: steps 2–5"),
        (3, "transfers are recorded for only 500 of 1,745 collectives (the parser's limit); incomplete: steps 2–5"),
    ]


@needs_fixtures
def test_real_job_agrees_with_what_mindinsight_2_3_shows(tmp_path: Path) -> None:
    batch, _ = read_all(READER, PROPOSE, tmp_path)
    for shown in _golden("2.3.1", "cluster_step_3_sorted.json")["info"]:
        interval, computation, alone, _, receive, _ = shown["step_bottleneck_info"]
        [ours] = rows(
            batch, "steps", "data_wait, computing, exposed, bubble", f"rank = {shown['rank_id']} AND step = 3"
        )
        assert [value / 1e6 for value in ours] == pytest.approx([interval, computation, alone, receive], abs=1e-4)
    for shown in _golden("2.3.1", "cluster_flops.json"):
        [ours] = rows(batch, "flops", "flops / 1e6, flops_per_s / 1e9, utilisation * 100", f"rank = {shown['rank_id']}")
        assert ours == pytest.approx((shown["FLOPs"], shown["FLOPS"], shown["FLOPS_Utilization"]))


@needs_fixtures
def test_real_job_agrees_with_mindinsight_on_every_operator_of_a_step(tmp_path: Path) -> None:
    batch, _ = read_all(READER, PROPOSE, tmp_path)
    shown = _golden("2.3.1", "communication_data.json")["device0"][1]
    ours = dict(rows(batch, "collectives", "name, transit / 1e6", f"rank = 0 AND step = {shown['step_num']}"))
    for name, cost in shown["communication_operator_cost"].items():
        assert ours[name.split("_", 3)[3]] == pytest.approx(cost[1], abs=1e-6)


# -- the same job, devices in file names ------------------------------------------------------------------------------


@needs_fixtures
def test_old_tree_gives_the_same_numbers_with_hosts_and_devices(tmp_path: Path) -> None:
    batch, parts = read_all(READER, DERIVED, tmp_path)
    assert [part.root for part in parts] == [f"run/cluster_profiler/{host}/profiler" for host in (1, 1, 2, 2)]
    for shown in _golden("1.3.0", "cluster_step_3.json")["step_trace"]:
        rank = int(shown["rank_id"])
        assert rows(batch, "ranks", "host, device", f"rank = {rank}") == [(shown["host_ip"], int(shown["device_id"]))]
        [ours] = rows(batch, "steps", "data_wait, forward_backward, tail", f"rank = {rank} AND step = 3")
        assert [value / 1e6 for value in ours] == pytest.approx(shown["step_trace_info"])
    for shown in _golden("1.3.0", "cluster_peak_memory_SYNTHETIC.json"):
        [ours] = rows(batch, "ranks_memory", "peak, capacity, basis", f"rank = {shown['rank_id']}")
        assert ours == (round(shown["peak_mem"] * 2**30), round(shown["capacity"] * 2**30), "theoretical")


@needs_fixtures
def test_communication_and_waiting_add_up_to_what_mindinsight_1_3_shows(tmp_path: Path) -> None:
    """Its mean is over all recorded steps: the warm-up step and steps that the parser's limit cut are in it."""
    batch, _ = read_all(READER, DERIVED, tmp_path)
    for shown in _golden("1.3.0", "cluster_comm_avg.json")["communication"]:
        sums = "sum(transit) / 1e6, sum(wait) / 1e6"
        where = f"rank = {shown['rank_id']} GROUP BY step HAVING count(transit) > 0"
        steps = rows(batch, "collectives", sums, where)
        mean = [sum(values) / len(steps) for values in zip(*steps, strict=True)]
        assert mean == pytest.approx(shown["communication_info"][:2], abs=1e-3)


@needs_fixtures
def test_the_default_view_shows_what_mindinsight_1_3_shows_where_it_can_be_true(tmp_path: Path) -> None:
    """Decision 173: ranks 2 and 3 know no whole step but the first; the others know four that count."""
    with paceline.open(DERIVED, store=tmp_path) as run:
        make_snapshot(run, tmp_path, default_hardware())
        cursor = run.connection.cursor()
        cursor.execute("USE web")
        communication, phases = (
            {
                row[0]: dict(zip(table.names, row, strict=True))
                for row in read_page(cursor, table, {}, sort="rank", offset=0, limit=9).rows
            }
            for table in (TABLES["communication"], TABLES["step-trace"])
        )
    for shown in _golden("1.3.0", "cluster_comm_avg.json")["communication"][2:]:
        ours = communication[int(shown["rank_id"])]
        assert (ours["transit"], ours["waiting"]) == pytest.approx(shown["communication_info"][:2], abs=1e-3)
        assert ours["split_steps"] == "1, 2" and ours["time"] > ours["waiting"] + ours["transit"]
    for rank, waiting in ((0, 267.619), (1, 267.455)):  # each of steps 2 to 5; MindInsight's mean counts a sixth of one
        assert communication[rank]["waiting"] == pytest.approx(waiting, abs=1e-3)
        assert communication[rank]["split_steps"] is None
    for shown in _golden("1.3.0", "cluster_step_avg.json")["step_trace"]:
        assert phases[int(shown["rank_id"])]["forward_backward"] == pytest.approx(
            shown["step_trace_info"][1], rel=0.005
        )


@needs_fixtures
def test_old_tree_leaves_links_as_recorded_without_stages(tmp_path: Path) -> None:
    """src-dst as the guide prints them; ranks 1 and 2 receive over "1-1" and "0-0", which are no self links."""
    batch, _ = read_all(READER, DERIVED, tmp_path)
    found = _query(
        batch,
        """
        SELECT rank, src, dst, round(sum(bytes) / sum(duration), 2) FROM in_transfers
        WHERE transport <> 'LOCAL' AND scope = 'group' AND "group" IS NULL GROUP BY ALL ORDER BY ALL
    """,
    )
    assert found == [
        (0, 1, 0, 20.93),
        (1, 0, 1, 5.06),
        (1, 1, 1, 22.56),
        (2, 0, 0, 22.78),
        (2, 1, 0, 17.37),
        (3, 0, 1, 19.38),
    ]


@needs_fixtures
def test_old_tree_without_rank_table_numbers_ranks_by_host_and_device(tmp_path: Path) -> None:
    shutil.copytree(DERIVED / "run" / "cluster_profiler", tmp_path / "cluster_profiler")
    batch, parts = read_all(READER, tmp_path, tmp_path)
    assert sorted(rows(batch, "ranks", "rank, host, device")) == [(0, "1", 0), (1, "1", 1), (2, "2", 0), (3, "2", 1)]
    assert [note for part in parts for note in map(str, part.notes)] == [
        "cluster_profiler/1/profiler: no rank table; ranks are assumed by host and device"
    ]


def test_device_missing_in_the_table_is_numbered_behind_it(tmp_path: Path) -> None:
    table = {"server_list": [{"server_id": "10.0.0.1", "device": [{"device_id": "0", "rank_id": "7"}]}]}
    (tmp_path / "hccl.json").write_text(json.dumps(table))
    for host, device in (("10.0.0.1", 0), ("10.0.0.1", 1), ("10.0.0.10", 0), ("10.0.0.9", 0)):
        write_steps(tmp_path / "cluster_profiler" / host / "profiler", device)
    assert _places(tmp_path, tmp_path) == [
        (7, "10.0.0.1", 0),
        (8, "10.0.0.1", 1),
        (9, "10.0.0.9", 0),
        (10, "10.0.0.10", 0),
    ]


def test_hosts_named_by_the_mapping_need_no_cluster_profiler_directory(tmp_path: Path) -> None:
    devices = [{"device_id": "0", "rank_id": "0"}]
    servers = [
        {"server_id": "10.0.0.2", "device": devices},
        {"server_id": "10.0.0.1", "device": [{**devices[0], "rank_id": "1"}]},
    ]
    (tmp_path / "table.json").write_text(json.dumps({"server_list": servers}))
    (tmp_path / "host_ips_mapping.txt").write_text("10.0.0.1 one\n10.0.0.2 two\n")
    for host in ("one", "two"):
        write_steps(tmp_path / host / "profiler", 0)
    assert _places(tmp_path, tmp_path) == [(0, "two", 0), (1, "one", 0)]


# -- layouts by rank --------------------------------------------------------------------------------------------------


def test_ranks_are_found_flat_and_one_directory_each(tmp_path: Path) -> None:
    for rank in range(2):
        write_steps(tmp_path / "flat" / "profiler", rank)
        write_steps(tmp_path / "obs" / str(rank + 2) / "profiler", rank + 2)
    parts = list(READER.find(walk(tmp_path)))
    assert [(part.rank, part.root) for part in parts] == [
        (0, "flat/profiler"),
        (1, "flat/profiler"),
        (2, "obs/2/profiler"),
        (3, "obs/3/profiler"),
    ]


def test_rank_table_above_a_flat_tree_gives_hosts(tmp_path: Path) -> None:
    table = {"server_list": [{"server_id": "10.0.0.1", "device": [{"device_id": "5", "rank_id": "0"}]}]}
    (tmp_path / "rank_table.json").write_text(json.dumps(table))
    write_steps(tmp_path / "a" / "profiler", 0)
    assert _places(tmp_path, tmp_path) == [(0, "10.0.0.1", 5)]


@pytest.mark.parametrize(
    ("directory", "beside", "rank"),
    [("hccl_info_3", None, 3), ("7/profiler/hccl_info", None, 7), ("x/hccl_info", 5, 5), ("hccl_info", None, 6)],
)
def test_traces_find_their_rank(tmp_path: Path, directory: str, beside: int | None, rank: int) -> None:
    """By name, by the directory above, by the only rank next to them, or by the device in the trace."""
    trace = tmp_path / directory / "allReduce_1_1" / "iter1.trace"
    trace.parent.mkdir(parents=True)
    trace.write_text('{"device id": "6", "traceEvents": []}')
    if beside is not None:
        write_steps(trace.parents[2], beside)
    assert [part.rank for part in READER.find(walk(tmp_path))] == [rank]


def test_files_of_other_profilers_are_left_to_their_readers(tmp_path: Path) -> None:
    for name in (
        "FRAMEWORK/pipeline_profiling_0.json",
        "ASCEND_PROFILER_OUTPUT/minddata_pipeline_raw_0.csv",
        "profiler/profiler_info_0.json",
        "PROF_1/device_0/timeline/hccl_0_2_1.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert list(READER.find(walk(tmp_path))) == []


def test_stages_come_from_profiler_info_if_no_file_name_has_them(tmp_path: Path) -> None:
    for rank in range(4):
        write_steps(tmp_path, rank)
        info = {"rank_id": str(rank), "rank_size": 4, "stage_num": 2, "profiling_stop_time": "2023-05-16 17:17:17"}
        (tmp_path / f"profiler_info_{rank}.json").write_text(json.dumps(info))
    batch, parts = read_all(READER, tmp_path, tmp_path)
    assert rows(batch, "ranks", "rank, stage") == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert {part.recorded for part in parts} == {"20230516171717"}


@needs_fixtures
def test_parts_can_go_to_another_process() -> None:
    parts = list(READER.find(walk(FIXTURES / "mindinsight-tests")))
    assert [part.root for part in pickle.loads(pickle.dumps(parts))] == [part.root for part in parts]


@needs_fixtures
def test_every_fixture_is_read_without_a_failing_section(tmp_path: Path) -> None:
    for root in ("mindinsight-tests", "mindspore-tests"):
        batch, _ = read_all(READER, FIXTURES / root, tmp_path)
        assert [str(warning) for warning in batch.warnings if "skipped" in warning.message] == []


# -- groups -----------------------------------------------------------------------------------------------------------


def _ends(**own: int) -> dict[int, RecordedLinkEnds | None]:
    return {int(rank[1:]): RecordedLinkEnds(frozenset({number}), 3) for rank, number in own.items()}


def test_links_are_those_of_a_stage_only_if_every_rank_agrees() -> None:
    four = PipelineShape(stages=1, ranks=4)
    assert communicators_of_ranks(four, _ends(r0=0, r1=1, r2=2, r3=3))[2].group == "stage0"
    assert communicators_of_ranks(four, _ends(r0=0, r1=1, r2=0, r3=1))[0].group is None


def test_links_of_a_smaller_group_are_not_taken_for_the_stage() -> None:
    """Ranks 0 to 3 of a stage of 8 look alike in a group of 4: no number above 3 is ever seen."""
    assert communicators_of_ranks(PipelineShape(stages=1, ranks=8), _ends(r0=0, r1=1, r2=2, r3=3))[0].group is None


def test_the_other_side_of_a_receive_is_known_for_two_stages_only() -> None:
    ends = {rank: RecordedLinkEnds(frozenset({rank % 2}), 1) for rank in range(4)}
    assert communicators_of_ranks(PipelineShape(2, 4), ends)[3].peer == 1
    more = {rank: RecordedLinkEnds(frozenset({rank % 2}), 1) for rank in range(6)}
    assert communicators_of_ranks(PipelineShape(3, 6), more)[3].peer is None


# -- the same job in every layout -------------------------------------------------------------------------------------


def _simulated(tmp_path: Path, layout: str) -> BatchSink:
    spec = ClusterSpec(hosts=2, devices=2, dp=1, tp=2, pp=2, steps=2, layers=2, micro_batches=2, detail_ranks=1)
    simulate(tmp_path / layout, spec, [], layout)
    return read_all(READER, tmp_path / layout, tmp_path)[0]


@pytest.mark.parametrize("layout", ["mindinsight-r13", "mindinsight-r21", "msadvisor"])
def test_one_job_gives_the_same_collectives_in_every_layout(tmp_path: Path, layout: str) -> None:
    """ms, µs and task traces; files by rank, by device, one directory per rank."""
    usual, other = _simulated(tmp_path, "mindinsight"), _simulated(tmp_path, layout)
    columns = "rank, step, op, name, sequence, start, duration, transit, wait, bytes"
    expected = sorted(rows(usual, "collectives", columns))
    assert len(expected) > 50
    assert sorted(rows(other, "collectives", columns)) == expected
    columns = "rank, step, name, src, dst, scope, transport, bytes, duration"
    assert sorted(rows(other, "transfers", columns)) == sorted(rows(usual, "transfers", columns))
    assert [str(warning) for warning in other.warnings] == []


def test_a_simulated_job_fills_every_table_of_the_format(tmp_path: Path) -> None:
    batch = _simulated(tmp_path, "mindinsight")
    for table in (
        "ranks",
        "steps",
        "collectives",
        "transfers",
        "ranks_memory",
        "flops",
        "operators",
        "kernels",
        "events",
        "input_pipeline",
        "input_steps",
    ):
        assert rows(batch, table), table
    [(tied,)] = rows(
        batch,
        "events",
        "count(*)",
        'start BETWEEN (SELECT min(start) FROM in_steps) AND (SELECT max("end") FROM in_steps)',
    )
    assert tied > 0.9 * len(rows(batch, "events"))
