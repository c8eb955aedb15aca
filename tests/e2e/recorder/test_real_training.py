"""Four real torch processes with gloo and the light recorder: the slowed rank is found, the results stay bit-identical."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import paceline as paceline_library
from support.recorder.runs import blamed, paceline, train

pytest.importorskip("torch", reason="torch is not installed; `make test` installs it")

SLOW_RANK = 2
RECORDINGS = 5
"""The machine itself can slow one rank during a whole recording; one clean recording is enough."""


pytestmark = pytest.mark.timeout(2400)


@pytest.fixture(scope="module")
def slowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slowed")
    train(folder, slow=SLOW_RANK)
    return folder


def test_diagnose_and_watch_find_the_slowed_rank(slowed: Path, tmp_path: Path) -> None:
    found = [found_slow(slowed)]
    while found[-1] != ([SLOW_RANK], [SLOW_RANK]) and len(found) < RECORDINGS:
        folder = tmp_path / f"recording-{len(found)}"
        train(folder, slow=SLOW_RANK)
        found.append(found_slow(folder))
    assert found[-1] == ([SLOW_RANK], [SLOW_RANK]), found


def found_slow(folder: Path) -> tuple[list[int], list[int]]:
    """Slow ranks that diagnose names, and those that watch alerts about."""
    named = [ranks for id_, ranks in blamed(folder / "light", folder / "store", world=4) if id_ == "slow-rank"]
    seen = paceline("watch", folder / "light", "--once", "--json")
    view = json.loads(seen.stdout)
    alerts = list(view["alerts"])
    assert seen.returncode == (3 if alerts else 0)
    if alerts:
        assert view["ranks"][0]["rank"] in alerts
        assert f"rank {alerts[0]}" in seen.stderr and "persistently slow" in seen.stderr
    return [rank for ranks in named for rank in ranks], alerts


def test_no_rank_is_blamed_without_a_slowdown(tmp_path: Path) -> None:
    named: list[object] = []
    for attempt in range(RECORDINGS):
        folder = tmp_path / f"recording-{attempt}"
        train(folder)
        seen = json.loads(paceline("watch", folder / "light", "--once", "--json").stdout)
        named = [*blamed(folder / "light", folder / "store", world=4), *seen["alerts"]]
        if not named:
            return
    pytest.fail(f"a healthy run was blamed in {RECORDINGS} of {RECORDINGS} recordings, last: {named}")


def test_every_collective_has_bytes_group_peer_and_sequence(slowed: Path) -> None:
    with paceline_library.open(slowed / "light", store=slowed / "store") as run:
        assert run.formats == ["light"]
        assert run.warnings == []
        world, pairs = 384 * 384 * 4, 384 * 4
        calls = run.sql(
            "SELECT rank, op, bytes, peer, count(*) AS n FROM collectives GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        steps = 25  # 26, without the warm-up step
        for rank in range(4):
            assert [(op, size, peer, n) for of, op, size, peer, n in calls if of == rank] == [
                ("all_reduce", pairs, None, steps),
                ("all_reduce", world, None, 2 * steps),
                ("receive", 40, (rank - 1) % 4, steps),
                ("send", 40, (rank + 1) % 4, steps),
            ]
        members = run.sql('SELECT DISTINCT list(rank ORDER BY rank) FROM groups GROUP BY "group"').fetchall()
        assert sorted(row[0] for row in members) == [[0, 1], [0, 1, 2, 3], [2, 3]]
        joined = run.sql(
            "SELECT count(*) FROM collectives WHERE op = 'all_reduce' GROUP BY step, \"group\", sequence"
        ).fetchall()
        assert {row[0] for row in joined} == {2, 4}


def test_parts_of_a_step_add_up(slowed: Path) -> None:
    with paceline_library.open(slowed / "light", store=slowed / "store") as run:
        rows = run.sql(
            """SELECT duration, computing + exposed + free, forward_backward + tail + data_wait, "end" - start FROM steps"""
        ).fetchall()
        [(hidden,)] = run.sql("SELECT min(overlapped) FROM steps").fetchall()
    assert len(rows) == 4 * 25
    for duration, parts, phases, span in rows:
        assert duration == parts == span
        assert phases <= duration
    assert hidden >= 0


def test_exported_files_equal_the_log_and_open_as_a_trace(slowed: Path, tmp_path: Path) -> None:
    for directory in (slowed / "light").iterdir():
        for file in directory.rglob("*.[jc]s*"):
            target = tmp_path / "copy" / file.relative_to(slowed / "light")
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.suffix != ".jsonl":
                target.write_bytes(file.read_bytes())
    question = "SELECT rank, step, round(duration / 1e5) FROM steps WHERE step > 1 ORDER BY ALL"
    operations = (
        "SELECT rank, op, count(*) FROM collectives WHERE step > 1 AND duration IS NOT NULL GROUP BY ALL ORDER BY 1, 2"
    )
    with paceline_library.open(tmp_path / "copy", store=tmp_path / "store") as exported:
        assert exported.formats == ["ascend-text"]
        copy = exported.sql(question).fetchall(), exported.sql(operations).fetchall()
    with paceline_library.open(slowed / "light", store=slowed / "store") as run:
        assert copy == (run.sql(question).fetchall(), run.sql(operations).fetchall())
    trace = json.loads(next((tmp_path / "copy").rglob("trace_view.json")).read_text())
    assert {"ProfilerStep#5", "forward_backward", "all_reduce"} <= {event["name"] for event in trace}
    assert all(event["dur"] >= 0 and event["ts"] > 0 for event in trace if event["ph"] == "X")


def test_training_results_are_bit_identical_with_the_recorder(tmp_path: Path) -> None:
    """Three ranks, because dividing by 3 and multiplying by 1/3 round differently."""
    recorded = train(tmp_path / "on", world=3, model="ddp")
    assert recorded == train(tmp_path / "off", world=3, mode="off", model="ddp")
    assert not (tmp_path / "off" / "light").exists()
    with paceline_library.open(tmp_path / "on" / "light", store=tmp_path / "store") as run:
        buckets = run.sql(
            "SELECT rank, step, count(*), sum(bytes) FROM collectives WHERE step > 27 GROUP BY ALL"
        ).fetchall()
    assert len(buckets) == 3 * 5
    assert {(count > 1, size) for _, _, count, size in buckets} == {(True, 4 * 4 * (200 * 200 + 200))}
