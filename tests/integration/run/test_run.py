"""Run: tables on demand, one clock, global ranks, and a store that is filled once."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

import paceline
from paceline.core.errors import PacelineError, UsageError
from paceline.formats.base import Sink
from paceline.run import ingest
from paceline.run.ingest import _failed_file
from paceline.run.run import Run
from paceline.run.tables.batch import StoreWriteError
from paceline.run.tables.store import READ_VERSION, RunStore
from paceline.storage.file_tree import File
from support.run.profiles import GROUP_HASH, write_rank


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "run"
    write_rank(root / "node0", 0, late_ms=0.0, host="h0")
    write_rank(root / "node1", 1, late_ms=5.0, clock_ms=3.0, host="h1")
    return root


def opened(source: Path) -> Run:
    return paceline.open(source, store=source.parent / "store")


def test_tables_come_from_many_ranks_on_one_clock(source: Path) -> None:
    with opened(source) as run:
        ranks = run.table("ranks").project("rank, host, format, clock_offset, complete, note").fetchall()
        assert ranks == [(0, "h0", "ascend-text", 0, True, None), (1, "h1", "ascend-text", 3_000_000, True, None)]
        ends = run.sql("SELECT step, count(DISTINCT start + duration) FROM collectives GROUP BY step ORDER BY step")
        assert ends.fetchall() == [(1, 1), (2, 1)]
        late = run.sql("SELECT max(start) - min(start) FROM collectives WHERE step = 1").fetchall()
        assert late == [(5_000_000,)]
        assert run.warnings == []


def test_local_links_become_global_and_bandwidth_is_bytes_by_time(tmp_path: Path) -> None:
    for rank in (0, 1):
        profile = write_rank(tmp_path / "run", rank)
        metadata = {
            "parallel_group_info": {"group_name_0": {"group_name": "dp", "group_rank": rank, "global_ranks": [4, 9]}}
        }
        (profile / "profiler_metadata.json").write_text(json.dumps(metadata))
    with opened(tmp_path / "run") as run:
        links = run.table("links").project("step, src, dst, scope, bytes, duration, bandwidth").fetchall()
        assert links[0] == (1, 4, 9, "global", 20_000_000, 2_000_000, 10.0)
        assert any("4, 9 took part, but no recording" in str(warning) for warning in run.warnings)


def test_links_without_a_map_are_marked_group_local(tmp_path: Path) -> None:
    profile = write_rank(tmp_path / "run", 0)
    (profile / "profiler_metadata.json").unlink()
    with opened(tmp_path / "run") as run:
        assert run.table("links").project('src, dst, scope, "group"').fetchall()[0] == (0, 1, "group", GROUP_HASH)


def test_only_what_a_table_needs_is_read(source: Path) -> None:
    with opened(source) as run:
        run.table("steps")
        read = {key.rpartition(":")[2] for key in run._store.manifest.units}
    assert read == {"identity", "steps", "communication.json collectives", "communication_matrix.json transfers"}


def test_second_open_reads_nothing_and_a_changed_file_is_read_alone(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(source) as run:
        run.load(["steps", "collectives"])
    read: list[str] = []
    original = ingest.read_batch

    def spy(batch: list[ingest.ReadTask], *rest: object, **options: object) -> ingest.ReadResult:
        read.extend(task.key for task in batch)
        return original(batch, *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(ingest, "read_batch", spy)
    with opened(source) as run:
        assert len(run.table("steps").fetchall()) == 4
    assert read == []
    write_rank(source / "node1", 1, late_ms=5.0, steps=3, host="h1")
    with opened(source) as run:
        assert run.sql("SELECT count(*) FROM steps WHERE rank = 1").fetchall() == [(3,)]
        assert run.sql("SELECT count(*) FROM collectives").fetchall() == [(5,)]
        assert any("ragged" in str(warning) for warning in run.warnings)
    assert read and all(key.split(":")[2] == "1" for key in read)


def test_a_removed_rank_is_forgotten(source: Path) -> None:
    with opened(source) as run:
        assert len(run.table("steps").fetchall()) == 4
    for path in sorted((source / "node1").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    with opened(source) as run:
        assert len(run.table("steps").fetchall()) == 2


def test_the_newest_of_two_recordings_is_used_and_cycles_are_joined(tmp_path: Path) -> None:
    old = write_rank(tmp_path / "run" / "a", 0, steps=1)
    old.rename(old.with_name("h0_100_20250101000000000_ascend_pt"))
    newest = write_rank(tmp_path / "run" / "b", 0, steps=2)
    cycle = newest.with_name("h0_100_20260101000000009_ascend_pt")
    subprocess.run(["cp", "-r", newest, cycle], check=True)
    text = (cycle / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv").read_text()
    (cycle / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv").write_text(
        text.replace("\n1,", "\n7,").replace("\n2,", "\n8,")
    )
    with opened(tmp_path / "run") as run:
        assert run.sql("SELECT list(step ORDER BY step) FROM steps").fetchall() == [([1, 2, 7, 8],)]
        assert any("several recordings" in str(warning) and "a/" in str(warning) for warning in run.warnings)


@pytest.mark.parametrize("damage", ["manifest", "version", "data", "cut"])
def test_a_damaged_store_is_read_again(source: Path, damage: str) -> None:
    with opened(source) as run:
        expected = run.table("steps").fetchall()
    store = source.parent / "store"
    if damage == "manifest":
        (store / "manifest.json").write_text("{")
    elif damage == "version":
        text = (store / "manifest.json").read_text()
        (store / "manifest.json").write_text(text.replace(f'"version":{READ_VERSION}', '"version":0'))
    elif damage == "data":
        next((store / "data").glob("steps-*.parquet")).unlink()
    else:
        os.truncate(next((store / "data").glob("steps-*.parquet")), 100)
    with opened(source) as run:
        assert run.table("steps").fetchall() == expected


def _interrupted(sink: Sink) -> None:
    """A user presses Ctrl-C while DuckDB works."""
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    sink.connection.execute("SELECT sum(hash(range)) FROM range(100_000_000_000)").fetchall()


def _on_a_full_disk(sink: Sink) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("read", "outcome"), [(_interrupted, KeyboardInterrupt), (_on_a_full_disk, StoreWriteError)])
def test_machine_errors_are_not_stored_as_warnings_of_a_rank(
    source: Path, read: Callable[[Sink], None], outcome: type[BaseException]
) -> None:
    with opened(source) as run:
        entry = run._selected[0]
        sections = tuple(replace(section, read=read) for section in entry.recording.sections)
        run._selected[0] = replace(entry, recording=replace(entry.recording, sections=sections))
        with pytest.raises(outcome):
            run.table("steps")
    with opened(source) as run:
        assert len(run.table("steps").fetchall()) == 4
        assert run.warnings == []


def test_a_complete_store_needs_no_write_permission(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(source) as run:
        expected = run.table("steps").fetchall()
    monkeypatch.setattr(RunStore, "writing", None)
    with opened(source) as run:
        assert run.table("steps").fetchall() == expected


def test_a_writer_removes_leftovers_of_killed_writers(source: Path) -> None:
    data = source.parent / "store" / "data"
    data.mkdir(parents=True)
    left = ("steps-00000001-00000-0123abcd.parquet", f".steps-00000001-00000-0123abcd.parquet.{'0' * 32}.tmp")
    for name in (*left, "notes.txt", "steps.parquet"):
        (data / name).touch()
    with opened(source) as run:
        run.load(["steps"])
    assert not any((data / name).exists() for name in left)
    assert (data / "notes.txt").exists() and (data / "steps.parquet").exists()


def test_a_killed_reader_leaves_the_store_intact(tmp_path: Path) -> None:
    source = tmp_path / "run"
    for rank in range(6):
        write_rank(source, rank, ranks=6, steps=40)
    script = (
        "import os, signal, sys; from paceline.run import ingest; import paceline\n"
        "ingest.BATCH_SECTIONS = 3; original = ingest.read_batch; done = []\n"
        "def dying(*a, **k):\n"
        "    done.append(1)\n"
        "    if len(done) == int(sys.argv[2]): os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return original(*a, **k)\n"
        "ingest.read_batch = dying\n"
        "paceline.open(sys.argv[1], store=sys.argv[3]).table('collectives')\n"
    )
    for death in (1, 3, 6):
        # After a death files are read by a process of their own, which this script does not kill.
        (tmp_path / "store" / "being-read").unlink(missing_ok=True)
        result = subprocess.run([sys.executable, "-c", script, source, str(death), tmp_path / "store"], check=False)
        assert result.returncode == -signal.SIGKILL
    with opened(source) as run:
        assert run.sql("SELECT count(*), count(DISTINCT rank) FROM collectives").fetchall() == [(240, 6)]


def test_one_unreadable_rank_does_not_hide_the_others(source: Path) -> None:
    broken = next((source / "node1").rglob("communication.json"))
    broken.write_bytes(broken.read_bytes()[:-30])
    with opened(source) as run:
        assert run.sql("SELECT list(DISTINCT rank) FROM collectives").fetchall() == [([0],)]
        assert run.sql("SELECT rank, complete FROM ranks ORDER BY rank").fetchall() == [(0, True), (1, False)]
        assert [str(warning) for warning in run.warnings if "cut off" in str(warning)] == [
            f"rank 1: {broken.relative_to(source)}: is cut off (Input data was truncated; {broken.stat().st_size:,} bytes)"
        ]


def test_readers_in_other_processes_give_the_same_tables(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(source) as run:
        expected = sorted(run.table("collectives").fetchall())
    monkeypatch.setattr(ingest, "BATCH_SECTIONS", 2)
    monkeypatch.setattr(ingest, "POOL_BYTES", 0)
    with paceline.open(source, store=tmp_path / "other", workers=2) as run:
        assert sorted(run.table("collectives").fetchall()) == expected


def test_nothing_is_written_into_the_source(source: Path) -> None:
    before = sorted(path for path in source.rglob("*"))
    with opened(source) as run:
        run.load(["steps", "events", "memory"])
    assert sorted(path for path in source.rglob("*")) == before


def test_a_directory_without_profiles_is_reported(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UsageError, match="no profile found in 1 files"):
        paceline.open(tmp_path)
    with pytest.raises(UsageError, match="no such file"):
        paceline.open(tmp_path / "absent")


@pytest.mark.parametrize("place", ["a file", "a file/below", "/proc/paceline"])
def test_a_path_that_cannot_hold_a_store_is_reported(source: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(PacelineError, match="cannot hold the store"):
        paceline.open(source, store=tmp_path / place).load(["steps"])


def test_a_disk_that_fills_up_is_no_section_s_fault(source: Path, tmp_path: Path) -> None:
    """Nothing of the batch counts as read: with free space again, the next run reads it."""
    script = (
        "import resource, sys, paceline; resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600));"
        "paceline.open(sys.argv[1], store=sys.argv[2]).load(['steps'])"
    )
    command = [sys.executable, "-c", script, str(source), str(tmp_path / "store")]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert "StoreWriteError" in said and "store/data: cannot be written" in said
    with paceline.open(source, store=tmp_path / "store") as run:
        assert run.rows("steps") == 4 and not run.warnings


def test_a_table_that_was_not_loaded_is_missing_not_empty(source: Path, tmp_path: Path) -> None:
    with paceline.open(source, store=tmp_path / "store") as run:
        run.load(["steps"])
        with pytest.raises(duckdb.CatalogException):
            run.connection.execute("SELECT count(*) FROM kernels")
        assert run.sql("SELECT count(*) FROM kernels").fetchall() is not None


def test_an_unknown_table_and_a_wrong_query_are_reported(source: Path) -> None:
    with opened(source) as run:
        with pytest.raises(UsageError, match="unknown table 'speed'"):
            run.table("speed")
        with pytest.raises(UsageError, match="the query failed"):
            run.sql("SELECT nonsense FROM steps")


def test_the_default_store_is_in_the_cache(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    with paceline.open(source) as run:
        run.table("steps")
    assert [path.name.rpartition("-")[0] for path in (tmp_path / "cache").iterdir()] == ["run"]
    assert sorted(path.name for path in source.iterdir()) == ["node0", "node1"]


def test_merged_outputs_next_to_their_inputs_are_not_counted_twice(source: Path) -> None:
    output = source / "cluster_analysis_output"
    output.mkdir()
    header = "Step,Type,Index,Computing,Communication(Not Overlapped),Overlapped,Communication,Free\n"
    (output / "cluster_step_trace_time.csv").write_text(header + "1,rank,0,1,2,3,4,5\n1,rank,1,1,2,3,4,5\n")
    with opened(source) as run:
        assert run.sql("SELECT count(*) FROM steps").fetchall() == [(4,)]
    with paceline.open(output, store=source.parent / "other") as run:
        assert run.sql("SELECT rank, computing FROM steps ORDER BY rank").fetchall() == [(0, 1000), (1, 1000)]
        assert run.formats == ["cluster-analysis"]


def test_what_cannot_be_listed_is_reported_and_the_rest_is_read(source: Path) -> None:
    (source / "loop").symlink_to(source / "loop")
    with opened(source) as run:
        assert len(run.table("steps").fetchall()) == 4
        assert [str(warning) for warning in run.warnings if "loop" in str(warning)]


def test_an_unreadable_file_among_several_of_a_section_is_named() -> None:
    files = [File(name, Path("/run") / name, 1, 1) for name in ("a.csv", "b.csv")]
    denied = PermissionError(13, "Permission denied", "/run/b.csv")
    assert _failed_file(denied, files) == Path("/run/b.csv")
    assert _failed_file(ValueError("x"), files) is None
    assert _failed_file(ValueError("x"), files[:1]) == Path("/run/a.csv")
