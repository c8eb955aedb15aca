"""Runs are found by content, wherever they lie, and never outside the served directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline import simulate
from paceline.storage.file_tree import walk
from paceline.web.catalogue import Catalogue, find_runs, inside, rescan_run, run_id

SPEC = simulate.ClusterSpec(hosts=1, devices=2, dp=2, tp=1, pp=1, steps=1, layers=1, micro_batches=1)


def record(target: Path, layout: str = "ascend-text", seed: int = 1) -> None:
    spec = simulate.ClusterSpec(hosts=1, devices=2, dp=2, tp=1, pp=1, steps=1, layers=1, micro_batches=1, seed=seed)
    simulate.simulate(target, spec, [], layout)


def names(base: Path) -> dict[str, int]:
    return {run.name: run.ranks for run in find_runs(walk(base))}


def test_runs_of_different_formats_and_depths_are_told_apart(tmp_path: Path) -> None:
    record(tmp_path / "monday")
    record(tmp_path / "team" / "a" / "tuesday", "kineto")
    record(tmp_path / "team" / "b" / "wednesday", "mindinsight")
    (tmp_path / "notes.txt").write_text("not a profile")
    assert names(tmp_path) == {"monday": 2, "team/a/tuesday": 2, "team/b/wednesday": 2}


def test_a_directory_that_is_a_run_is_one_run(tmp_path: Path) -> None:
    record(tmp_path / "run")
    assert names(tmp_path / "run") == {".": 2}


def test_the_same_single_rank_twice_is_two_runs(tmp_path: Path) -> None:
    for name in ("first", "second"):
        record(tmp_path / "made" / name)
        rank = next((tmp_path / "made" / name).glob("*_ascend_pt"))
        rank.rename(tmp_path / f"{name}_ascend_pt")
    found = names(tmp_path)
    assert {name for name in found if not name.startswith("made")} == {"first_ascend_pt", "second_ascend_pt"}


def test_newest_comes_first_and_an_unknown_id_is_nothing(tmp_path: Path) -> None:
    import os

    record(tmp_path / "old")
    record(tmp_path / "new")
    for path in (tmp_path / "old").rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    catalogue = Catalogue(tmp_path)
    assert [run.name for run in catalogue.runs(wait=600)] == ["new", "old"]
    assert catalogue.get("../../etc/passwd") is None


def test_files_behind_links_out_of_the_directory_are_not_there(tmp_path: Path) -> None:
    record(tmp_path / "secret" / "run")
    record(tmp_path / "served" / "mine")
    (tmp_path / "served" / "theirs").symlink_to(tmp_path / "secret" / "run")
    tree = inside(walk(tmp_path / "served"), tmp_path / "served")
    assert [run.name for run in find_runs(tree)] == ["mine"]
    assert any("outside the served directory" in text for text in map(str, tree.unreadable))


@pytest.mark.parametrize("place", ["llama-16", "..", "a/b c/模型", "x" * 300, "."])
def test_ids_are_safe_in_addresses_and_tell_paths_apart(place: str) -> None:
    found = run_id(place)
    assert (
        found.isascii()
        and len(found) <= 48
        and set(found) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
    )
    assert found != run_id(place + "/other")


def test_a_changed_run_has_another_fingerprint_and_a_deleted_one_is_gone(tmp_path: Path) -> None:
    import shutil

    record(tmp_path / "run")
    (found,) = find_runs(walk(tmp_path))
    assert rescan_run(found, tmp_path) == found
    file = next((tmp_path / "run").rglob("step_trace_time.csv"))
    file.write_text(file.read_text() + "\n")
    changed = rescan_run(found, tmp_path)
    assert changed is not None and changed.fingerprint != found.fingerprint
    shutil.rmtree(tmp_path / "run")
    assert rescan_run(found, tmp_path) is None
