"""The OSDI'25 straggler trace: measured steps as published, and every message with its other end."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import duckdb
import pytest

from paceline.formats.osdi.reader import READER
from paceline.storage.file_tree import walk
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

STUDY = FIXTURES / "osdi25-straggler"
COLUMNS = "dp_rank, stage, step, optype, start_ts, duration, seq_id"


@needs_fixtures
def test_measured_steps_are_the_published_ones(tmp_path: Path) -> None:
    batch, parts = read_all(READER, STUDY, tmp_path)
    assert [part.root for part in parts] == ["trace-ST.parquet"]
    assert not batch.warnings
    published = json.loads((STUDY / "result-ST.json").read_text())
    measured = {
        step: length / 1e9
        for step, length in rows(batch, "steps", 'step, max("end") - min(start)', "true GROUP BY step")
    }
    assert measured == pytest.approx({int(step): time for step, time in published["step_t_base"].items()}, abs=1e-6)
    assert fmean(measured.values()) == pytest.approx(2.21445, abs=1e-5)
    # The study's T of 2.1727 s is its replay without launch delays, which it puts at 1.92 % of the measured time.
    assert fmean(measured.values()) / published["launch_slowdown"] == pytest.approx(2.1727, abs=1e-4)


@needs_fixtures
def test_ranks_have_stages_and_groups_cross_them(tmp_path: Path) -> None:
    batch, _ = read_all(READER, STUDY, tmp_path)
    assert sorted(rows(batch, "ranks", "rank, stage")) == [(rank, rank // 2) for rank in range(8)]
    members: dict[str, list[int]] = {}
    for group, _index, rank in sorted(rows(batch, "groups", '"group", index, rank')):
        members.setdefault(group, []).append(rank)
    assert members["dp-stage3"] == [6, 7]
    assert members["pp-dp1"] == [1, 3, 5, 7]
    assert members["embedding-dp0"] == [0, 6]
    assert members["world"] == list(range(8))
    kinds = dict(rows(batch, "groups", 'DISTINCT "group", kind', "\"group\" IN ('dp-stage0', 'pp-dp0', 'world')"))
    assert kinds == {"dp-stage0": "dp", "pp-dp0": "pp", "world": "world"}


@needs_fixtures
def test_every_send_meets_its_receive_at_the_peer(tmp_path: Path) -> None:
    batch, _ = read_all(READER, STUDY, tmp_path)
    columns = '"group", sequence, rank, peer, step, start, start + duration'
    sends = {row[:2]: row[2:] for row in rows(batch, "collectives", columns, "op = 'send'")}
    receives = {row[:2]: row[2:] for row in rows(batch, "collectives", columns, "op = 'receive'")}
    assert len(sends) == len(receives) == 2 * 768
    assert set(sends) == set(receives)
    for key, (rank, peer, step, start, _) in sends.items():
        other, back, other_step, _, arrived = receives[key]
        assert (other, back, other_step) == (peer, rank, step)
        assert arrived > start


@needs_fixtures
def test_every_collective_has_all_its_members_and_they_end_together(tmp_path: Path) -> None:
    batch, _ = read_all(READER, STUDY, tmp_path)
    sizes = dict(rows(batch, "groups", '"group", count(*)', 'true GROUP BY "group"'))
    found = rows(
        batch,
        "collectives",
        'name, "group", count(*), count(DISTINCT step), max(start + duration) - min(start + duration)',
        'peer IS NULL GROUP BY "group", op, sequence, name',
    )
    assert len(found) == 32 * (2 * 4 + 2 + 8 + 1)
    assert {(count, steps) for _, group, count, steps, _ in found if sizes[group] != count or steps != 1} == set()
    spread = [spread for name, *_, spread in found if name == "grads-reduce-scatter"]
    assert sorted(spread)[len(spread) // 2] < 1e6


@needs_fixtures
def test_compute_adds_up_and_the_last_stage_is_the_long_one(tmp_path: Path) -> None:
    batch, _ = read_all(READER, STUDY, tmp_path)
    trace = str(STUDY / "trace-ST.parquet")
    [(expected,)] = duckdb.execute(
        "SELECT sum(duration::DOUBLE) FROM read_parquet(?) WHERE optype IN ('forward-compute', 'backward-compute', "
        "'optimizer')",
        [trace],
    ).fetchall()
    assert rows(batch, "kernels", "sum(duration)")[0][0] / 1e9 == pytest.approx(expected, rel=1e-9)
    by_stage = dict(rows(batch, "steps", "rank // 2, avg(computing)", "true GROUP BY ALL"))
    assert by_stage[3] > 1.15 * max(by_stage[0], by_stage[1], by_stage[2])
    (odd,) = rows(batch, "steps", "count(*)", "computing + exposed + free <> duration")
    assert odd == (0,)


def write(path: Path, values: str, columns: str = COLUMNS) -> None:
    duckdb.execute(f"COPY (SELECT * FROM (VALUES {values}) AS t({columns})) TO '{path}' (FORMAT parquet)")


def test_sizes_come_from_the_data_without_a_meta_file(tmp_path: Path) -> None:
    write(
        tmp_path / "trace-small.parquet",
        "(0, 0, 3, 'forward-compute', 0.0, 1.0, 0), (0, 0, 3, 'forward-send', 1.0, 0.5, 0),"
        "(0, 1, 3, 'forward-recv', 0.5, 1.0, 0), (0, 1, 3, 'surprise', 1.5, 1.0, 0),"
        "(0, 0, 4, 'forward-compute', 0.25, 1.0, 0)",
    )
    batch, _ = read_all(READER, tmp_path, tmp_path)
    assert sorted(rows(batch, "collectives", "rank, op, peer, sequence, start")) == [
        (0, "send", 1, 0, 1_000_000_000),
        (1, "receive", 0, 0, 500_000_000),
    ]
    # Step 4 begins when step 3 has ended everywhere, after 2.5 s.
    assert rows(batch, "kernels", "start", "step = 4") == [(2_750_000_000,)]
    assert [warning.message.rpartition(": ")[2] for warning in batch.warnings] == ["surprise"]


def test_missing_workers_are_reported(tmp_path: Path) -> None:
    write(tmp_path / "trace-x.parquet", "(0, 0, 1, 'forward-compute', 0.0, 1.0, 0)")
    (tmp_path / "meta-x.yaml").write_text("trial_name: x\ndp_size: 2\npp_size: 4\ntp_size: 8\nbad: [1\n")
    batch, (part,) = read_all(READER, tmp_path, tmp_path)
    assert [warning.message for warning in batch.warnings] == ["has 1 of 8 workers"]
    assert tuple(map(str, part.notes)) == ("every worker represents 8 tensor-parallel ranks; ranks here are workers",)


def test_other_parquet_and_what_only_looks_like_it_is_ignored(tmp_path: Path) -> None:
    write(tmp_path / "other.parquet", "(1, 2)", "rank, step")
    (tmp_path / "short.parquet").write_bytes(b"PAR1")
    (tmp_path / "liar.parquet").write_bytes(b"x" * 50 + (2**31).to_bytes(4, "little") + b"PAR1")
    assert list(READER.find(walk(tmp_path))) == []


def test_a_damaged_file_becomes_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "trace-x.parquet"
    write(path, "(0, 0, 1, 'forward-compute', 0.0, 1.0, 0)")
    data = path.read_bytes()
    path.write_bytes(b"\0" * 200 + data[200:] if len(data) > 400 else b"\0" * 20 + data[20:])
    batch, parts = read_all(READER, tmp_path, tmp_path)
    assert len(parts) == 1
    assert len(batch.warnings) == 1
