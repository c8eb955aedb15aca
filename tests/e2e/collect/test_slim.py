"""Slimming: at most half the size, a tenth when re-encoded, with identical tables."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

import paceline as library
from paceline.collect import Keep, slim
from paceline.core.errors import UsageError
from paceline.core.schema import TABLES
from paceline.diagnosis.finding import Diagnosis
from paceline.simulate import LAYOUTS as SIMULATED
from paceline.simulate import ClusterSpec, simulate
from support.collect.clusters import add_raw_data, kept_columns, simulated, size_of, tables_of
from support.reader_helpers import FIXTURES, needs_fixtures
from support.storage.servers import paceline
from support.storage.trees import QUICK, content

LAYOUTS = ("ascend-text", "ascend-db", "mindinsight", "msprof", "msadvisor", "kineto")
COMMUNICATION = ("steps", "collectives", "transfers", "links", "packets")
KEPT_OF = {
    # Only the timeline, which is left out, has the start of a step and its input wait; its duration is elsewhere.
    ("ascend-text", "steps"): slice(6, None),
    ("ascend-db", "steps"): slice(4, None),
    # CANN's sums keep µs as a double; only the database, which is left out, has the nanoseconds of a start.
    ("ascend-db", "collectives"): slice(8, None),
    # Only the timeline has the parts of a step.
    ("msprof", "steps"): slice(8),
}


def raw_tree(root: Path, layout: str, *, steps: int = 2) -> Path:
    """A recording with raw data, which is the larger part of real recordings."""
    source = simulated(root, layout, steps=steps)
    for place in [path for path in source.iterdir() if path.is_dir()] or [source]:
        add_raw_data(place, int(1.5 * size_of(place)))
    return source


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_slimmed_profile_gives_the_same_tables_in_less_than_half(tmp_path: Path, layout: str) -> None:
    source = raw_tree(tmp_path / "raw", layout)
    done = slim(source, tmp_path / "slim", options=QUICK)
    assert done.report.failures == []
    assert size_of(tmp_path / "slim") == done.after <= 0.5 * size_of(source)
    assert tables_of(tmp_path / "slim", tmp_path / "a") == tables_of(source, tmp_path / "b")


@pytest.mark.parametrize("layout", ["ascend-text", "mindinsight", "kineto"])
def test_re_encoded_tables_are_the_same_in_a_sixth(tmp_path: Path, layout: str) -> None:
    source = raw_tree(tmp_path / "raw", layout, steps=40 if layout == "kineto" else 16)
    done = slim(source, tmp_path / "slim", encode=True, options=QUICK)
    assert size_of(tmp_path / "slim") == done.after <= size_of(source) / (6 if layout == "kineto" else 8), done.saved
    before, after = tables_of(source, tmp_path / "b"), tables_of(tmp_path / "slim", tmp_path / "a")
    for name in before:
        # Exported times are already on the cluster clock: there is no offset.
        left_out = kept_columns(TABLES["ranks"].column_names).index("clock_offset") if name == "ranks" else None
        assert _without(after[name], left_out) == _without(before[name], left_out), name


@pytest.mark.parametrize("layout", SIMULATED)
@pytest.mark.parametrize("encode", [False, True])
def test_the_diagnosis_of_every_layout_is_the_same_to_the_last_digit(tmp_path: Path, layout: str, encode: bool) -> None:
    spec = ClusterSpec(hosts=2, devices=4, dp=8, tp=1, pp=1, steps=3, layers=2, micro_batches=1)
    simulate(tmp_path / "raw", spec, ["slow-rank:1:1.5", "slow-link:2-3:3"], layout)
    slim(tmp_path / "raw", tmp_path / "slim", encode=encode, options=QUICK)
    before, after = (_diagnosed(tmp_path / name, tmp_path / f"{name}-store") for name in ("raw", "slim"))
    assert before.findings and after == before


@needs_fixtures
@pytest.mark.parametrize("name", ["derived_r1.3_layout", "osdi25-straggler", "mindinsight-tests"])
def test_real_recordings_with_warnings_are_diagnosed_the_same_re_encoded(tmp_path: Path, name: str) -> None:
    done = slim(FIXTURES / name, tmp_path / "slim", encode=True, options=QUICK)
    assert done.report.failures == []
    before, after = _diagnosed(FIXTURES / name, tmp_path / "a"), _diagnosed(tmp_path / "slim", tmp_path / "b")
    assert before.run.warnings == after.run.warnings
    assert after == before


@pytest.mark.parametrize("layout", ["ascend-text", "ascend-db", "mindinsight", "msadvisor", "msprof", "kineto"])
def test_hccl_keeps_steps_and_communication(tmp_path: Path, layout: str) -> None:
    source = raw_tree(tmp_path / "raw", layout)
    slim(source, tmp_path / "slim", Keep.hccl, options=QUICK)
    before, after = tables_of(source, tmp_path / "b"), tables_of(tmp_path / "slim", tmp_path / "a")
    for name in COMMUNICATION:
        kept = KEPT_OF.get((layout, name), slice(None))
        assert [row[kept] for row in after[name]] == [row[kept] for row in before[name]], name
    assert size_of(tmp_path / "slim") < 0.5 * size_of(source)


def _without(rows: list[tuple[Any, ...]], column: int | None) -> list[tuple[Any, ...]]:
    return rows if column is None else [row[:column] + row[column + 1 :] for row in rows]


def _diagnosed(source: Path, store: Path) -> Diagnosis:
    """What `paceline diagnose --json` says, but for where it was read from."""
    with library.open(source, store=store) as run:
        found = library.diagnose(run)
    return msgspec.structs.replace(found, run=msgspec.structs.replace(found.run, source="", formats=()))


def test_msprof_results_that_the_framework_repeats_are_left_out(tmp_path: Path) -> None:
    source = simulated(tmp_path / "raw", "ascend-text")
    profiles = sorted(source.glob("*_ascend_pt"))
    exports = sorted(path for path in simulated(tmp_path / "msprof", "msprof").rglob("PROF_*") if path.is_dir())
    for profile, export in zip(profiles, exports, strict=True):
        shutil.copytree(export, profile / export.name)
    slim(source, tmp_path / "slim", options=QUICK)
    assert not list((tmp_path / "slim").rglob("msprof_*.json"))
    assert _diagnosed(tmp_path / "slim", tmp_path / "a") == _diagnosed(source, tmp_path / "b")
    for name in ("communication.json", "step_trace_time.csv", "trace_view.json", "kernel_details.csv"):
        for path in source.rglob(name):
            path.unlink()
    slim(source, tmp_path / "other", options=QUICK)  # now they are all there is
    assert list((tmp_path / "other").rglob("msprof_*.json"))
    assert _diagnosed(tmp_path / "other", tmp_path / "c") == _diagnosed(source, tmp_path / "d")


def test_tables_of_two_recordings_are_not_mixed(tmp_path: Path) -> None:
    first, second = simulated(tmp_path / "one", "msprof"), simulated(tmp_path / "two", "kineto")
    done = slim(first, tmp_path / "slim", encode=True, options=QUICK)
    assert done.report.source == str(first)
    before = content(tmp_path / "slim")
    with pytest.raises(UsageError, match="another recording"):
        slim(second, tmp_path / "slim", encode=True, options=QUICK)
    assert content(tmp_path / "slim") == before
    assert slim(first, tmp_path / "slim", encode=True, options=QUICK).report.moved == 0
    # Files of an earlier export: what the marker does not list is not read.
    slim(second, tmp_path / "other", encode=True, options=QUICK)
    expected = tables_of(tmp_path / "other", tmp_path / "a")
    (tmp_path / "other/transfers.parquet").write_bytes(before["transfers.parquet"])
    assert tables_of(tmp_path / "other", tmp_path / "b") == expected


def test_a_source_without_files_to_keep_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "weights.ckpt").write_bytes(b"1")
    done = paceline("slim", tmp_path / "raw", tmp_path / "slim", env={})
    assert done.returncode == 2 and "no file to keep" in done.stderr, done


@pytest.mark.parametrize("where", [".", "small"])
def test_tables_are_not_written_into_their_own_source(tmp_path: Path, where: str) -> None:
    source = simulated(tmp_path / "raw", "kineto")
    before = content(source)
    with pytest.raises(UsageError, match="lies inside the source"):
        slim(source, source / where, encode=True, options=QUICK)
    assert content(source) == before


def test_all_keeps_everything(tmp_path: Path) -> None:
    source = raw_tree(tmp_path / "raw", "msadvisor")
    slim(source, tmp_path / "slim", Keep.all, options=QUICK)
    assert content(tmp_path / "slim") == content(source)


def test_the_command_reports_how_much_was_left_out(tmp_path: Path) -> None:
    source = raw_tree(tmp_path / "raw", "msadvisor")
    done = paceline("slim", source, tmp_path / "slim", "--keep", "diagnosis", env={})
    assert done.returncode == 0 and "% saved" in done.stderr, done
    again = paceline("slim", source, tmp_path / "slim", env={})
    assert " 0 files transferred" in again.stdout


def test_a_profile_with_unreadable_files_is_not_re_encoded(tmp_path: Path) -> None:
    source = simulated(tmp_path / "raw", "ascend-text")
    broken = next(source.rglob("communication.json"))
    broken.write_text(broken.read_text()[:200])
    with pytest.raises(UsageError, match="would be lost by --encode"):
        slim(source, tmp_path / "slim", encode=True, options=QUICK)
    assert not (tmp_path / "slim").exists()
