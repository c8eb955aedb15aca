"""Which recordings of a source are used: those of one window, so that ranks are compared in the same steps."""

from __future__ import annotations

import pytest

from paceline.formats.base import RankRecording
from paceline.run.source_selection import select_recordings


def recording(rank: int, when: int, *, job: str = "", format: str = "kineto") -> RankRecording:
    return RankRecording(format, rank, f"rank{rank}_{when}", (), recorded=f"{when:020d}" if when else "", job=job)


def used(*found: RankRecording) -> dict[int | None, list[int]]:
    selected, _ = select_recordings(found)
    times: dict[int | None, list[int]] = {}
    for entry in selected:
        times.setdefault(entry.recording.rank, []).append(int(entry.recording.recorded or 0))
    return times


def test_the_newest_is_used_if_all_ranks_have_equally_many() -> None:
    """Also if the clocks of two hosts differ by more than the time between recordings."""
    assert used(*(recording(rank, when) for rank, when in ((0, 100), (0, 200), (1, 9100), (1, 9200)))) == {
        0: [200],
        1: [9200],
    }


def test_a_killed_job_is_read_in_the_window_that_all_ranks_have() -> None:
    """Only rank 0 could still write its third recording; mixed with the second of the others it would be left out."""
    found = [recording(rank, when + rank) for rank in range(4) for when in (100, 200)]
    assert used(*found, recording(0, 300)) == {rank: [200 + rank] for rank in range(4)}


def test_of_two_windows_of_as_many_ranks_the_newer_is_used() -> None:
    """Rank 2 recorded only the first of three windows, rank 1 the last two: each window has two ranks or more."""
    found = [recording(0, when) for when in (100, 200, 300)] + [recording(1, 201), recording(1, 301), recording(2, 101)]
    assert used(*found) == {0: [300], 1: [301], 2: [101]}


def test_cycles_of_one_recording_count_once_and_are_all_used() -> None:
    found = [recording(0, 100, job="a"), recording(0, 110, job="a"), recording(1, 101, job="b")]
    assert used(*found) == {0: [100, 110], 1: [101]}


def test_unknown_times_are_not_compared() -> None:
    assert used(recording(0, 100), recording(0, 200), recording(1, 0)) == {0: [200], 1: [0]}


@pytest.mark.parametrize(
    ("extra", "reason"), [([], "using the newest, "), ([recording(0, 300)], "using the newest that most ranks have, ")]
)
def test_the_warning_names_what_is_ignored_and_why(extra: list[RankRecording], reason: str) -> None:
    found = [recording(rank, when) for rank in range(2) for when in (100, 200)]
    _, warnings = select_recordings([*found, *extra])
    of_rank_0 = next(warning for warning in warnings if warning.rank == 0)
    assert reason in of_rank_0.message and "ignoring rank0_100" in of_rank_0.message
