"""Step synchronisation without collectives: all ranks begin on the same step, or none does."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread

import pytest

from paceline.core.errors import PacelineError, UsageError
from paceline.profiling import DynamicProfilerMonitor
from paceline.profiling.dynamic_config import RecordRequest
from paceline.profiling.options import ProfilerOptions
from paceline.profiling.running_job import RunningJob, StepProgress, find_job, request_recording
from paceline.profiling.step_sync import Decision, RankStatus, StepSync, read_statuses

REQUEST = RecordRequest(version="abc", start=10, stop=12, options=ProfilerOptions())
RANKS = 4


def state(rank: int, *, seen: str = "abc", before: int = 10) -> RankStatus:
    return RankStatus(rank, RANKS, "host", 100 + rank, 0.1, seen=seen, before=before)


def test_all_record_if_all_have_seen_the_request_in_time(tmp_path: Path) -> None:
    sync = StepSync(tmp_path)
    for rank in range(RANKS):
        sync.publish(state(rank, before=7 + rank))
    assert sync.decide(REQUEST, 0, now=False) == Decision(True, 0)
    assert sync.decide(REQUEST, 3, now=True) == Decision(True, 0)


@pytest.mark.parametrize("late", [state(2, seen="", before=0), state(2, before=11)])
def test_no_rank_records_if_one_saw_the_request_too_late(tmp_path: Path, late: RankStatus) -> None:
    sync = StepSync(tmp_path)
    for each in (state(0), state(1), late, state(3)):
        sync.publish(each)
    assert sync.decide(REQUEST, 0, now=False) is None
    decision = sync.decide(REQUEST, 1, now=True)
    assert decision == Decision(False, 1, "rank 2 had not seen it before step 10")
    sync.publish(state(2))
    assert sync.decide(REQUEST, 2, now=True) == decision, "a rank that decides later follows"


def test_concurrent_decisions_are_the_same(tmp_path: Path) -> None:
    sync = StepSync(tmp_path)
    for round_ in range(30):
        request = replace(REQUEST, version=f"v{round_}")
        decisions: list[Decision | None] = []
        together = Barrier(RANKS)

        def decide(
            rank: int, request: RecordRequest = request, together: Barrier = together, decisions: list = decisions
        ) -> None:
            sync.publish(state(rank, seen=request.version if rank else "", before=10))
            together.wait()
            if not rank:
                sync.publish(state(rank, seen=request.version, before=10))
            decisions.append(sync.decide(request, rank, now=True))

        threads = [Thread(target=decide, args=(rank,)) for rank in range(RANKS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({decision.go for decision in decisions if decision}) == 1
        assert None not in decisions


def test_killed_rank_does_not_block_the_others(tmp_path: Path) -> None:
    sync = StepSync(tmp_path)
    for rank in range(RANKS):
        sync.publish(state(rank, seen="" if rank == 1 else "abc"))
    long_ago = time.time() - 60
    os.utime(tmp_path / "rank1.json", (long_ago, long_ago))
    assert sync.decide(REQUEST, 0, now=True) == Decision(True, 0)


def test_damaged_status_files_are_ignored(tmp_path: Path) -> None:
    sync = StepSync(tmp_path)
    sync.publish(state(0))
    (tmp_path / "rank1.json").write_text('{"rank": 1')
    (tmp_path / "rank2.json").write_text("[]")
    assert [each.rank for each in read_statuses(tmp_path)] == [0]


def test_two_jobs_in_one_directory_are_separate(tmp_path: Path) -> None:
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
    with pytest.raises(PacelineError, match="no running job watches it"):
        find_job(tmp_path)


def test_two_jobs_on_one_host_follow_their_own_files(tmp_path: Path) -> None:
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


def test_request_is_far_enough_ahead_and_keeps_other_fields(tmp_path: Path) -> None:
    monitor = DynamicProfilerMonitor(tmp_path, tmp_path / "out", poll_interval=0.05, backend="light")
    config = tmp_path / "profiler_config.json"
    config.write_text(json.dumps({"start_step": -1, "stop_step": -1, "profile_memory": True, "own": 1}))
    request = request_recording(find_job(tmp_path), 3, ranks=[0], fields={"with_stack": True})
    content = json.loads(config.read_text())
    assert (content["profile_memory"], content["own"], content["with_stack"]) == (True, 1, True)
    assert request.start >= 1 + 2
    assert request.stop == request.start + 2
    with pytest.raises(UsageError, match=r"ranks \[7\] are not in this job"):
        request_recording(find_job(tmp_path), 3, ranks=[7], fields={})
    config.write_text("{")
    with pytest.raises(PacelineError, match="not valid JSON"):
        request_recording(find_job(tmp_path), 3, ranks=[], fields={})
    assert config.read_text() == "{"
    monitor.stop()


def test_request_to_an_ended_job_raises(tmp_path: Path) -> None:
    (tmp_path / ".paceline" / "job").mkdir(parents=True)
    with pytest.raises(PacelineError, match="has ended"):
        request_recording(
            RunningJob(tmp_path / "profiler_config.json", tmp_path / ".paceline" / "job"), 3, ranks=[], fields={}
        )


def test_progress_counts_only_requested_ranks() -> None:
    request = replace(REQUEST, ranks=(0, 2))
    states = [replace(state(rank), state="recorded" if rank == 2 else "skipped") for rank in range(RANKS)]
    assert not StepProgress(request, states).is_complete
    states[0] = replace(states[0], state="missed")
    assert StepProgress(request, states).is_complete
    assert [each.rank for each in StepProgress(request, states).recorded] == [2]
