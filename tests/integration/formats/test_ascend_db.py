"""Ascend SQLite results: real recordings against CANN's own numbers, and small databases with unusual content."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import paceline
from paceline.core.collective_names import group_hash
from paceline.formats.ascend_db.reader import READER
from paceline.formats.ascend_db.steps import read_steps, step_number
from paceline.formats.step_split import length, merge_spans
from paceline.formats.units import bytes_from_mb, scaled_decimal
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

REAL = FIXTURES / "ascend-pytorch" / "db-level1"


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    yield connection
    connection.commit()
    connection.close()


def table(connection: sqlite3.Connection, name: str, columns: str, values: Iterable[tuple[Any, ...]] = ()) -> None:
    connection.execute(f"CREATE TABLE {name} ({columns})")
    marks = ", ".join("?" * len(columns.split(",")))
    connection.executemany(f"INSERT INTO {name} VALUES ({marks})", list(values))


def small(path: Path, start_type: str = "INTEGER") -> None:
    """Two kernels (10–40, 30–60), one all-reduce (50–100) in step 7 (0–120); times in ns."""
    with database(path) as connection:
        strings = [(1, "MatMul"), (2, "AI_CORE"), (3, "hcom_allReduce__612_4_1"), (4, "group_name_0")]
        table(connection, "STRING_IDS", "id INTEGER PRIMARY KEY, value TEXT", strings)
        table(connection, "STEP_TIME", "id, startNs, endNs", [(7, 0, 120)])
        table(connection, "TASK", f"startNs {start_type}, endNs {start_type}, globalTaskId, streamId",
              [(10, 40, 1, 2), (30, 60, 2, 2), (5, 6, 3, 2)])  # fmt: skip
        table(
            connection, "COMPUTE_TASK_INFO", "globalTaskId INTEGER PRIMARY KEY, name, taskType", [(1, 1, 2), (2, 1, 2)]
        )
        table(connection, "COMMUNICATION_OP", "opName, startNs, endNs, groupName, opId", [(3, 50, 100, 4, 1)])


# -- real recordings -------------------------------------------------------------------------------------------------


@needs_fixtures
def test_steps_equal_analysis_db(tmp_path: Path) -> None:
    batch, parts = read_all(READER, REAL, tmp_path)
    assert [part.rank for part in parts] == [0, 1] and not batch.warnings
    split = "rank, step, computing, exposed, overlapped, communication, free, bubble, preparing"
    assert sorted(rows(batch, "steps", split)) == [
        (0, 50, 8903431, 98071947, 4036153, 102108100, 25258144, 0, 18055693),
        (1, 50, 8915634, 94556050, 4034140, 98590190, 25840499, 0, 17512827),
    ]
    assert rows(batch, "steps", 'start, "end", duration', "rank = 0") == [
        (1736410576386409710, 1736410576538298460, 151888750)
    ]


@needs_fixtures
@pytest.mark.parametrize("rank", [0, 1])
def test_steps_without_analysis_db_are_computed_to_the_same_split(rank: int, tmp_path: Path) -> None:
    """Rank 0 has OVERLAP_ANALYSIS, rank 1 only tasks."""
    batch, _ = read_all(READER, REAL, tmp_path)
    split = "computing, exposed, overlapped, communication, free, bubble, preparing"
    recorded = rows(batch, "steps", split, f"rank = {rank}")[0]
    batch.connection.execute("DELETE FROM in_steps")
    output = REAL / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    batch.begin(unit=1, rank=rank, wanted=frozenset({"steps"}))
    read_steps(output / f"ascend_pytorch_profiler_{rank}.db", None, batch)
    batch.commit()
    assert rows(batch, "steps", split)[0] == pytest.approx(recorded, abs=50)


@needs_fixtures
def test_collectives_and_kernels_of_the_real_recording(tmp_path: Path) -> None:
    batch, _ = read_all(READER, REAL, tmp_path)
    group = "17148521525495523210"
    assert group_hash("90.91.105.46%enp189s0f0_60000_0_1736410538306028") == group
    columns = "sequence, duration, transit, wait, sync, idle, bytes"
    assert sorted(rows(batch, "collectives", columns, f"rank = 0 AND op = 'all_reduce' AND \"group\" = '{group}'")) == [
        (0, 88750993, 228565, 3568891, 3517730, 84953537, 28647232),
        (1, 2180324, 1316426, 60, 0, 863837, 117440512),
        (2, 2412628, 2144863, 120562, 0, 147203, 264241152),
        (3, 8764155, 295806, 60, 0, 8468289, 17267200),
    ]
    cores = dict(rows(batch, "kernels", "core, count(*) OVER (PARTITION BY core)", "rank = 0"))
    assert cores == {"AI_CORE": 23, "AI_VECTOR_CORE": 149, "MIX_AIV": 13, "DSA_SQE": 2, "COMMUNICATION": 4}
    assert {step for (step,) in rows(batch, "kernels", "step")} == {50}


@needs_fixtures
def test_sums_from_tasks_equal_cann_own_sums(tmp_path: Path) -> None:
    """Without analysis.db collectives, packets and links come from the tasks, and are the same."""
    analysed, _ = read_all(READER, REAL, tmp_path)
    for rank in (0, 1):
        name = f"ascend_pytorch_profiler_{rank}.db"
        source = REAL / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / name
        (tmp_path / "alone").mkdir(exist_ok=True)
        (tmp_path / "alone" / name).write_bytes(source.read_bytes())
    alone, _ = read_all(READER, tmp_path / "alone", tmp_path)
    columns = "rank, step, sequence, start, duration, transit, wait, sync, bytes"
    for ours, theirs in zip(
        sorted(rows(alone, "collectives", columns)), sorted(rows(analysed, "collectives", columns)), strict=True
    ):
        assert ours == pytest.approx(theirs, abs=2)
    packets = "rank, sequence, transport, packet_bytes, count"
    assert sorted(rows(alone, "packets", packets)) == sorted(rows(analysed, "packets", packets))
    links = "SELECT rank, src, dst, transport, sum(bytes)::BIGINT FROM in_transfers GROUP BY ALL ORDER BY ALL"
    ours, theirs = (batch.connection.execute(links).fetchall() for batch in (alone, analysed))
    assert ours == theirs


@needs_fixtures
def test_links_are_totals_and_never_samples(tmp_path: Path) -> None:
    batch, _ = read_all(READER, REAL, tmp_path)
    links = rows(batch, "transfers", "src, dst, transport, bytes, duration, scope", "rank = 0 AND dst <> src")
    assert len(links) == 7 and {link[5] for link in links} == {"group"}
    assert (0, 1, "HCCS", 61210624, 4111362, "group") in links
    assert sum(link[3] for link in links) == pytest.approx(427_596_096, abs=8)  # the bytes of the four collectives
    assert round(sum(link[3] for link in links) / sum(link[4] for link in links), 3) == 14.967  # GB/s


@needs_fixtures
def test_parts_travel_to_other_processes_and_leave_nothing_behind(tmp_path: Path) -> None:
    before = sorted(path.name for path in REAL.rglob("*"))
    _, parts = read_all(READER, REAL, tmp_path)
    assert [part.root for part in pickle.loads(pickle.dumps(parts))] == ["rank0_ascend_pt", "rank1_ascend_pt"]
    assert sorted(path.name for path in REAL.rglob("*")) == before


# -- drifted schemas -------------------------------------------------------------------------------------------------


def test_a_minimal_schema_gives_steps_kernels_and_collectives(tmp_path: Path) -> None:
    small(tmp_path / "run" / "ascend_pytorch_profiler_3.db")
    batch, parts = read_all(READER, tmp_path / "run", tmp_path)
    assert [part.rank for part in parts] == [3] and not batch.warnings
    split = "step, duration, computing, communication, exposed, overlapped, free, preparing"
    assert rows(batch, "steps", split) == [(7, 120, 50, 50, 40, 10, 0, 10)]
    assert sorted(rows(batch, "kernels", "step, name, core, start, duration, wait")) == [
        (7, "MatMul", "AI_CORE", 10, 30, None),
        (7, "MatMul", "AI_CORE", 30, 30, None),
        (7, "hcom_allReduce__612_4_1", "COMMUNICATION", 50, 50, None),
    ]
    assert rows(batch, "collectives", '"group", op, sequence, start, duration, transit, wait, bytes') == [
        ("5862276093215481612", "all_reduce", 4, 50, 50, None, None, None)
    ]


def test_times_stored_as_text_are_read_as_numbers(tmp_path: Path) -> None:
    small(tmp_path / "run" / "ascend_pytorch_profiler_0.db", start_type="TEXT")
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert sorted(rows(batch, "kernels", "start, duration", "core = 'AI_CORE'")) == [(10, 30), (30, 30)]
    assert rows(batch, "steps", "computing, communication") == [(50, 50)]


def test_garbage_among_the_numbers_loses_only_its_row(tmp_path: Path) -> None:
    path = tmp_path / "run" / "ascend_pytorch_profiler_0.db"
    small(path)
    with database(path) as connection:
        connection.execute("INSERT INTO TASK VALUES ('soon', 50, 1, 2), (70, 'later', 2, 2), (-5, 3, 1, 2)")
        connection.execute("INSERT INTO TASK VALUES (80, x'ff', 1, 2), (9223372036854775807, -1, 1, 2)")
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    found = rows(batch, "kernels", "start, duration", "core = 'AI_CORE'")
    assert sorted(found, key=str) == sorted(
        [(10, 30), (30, 30), (70, None), (80, None), (9223372036854775807, None)], key=str
    )


def test_analysis_db_alone_is_enough(tmp_path: Path) -> None:
    profile = tmp_path / "host_1_20260101000000000_ascend_pt"
    with database(profile / "ASCEND_PROFILER_OUTPUT" / "analysis.db") as connection:
        table(
            connection,
            "StepTraceTime",
            "step TEXT, computing, communication_not_overlapped, free",
            [("step5", 3, 2, 1)],
        )
        table(
            connection,
            "CommAnalyzerTime",
            "hccl_op_name, group_name, start_timestamp, elapse_time, step",
            [("hcom_send__1_2_1", "99", 1736410576431645.2, 0.5, "step5"), ("Total Op Info", "", 0, 9, "step5")],
        )
        table(
            connection,
            "CommAnalyzerBandwidth",
            "hccl_op_name, group_name, transport_type, transit_size, package_size, count, total_duration, step",
            [
                ("hcom_send__1_2_1", "99", "HCCS", 4.0, 2.0, 2, 0.1, "step5"),
                ("hcom_send__1_2_1", "99", "SDMA", 4.0, 0, 0, 0, "step5"),
                ("hcom_send__1_2_1", "99", "RDMA", 1.5, 1.5, 1, 0.3, "step5"),
            ],
        )
    (profile / "profiler_info_12.json").write_text("{}")
    batch, parts = read_all(READER, tmp_path, tmp_path)
    assert [(part.rank, part.recorded, part.job) for part in parts] == [(12, "20260101000000000", "/host_1")]
    assert rows(batch, "steps", "step, start, duration, computing, overlapped") == [(5, None, 6000, 3000, None)]
    assert rows(batch, "collectives", "op, step, start, duration, bytes") == [
        ("send", 5, 1736410576431645200, 500000, 5_500_000)
    ]
    assert sorted(rows(batch, "packets", "transport, packet_bytes, count, duration")) == [
        ("HCCS", 2000000, 2, 100000),
        ("RDMA", 1500000, 1, 300000),
    ]


def test_samples_without_a_total_are_reported_and_left_out(tmp_path: Path) -> None:
    with database(tmp_path / "run" / "analysis.db") as connection:
        table(
            connection,
            "CommAnalyzerMatrix",
            "hccl_op_name, group_name, src_rank TEXT, dst_rank TEXT, transport_type, transit_size, transit_time, step",
            [
                ("allreduce-top1", "9", "0", "1", "HCCS", 1, 1, "3"),
                ("send-total", "9", "0", "1", "RDMA", 2, 1, "3"),
                ("send-bottom2", "9", "0", "1", "RDMA", 2, 1, "3"),
            ],
        )
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert rows(batch, "transfers", "name, src, dst, bytes, duration") == [("send-total", 0, 1, 2000000, 1000000)]
    assert ["samples but no total" in warning.message for warning in batch.warnings] == [True]


def test_groups_stage_and_host_come_from_metadata(tmp_path: Path) -> None:
    path = tmp_path / "run" / "ascend_mindspore_profiler_1.db"
    small(path)
    with database(path) as connection:
        table(connection, "HOST_INFO", "hostUid, hostName", [("77", "node-a")])
        table(connection, "RANK_DEVICE_MAP", "rankId, deviceId", [(1, 5)])
        table(
            connection,
            "META_DATA",
            "name, value",
            [
                (
                    "parallel_group_info",
                    '{"group_name_0": {"group_name": "dp", "group_rank": 1, "global_ranks": [0, 1]}}',
                ),
                ("distributed_args", '{"pipeline_model_parallel_size": 2, "world_size": 2}'),
            ],
        )
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert rows(batch, "ranks", "rank, host, device, stage") == [(1, "node-a", 5, 1)]
    assert rows(batch, "groups", '"group", kind, "index", rank', "rank = 1") == [("5862276093215481612", "dp", 1, 1)]


def test_monitor_files_of_one_process_are_cycles_of_one_job(tmp_path: Path) -> None:
    for time in ("20260101000000000", "20260101000100000"):
        small(tmp_path / "run" / f"msmonitor_4711_{time}_2.db")
    _, parts = read_all(READER, tmp_path / "run", tmp_path)
    assert [(part.rank, part.recorded) for part in parts] == [(2, "20260101000000000"), (2, "20260101000100000")]
    assert len({part.job for part in parts}) == 1 and parts[0].job


def test_msprof_databases_without_ranks_are_numbered_by_host_and_device(tmp_path: Path) -> None:
    for name, host, device in (("b", "2", 0), ("a", "1", 1), ("c", "1", 0)):
        path = tmp_path / "run" / name / "msprof_20260101000000.db"
        small(path)
        with database(path) as connection:
            table(connection, "HOST_INFO", "hostUid, hostName", [(host, "n")])
            table(connection, "NPU_INFO", "id, name", [(device, "Ascend")])
    _, parts = read_all(READER, tmp_path / "run", tmp_path)
    assert {part.root: part.rank for part in parts} == {"c": 0, "a": 1, "b": 2}
    assert all("its rank is not recorded" in str(part.notes[0]) for part in parts)


def test_raw_database_is_left_out_if_the_finished_one_exists(tmp_path: Path) -> None:
    profile = tmp_path / "run" / "host_1_20260101000000000_ascend_pt"
    small(profile / "ASCEND_PROFILER_OUTPUT" / "ascend_pytorch_profiler_0.db")
    small(profile / "PROF_000001_20260101000000001_ABC" / "msprof_20260101000000.db")
    _, parts = read_all(READER, tmp_path / "run", tmp_path)
    assert [part.root for part in parts] == ["host_1_20260101000000000_ascend_pt"]


# -- hostile and damaged files ---------------------------------------------------------------------------------------


def test_a_view_in_place_of_a_table_is_not_read_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "run" / "ascend_pytorch_profiler_0.db"
    small(path)
    with database(path) as connection:
        connection.execute("DROP TABLE COMMUNICATION_OP")
        connection.execute(
            "CREATE VIEW COMMUNICATION_OP AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
            " SELECT i AS opName, i AS startNs, i AS endNs FROM n"
        )
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert len(rows(batch, "kernels")) == 2
    assert any("COMMUNICATION_OP is a view or virtual table" in warning.message for warning in batch.warnings)


def test_a_lost_column_is_reported_and_other_sections_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run" / "ascend_pytorch_profiler_0.db"
    small(path)
    with database(path) as connection:
        connection.execute("ALTER TABLE TASK RENAME COLUMN startNs TO begin")
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert any("TASK has no column startNs" in warning.message for warning in batch.warnings)
    assert len(rows(batch, "collectives")) == 1


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\x00", b"encrypted!" * 500, b"SQLite format 3\x00" + b"\xff" * 5000]
)
def test_a_file_that_is_no_database_becomes_a_note_with_its_name(content: bytes, tmp_path: Path) -> None:
    small(tmp_path / "run" / "a" / "ascend_pytorch_profiler_0.db")
    bad = tmp_path / "run" / "b" / "ascend_pytorch_profiler_1.db"
    bad.parent.mkdir()
    bad.write_bytes(content)
    batch, parts = read_all(READER, tmp_path / "run", tmp_path)
    notes = [note for part in parts for note in map(str, part.notes)]
    assert len(notes) == 1 and "b/ascend_pytorch_profiler_1.db" in notes[0]
    assert len(rows(batch, "kernels")) == 3


def test_a_truncated_database_gives_warnings_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "run" / "ascend_pytorch_profiler_0.db"
    small(path)
    with database(path) as connection:
        connection.executemany("INSERT INTO TASK VALUES (?, ?, 1, 2)", [(i, i + 1) for i in range(20000)])
    path.write_bytes(path.read_bytes()[:40000])
    batch, parts = read_all(READER, tmp_path / "run", tmp_path)
    told = [str(warning) for warning in batch.warnings] + [note for part in parts for note in map(str, part.notes)]
    assert told and all("ascend_pytorch_profiler_0.db" in text for text in told)


@pytest.mark.parametrize("name", ["50% done?", "a#b", "two words", "%41"])
def test_odd_directory_names_are_escaped(name: str, tmp_path: Path) -> None:
    small(tmp_path / name / "ascend_pytorch_profiler_0.db")
    batch, _ = read_all(READER, tmp_path / name, tmp_path)
    assert len(rows(batch, "kernels")) == 3
    assert [path.name for path in (tmp_path / name).iterdir()] == ["ascend_pytorch_profiler_0.db"]


def test_text_that_is_not_utf8_is_kept_readable(tmp_path: Path) -> None:
    path = tmp_path / "run" / "ascend_pytorch_profiler_0.db"
    small(path)
    with database(path) as connection:
        connection.execute("UPDATE STRING_IDS SET value = CAST(x'4d61ff' AS TEXT) WHERE id = 1")
    batch, _ = read_all(READER, tmp_path / "run", tmp_path)
    assert {name for (name,) in rows(batch, "kernels", "name", "core = 'AI_CORE'")} == {"Ma\ufffd"}


def test_an_unfinished_log_beside_a_database_is_reported(tmp_path: Path) -> None:
    small(tmp_path / "run" / "ascend_pytorch_profiler_0.db")
    (tmp_path / "run" / "ascend_pytorch_profiler_0.db-wal").write_bytes(b"x" * 100)
    _, parts = read_all(READER, tmp_path / "run", tmp_path)
    assert "was not closed" in str(parts[0].notes[0])


# -- text and numbers ------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**15), st.integers(0, 999))
def test_microseconds_are_exact_to_the_nanosecond(whole: int, fraction: int) -> None:
    assert scaled_decimal(f"{whole}.{fraction:03d}\t", 1000) == whole * 1000 + fraction


@given(st.one_of(st.text(), st.floats(), st.integers(), st.none(), st.binary()))
def test_numbers_and_steps_of_anything_are_a_number_or_none(value: object) -> None:
    assert isinstance(scaled_decimal(value, 1000), int | None)
    assert isinstance(bytes_from_mb(value), int | None)
    assert isinstance(step_number(value), int | None)


@given(st.integers(0, 10**17), st.sampled_from(["step{}", "{}", " {} ", "Step{}"]))
def test_steps_are_found_in_every_spelling(step: int, spelling: str) -> None:
    assert step_number(spelling.format(step)) == step


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 30)), max_size=40))
def test_union_covers_each_moment_once(pairs: list[tuple[int, int]]) -> None:
    spans = np.array([[start for start, _ in pairs], [start + size for start, size in pairs]], dtype=np.int64)
    moments = {moment for start, size in pairs for moment in range(start, start + size)}
    assert length(merge_spans(spans.reshape(2, -1))) == len(moments)


def test_a_renamed_database_keeps_the_rank_that_it_holds(tmp_path: Path) -> None:
    """…and the contradiction is said; before, findings named a rank that does not exist."""
    for rank, name in ((0, "0"), (1, "7")):
        with database(tmp_path / "in" / f"rank{rank}_ascend_pt" / f"ascend_pytorch_profiler_{name}.db") as connection:
            table(connection, "STRING_IDS", "id, value", [(1, "x")])
            table(connection, "TASK", "startNs, endNs", [(1, 2)])
            table(connection, "RANK_DEVICE_MAP", "rankId, deviceId", [(rank, rank)])
    _, found = read_all(READER, tmp_path / "in", tmp_path)
    conflict = "is of rank 7 by its name, of rank 1 by its table RANK_DEVICE_MAP"
    assert [(each.rank, tuple(map(str, each.conflicts))) for each in found] == [(0, ()), (1, (conflict,))]


def test_a_rank_that_lost_its_metadata_keeps_the_stage_of_all_others(tmp_path: Path) -> None:
    """…and its peers; before, nothing stood out where it was half as fast."""
    for rank in range(3):
        with database(tmp_path / "in" / f"h{rank}_ascend_pt" / f"ascend_pytorch_profiler_{rank}.db") as connection:
            table(connection, "STRING_IDS", "id, value", [(1, "x")])
            table(connection, "TASK", "startNs, endNs", [(1, 2)])
            if rank != 2:
                sizes = '{"pipeline_model_parallel_size": 1, "world_size": 3}'
                table(connection, "META_DATA", "name, value", [("distributed_args", sizes)])
    with paceline.open(tmp_path / "in", store=tmp_path / "store") as run:
        assert run.sql("SELECT rank, stage FROM ranks").fetchall() == [(0, 0), (1, 0), (2, 0)]
        assert ("missing", (2,)) in [(gap.kind, gap.ranks) for gap in run.gaps]
