"""A first look, of small torch traces and of a run, worked out by hand."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.metrics.breakdown import Breakdown, SlowRank, breakdown
from support.fake_run import FakeRun

MS = 1_000_000
STEPS = (1, 2, 3)
OF_A_RUN = "read through its run"

Run = dict[str, Any]


def span(name: str, category: str, start: float, end: float, **args: object) -> Run:
    """Times in ms."""
    return {"ph": "X", "cat": category, "name": name, "ts": start * 1000, "dur": (end - start) * 1000, "args": args}


def events(computing: float, steps: tuple[int, ...] = STEPS, collective: str = "allreduce") -> list[Run]:
    """Steps of 100 ms: first 10 idle, then computing; communication from 60 to 90."""
    return [
        event
        for number in steps
        for event in (
            span(f"ProfilerStep#{number}", "user_annotation", 1000 * number, 1000 * number + 100),
            span("gemm", "kernel", 1000 * number + 10, 1000 * number + 10 + computing),
            span("ncclKernel", "kernel", 1000 * number + 60, 1000 * number + 90, **{"Collective name": collective}),
        )
    ]


def write(root: Path, *ranks: list[Run], name: str = "rank{}.json", **info: object) -> Path:
    root.mkdir(exist_ok=True)
    for rank, recorded in enumerate(ranks):
        about = {"rank": rank, "world_size": len(ranks), **info}
        trace = {"schemaVersion": 1, "distributedInfo": about, "traceEvents": recorded}
        (root / name.format(rank)).write_text(json.dumps(trace))
    return root


@pytest.fixture(autouse=True)
def run(monkeypatch: pytest.MonkeyPatch) -> FakeRun:
    """What every source is read as that is not looked at directly."""
    rows = [
        {"rank": rank, "step": step, "duration": 100 * MS, "exposed": (100 - own) * MS, "computing": 40 * MS}
        for rank, own in ((3, 50), (5, 50), (7, 80))
        for step in STEPS
    ]
    made = FakeRun(ranks=[{"rank": rank} for rank in (2, 3, 5, 7)], steps=rows)
    made.warnings = [OF_A_RUN]  # type: ignore[attr-defined]
    monkeypatch.setattr("paceline.run.open_run.open_run", lambda source, **options: nullcontext(made))
    return made


def through_a_run(look: Breakdown) -> bool:
    return look.warnings == (OF_A_RUN,)


def test_torch_traces_are_looked_at_without_a_run(tmp_path: Path) -> None:
    look = breakdown(write(tmp_path, events(60), events(60), events(75)))
    assert look.ranks == (0, 1, 2) and look.steps == (3, 3, 3) and look.compared == 3 and look.warnings == ()
    assert look.parts == {
        "step": (100, 100, 100),
        "compute": pytest.approx((50, 50, 50)),  # until communication begins at 60
        "overlapped": pytest.approx((10, 10, 25)),
        "communication": pytest.approx((20, 20, 5)),
        "tail": (0, 0, 0),
        "free": pytest.approx((20, 20, 20)),
        "data": pytest.approx((0, 0, 0)),  # before the first device work
        "unknown": (0, 0, 0),
    }
    assert look.self_time == (80, 80, 95) and look.reference == (80, 80, 80)
    assert look.excess == pytest.approx((0, 0, 95 / 80 - 1))
    assert look.slow == (SlowRank(2, pytest.approx(95 / 80 - 1), 95, 80),)


def test_only_steps_that_all_ranks_recorded_count(tmp_path: Path) -> None:
    slow_start = events(75, (1,)) + events(60, (2, 3))
    look = breakdown(write(tmp_path, events(60, (2, 3)), slow_start))
    assert look.steps == (2, 2) and look.self_time == (80, 80) and look.slow == ()
    assert look.parts["overlapped"] == pytest.approx((10, 10))


def test_ranks_that_share_no_step_have_an_excess_of_their_own_steps(tmp_path: Path) -> None:
    look = breakdown(write(tmp_path, events(60, (1,)), events(75, (2,))))
    assert look.steps == (1, 1) and look.self_time == (80, 95)
    assert look.reference[0] == 80 and np.isnan(look.reference[1])


def test_ranks_with_other_programs_are_not_compared(tmp_path: Path) -> None:
    twice = events(60) + [span("ncclKernel", "kernel", 1000 * n + 92, 1000 * n + 95) for n in STEPS]
    look = breakdown(write(tmp_path, events(60), events(75), twice))
    assert look.compared == 2 and [slow.rank for slow in look.slow] == [1] and np.isnan(look.excess[2])


def test_a_run_shows_the_numbers_of_its_ranks(tmp_path: Path) -> None:
    look = breakdown(tmp_path)
    assert look.ranks == (3, 5, 7) and look.steps == (3, 3, 3) and look.compared == 3
    assert look.parts["step"] == (100, 100, 100) and look.parts["communication"] == (50, 50, 20)
    assert look.parts["compute"] == (40, 40, 40) and look.parts["free"] == (10, 10, 40)
    assert list(look.parts) == ["step", "compute", "overlapped", "communication", "tail", "free", "data", "unknown"]
    assert look.self_time == (50, 50, 80) and look.reference == (50, 50, 50)
    assert look.slow == (SlowRank(7, pytest.approx(0.6), 80, 50),) and through_a_run(look)


def test_ranks_that_have_events_but_no_steps_are_not_shown(tmp_path: Path, run: FakeRun) -> None:
    """The rows of ranks in the comparison are not those of the ranks shown."""
    run.connection.execute("INSERT INTO collectives (rank, step, op, start, duration) VALUES (2, 1, 'barrier', 0, 1)")
    assert breakdown(tmp_path).slow == (SlowRank(7, pytest.approx(0.6), 80, 50),)


@pytest.mark.parametrize("options", [{"store": "s"}, {"engine": "dask"}])
def test_who_names_a_store_or_an_engine_gets_a_run(tmp_path: Path, options: dict[str, Any]) -> None:
    assert through_a_run(breakdown(write(tmp_path, events(60)), **options))


def test_remote_sources_are_read_through_their_run() -> None:
    assert through_a_run(breakdown("s3://bucket/traces"))


def test_two_traces_of_one_rank_are_read_through_their_run(tmp_path: Path) -> None:
    write(tmp_path, events(60))
    assert not through_a_run(breakdown(tmp_path))
    write(tmp_path, events(60), name="again{}.json")
    assert through_a_run(breakdown(tmp_path))


def test_other_formats_among_traces_are_read_through_their_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from paceline.formats.base import RankRecording
    from paceline.metrics import breakdown as module

    write(tmp_path, events(60))
    tree, found = module.open_tree(tmp_path)
    other = RankRecording(format="msprof", rank=1, root="x", sections=())
    monkeypatch.setattr("paceline.metrics.breakdown.open_tree", lambda source: (tree, [*found, other]))
    assert through_a_run(breakdown(tmp_path))


def test_traces_without_device_work_are_read_through_their_run(tmp_path: Path) -> None:
    idle = [event for event in events(60) if event["cat"] != "kernel"]
    assert through_a_run(breakdown(write(tmp_path, idle)))


def test_traces_of_declared_stages_are_read_through_their_run(tmp_path: Path) -> None:
    group = {"pg_name": "7", "pg_desc": "PIPELINE_MODEL_PARALLEL_GROUP", "pg_size": 2, "ranks": [0, 1]}
    assert through_a_run(breakdown(write(tmp_path, events(60), events(60), pg_config=[group])))


@pytest.mark.parametrize(("slower", "expected"), [(75, True), (60, False)])
def test_a_slow_rank_that_sends_messages_may_be_of_another_stage(tmp_path: Path, slower: float, expected: bool) -> None:
    look = breakdown(write(tmp_path, *(events(long, collective="send") for long in (60, 60, slower))))
    assert through_a_run(look) is expected


def test_notes_of_traces_are_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from paceline.metrics import breakdown as module

    write(tmp_path, events(60), events(60))
    tree, parts = module.open_tree(tmp_path)
    found = [replace(part, notes=("odd",)) for part in parts if part.rank == 1]
    monkeypatch.setattr("paceline.metrics.breakdown.open_tree", lambda source: (tree, found))
    assert breakdown(tmp_path).warnings == ("rank 1: odd",)
