"""Slimming: at least half the size gone, nine tenths when re-encoded, and every table the same as before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collect.clusters import add_raw_data, simulated, size_of, tables_of
from paceline.collect import Keep, slim
from paceline.errors import UsageError
from storage.servers import paceline
from storage.trees import QUICK, content

LAYOUTS = ("ascend-text", "ascend-db", "mindinsight", "msprof", "msadvisor", "kineto")
COMMUNICATION = ("steps", "collectives", "transfers", "links", "packets")


def raw_tree(root: Path, layout: str, *, steps: int = 2) -> Path:
    """A recording with the raw data its results were made from; that is the larger part in any real one."""
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
def test_re_encoded_tables_are_the_same_in_a_tenth(tmp_path: Path, layout: str) -> None:
    source = raw_tree(tmp_path / "raw", layout, steps=40 if layout == "kineto" else 16)
    done = slim(source, tmp_path / "slim", encode=True, options=QUICK)
    assert size_of(tmp_path / "slim") == done.after <= 0.1 * size_of(source), done.saved
    before, after = tables_of(source, tmp_path / "b"), tables_of(tmp_path / "slim", tmp_path / "a")
    for name in before:
        # Exported times are on the cluster's clock already: there is no offset left to tell.
        left_out = 4 if name == "ranks" else None
        assert _alike(_without(after[name], left_out), _without(before[name], left_out)), name


@pytest.mark.parametrize("layout", ["ascend-text", "mindinsight", "msadvisor"])
def test_hccl_keeps_steps_and_communication(tmp_path: Path, layout: str) -> None:
    source = raw_tree(tmp_path / "raw", layout)
    slim(source, tmp_path / "slim", Keep.hccl, options=QUICK)
    before, after = tables_of(source, tmp_path / "b"), tables_of(tmp_path / "slim", tmp_path / "a")
    for name in COMMUNICATION:
        if name == "steps" and layout == "ascend-text":
            # When a step began stands in the timeline, which is left behind; how long it took does not.
            assert [row[4:] for row in after[name]] == [row[4:] for row in before[name]]
        else:
            assert after[name] == before[name], name
    assert size_of(tmp_path / "slim") < 0.5 * size_of(source)


def _without(rows: list[tuple[Any, ...]], column: int | None) -> list[tuple[Any, ...]]:
    return rows if column is None else [row[:column] + row[column + 1 :] for row in rows]


def _alike(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool:
    """The same, but for timestamps within a microsecond: the clock is estimated anew from aligned times."""
    return len(ours) == len(theirs) and all(
        a == b or (_is_time(a) and _is_time(b) and abs(a - b) <= 1000)
        for left, right in zip(ours, theirs, strict=True)
        for a, b in zip(left, right, strict=True)
    )


def _is_time(value: object) -> bool:
    return isinstance(value, int) and value > 10**12


def test_all_keeps_everything(tmp_path: Path) -> None:
    source = raw_tree(tmp_path / "raw", "msadvisor")
    slim(source, tmp_path / "slim", Keep.all, options=QUICK)
    assert content(tmp_path / "slim") == content(source)


def test_the_command_says_how_much_was_left_behind(tmp_path: Path) -> None:
    source = raw_tree(tmp_path / "raw", "msadvisor")
    done = paceline("slim", source, tmp_path / "slim", "--keep", "diagnosis", env={})
    assert done.returncode == 0 and "% left behind" in done.stderr, done
    again = paceline("slim", source, tmp_path / "slim", env={})
    assert " 0 files moved" in again.stdout


def test_a_profile_that_cannot_be_read_whole_is_not_re_encoded(tmp_path: Path) -> None:
    source = simulated(tmp_path / "raw", "ascend-text")
    broken = next(source.rglob("communication.json"))
    broken.write_text(broken.read_text()[:200])
    with pytest.raises(UsageError, match="re-encoding would lose"):
        slim(source, tmp_path / "slim", encode=True, options=QUICK)
    assert not (tmp_path / "slim").exists()
