"""Ranks without a collective: all begin on the same step, or none does."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread

import pytest

from paceline.errors import PacelineError, UsageError
from paceline.profiling import DynamicProfilerMonitor
from paceline.profiling.agreement import Agreement, Decision, RankState, read_states
from paceline.profiling.dynamic_config import Request
from paceline.profiling.job import Job, Progress, ask, find_job
from paceline.profiling.options import Options

REQUEST = Request(version="abc", start=10, stop=12, options=Options())
RANKS = 4


def state(rank: int, *, seen: str = "abc", before: int = 10) -> RankState:
    return RankState(rank, RANKS, "host", 100 + rank, 0.1, seen=seen, before=before)


def test_all_go_when_all_have_seen_it_before_the_step(tmp_path: Path) -> None:
    agreement = Agreement(tmp_path)
    for rank in range(RANKS):
        agreement.publish(state(rank, before=7 + rank))
    assert agreement.settle(REQUEST, 0, now=False) == Decision(True, 0)
    assert agreement.settle(REQUEST, 3, now=True) == Decision(True, 0)


@pytest.mark.parametrize("late", [state(2, seen="", before=0), state(2, before=11)])
def test_nobody_goes_when_one_has_not(tmp_path: Path, late: RankState) -> None:
    agreement = Agreement(tmp_path)
    for each in (state(0), state(1), late, state(3)):
        agreement.publish(each)
    assert agreement.settle(REQUEST, 0, now=False) is None
    decision = agreement.settle(REQUEST, 1, now=True)
    assert decision == Decision(False, 1, "rank 2 had not seen it before step 10")
    agreement.publish(state(2))
    assert agreement.settle(REQUEST, 2, now=True) == decision, "whoever comes later follows"


def test_ranks_that_decide_at_the_same_moment_decide_the_same(tmp_path: Path) -> None:
    agreement = Agreement(tmp_path)
    for round_ in range(30):
        request = replace(REQUEST, version=f"v{round_}")
        decisions: list[Decision | None] = []
        together = Barrier(RANKS)

        def decide(
            rank: int, request: Request = request, together: Barrier = together, decisions: list = decisions
        ) -> None:
            agreement.publish(state(rank, seen=request.version if rank else "", before=10))
            together.wait()
            if not rank:
                agreement.publish(state(rank, seen=request.version, before=10))
            decisions.append(agreement.settle(request, rank, now=True))

        threads = [Thread(target=decide, args=(rank,)) for rank in range(RANKS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({decision.go for decision in decisions if decision}) == 1
        assert None not in decisions


def test_a_killed_rank_does_not_stop_the_others(tmp_path: Path) -> None:
    agreement = Agreement(tmp_path)
    for rank in range(RANKS):
        agreement.publish(state(rank, seen="" if rank == 1 else "abc"))
    long_ago = time.time() - 60
    os.utime(tmp_path / "rank1.json", (long_ago, long_ago))
    assert agreement.settle(REQUEST, 0, now=True) == Decision(True, 0)


def test_files_of_a_rank_are_whole_or_passed_over(tmp_path: Path) -> None:
    agreement = Agreement(tmp_path)
    agreement.publish(state(0))
    (tmp_path / "rank1.json").write_text('{"rank": 1')
    (tmp_path / "rank2.json").write_text("[]")
    assert [each.rank for each in read_states(tmp_path)] == [0]


def test_two_jobs_in_one_directory_do_not_see_each_others_ranks(tmp_path: Path) -> None:
    first = DynamicProfilerMonitor(tmp_path, tmp_path / "out", job="first")
    second = DynamicProfilerMonitor(tmp_path, tmp_path / "out", job="second")
    try:
        assert sorted(path.name for path in (tmp_path / ".paceline").iterdir()) == ["first", "second"]
        with pytest.raises(UsageError, match="2 running jobs"):
            find_job(tmp_path)
        assert find_job(tmp_path / ".paceline" / "second").directory.name == "second"
    finally:
        first.stop()
        second.stop()
    with pytest.raises(PacelineError, match="no job that watches it is running"):
        find_job(tmp_path)


def test_two_jobs_on_one_host_follow_their_own_files_only(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("a", "b")]
    for place, steps in zip(places, ((2, 3), (4, 4)), strict=True):
        place.mkdir()
        (place / "profiler_config.json").write_text(json.dumps({"start_step": steps[0], "stop_step": steps[1]}))
    monitors = [DynamicProfilerMonitor(place, place / "out", backend="light") for place in places]
    for _ in range(5):
        for monitor in monitors:
            monitor.step()
    for monitor in monitors:
        monitor.stop()
    assert [path.name for path in (tmp_path / "a" / "out").iterdir()] == ["rank0_start2_stop3"]
    assert [path.name for path in (tmp_path / "b" / "out").iterdir()] == ["rank0_start4_stop4"]


def test_a_request_looks_far_enough_ahead_and_keeps_the_other_fields(tmp_path: Path) -> None:
    monitor = DynamicProfilerMonitor(tmp_path, tmp_path / "out", poll_interval=0.05, backend="light")
    config = tmp_path / "profiler_config.json"
    config.write_text(json.dumps({"start_step": -1, "stop_step": -1, "profile_memory": True, "own": 1}))
    request = ask(find_job(tmp_path), 3, ranks=[0], fields={"with_stack": True})
    content = json.loads(config.read_text())
    assert (content["profile_memory"], content["own"], content["with_stack"]) == (True, 1, True)
    assert request.start >= 1 + 2
    assert request.stop == request.start + 2
    with pytest.raises(UsageError, match=r"ranks \[7\] are not in this job"):
        ask(find_job(tmp_path), 3, ranks=[7], fields={})
    config.write_text("{")
    with pytest.raises(PacelineError, match="not valid JSON"):
        ask(find_job(tmp_path), 3, ranks=[], fields={})
    assert config.read_text() == "{"
    monitor.stop()


def test_asking_a_job_that_has_just_ended_says_so(tmp_path: Path) -> None:
    (tmp_path / ".paceline" / "job").mkdir(parents=True)
    with pytest.raises(PacelineError, match="has ended"):
        ask(Job(tmp_path / "profiler_config.json", tmp_path / ".paceline" / "job"), 3, ranks=[], fields={})


def test_progress_counts_only_the_ranks_that_were_asked() -> None:
    request = replace(REQUEST, ranks=(0, 2))
    states = [replace(state(rank), state="recorded" if rank == 2 else "passed over") for rank in range(RANKS)]
    assert not Progress(request, states).over
    states[0] = replace(states[0], state="missed")
    assert Progress(request, states).over
    assert [each.rank for each in Progress(request, states).recorded] == [2]
