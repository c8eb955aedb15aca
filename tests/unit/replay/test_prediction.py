"""Steps predicted from each other, worked out by hand; ns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.metrics.timeline.rank_timeline import Timeline
from paceline.replay.prediction import _self_time_ratio, predict_steps
from paceline.replay.replay import Replay
from support.small_timeline import event, small_timeline, step_end

T = 5


def one_rank(computed: list[int], gaps: list[int]) -> Timeline:
    """Per step: computing and a gap, then a transfer of 5, then the step ends."""
    rows, at = [], 0
    for step, (work, gap) in enumerate(zip(computed, gaps, strict=True)):
        begin = at + work + gap
        at = begin + T
        rows.append(event(0, "all_reduce", 2 * step, begin, at, work + gap, 2 * step - 1, step=step, place=1))
        rows.append(step_end(0, 2 * step + 1, at, 0, 2 * step, step=step))
    line = small_timeline(rows, steps=range(len(computed)))
    known = np.array([value for work in computed for value in (work, 0)], dtype=np.int64)
    return replace(line, computed=known)


def errors(line: Timeline) -> list[float]:
    found = predict_steps(Replay(line))
    assert found is not None
    return found.errors.tolist()  # type: ignore[no-any-return]


def test_gaps_are_those_of_the_other_steps_and_computing_is_the_own() -> None:
    """Step 0 took 10 + 1 + 5 and is predicted as 10 + (3 + 100) / 2 + 5."""
    line = one_rank([10, 20, 30], [1, 3, 100])
    assert errors(line) == pytest.approx([(66.5 - 16) / 16, (75.5 - 28) / 28, (135 - 37) / 135])
    found = predict_steps(Replay(line))
    assert found is not None
    assert found.typical == pytest.approx((75.5 - 28) / 28) and found.worst == pytest.approx((66.5 - 16) / 16)


def test_with_equal_gaps_every_step_is_predicted_whatever_it_computes() -> None:
    assert errors(one_rank([10, 20, 300], [7, 7, 7])) == [0, 0, 0]


def test_two_steps_cannot_tell() -> None:
    assert predict_steps(Replay(one_rank([10, 20], [1, 3]))) is None
    assert predict_steps(Replay(small_timeline([], steps=range(4)))) is None


@pytest.mark.parametrize(("steps", "error"), [(14, 1.0), (12, 0.0)])
def test_of_many_steps_those_of_the_other_parity_are_asked(steps: int, error: float) -> None:
    """Even steps have no gap, most odd ones one of 15; over all steps no gap is the median."""
    gaps = [15 if step % 2 and step < 9 else 0 for step in range(steps)]
    found = errors(one_rank([10] * steps, gaps))
    assert found[0] == error and found[2] == error


def test_without_kernels_work_is_that_of_the_others_as_much_longer_as_the_self_time() -> None:
    """Two ranks meet in the middle of each step; what they do before and after the meeting, by step."""
    before, after = [(10, 20, 10), (20, 10, 20)], [(10, 20, 10), (10, 20, 10)]
    rows = []
    for rank in (0, 1):
        end, own = 0, 0
        for step in range(3):
            first = end + before[rank][step]
            met = end + max(before[0][step], before[1][step]) + T
            end, own = met + after[rank][step], own + before[rank][step] + after[rank][step]
            place = len(rows)
            anchor = place - 1 if step else -1
            rows.append(event(rank, "all_reduce", step, first, met, before[rank][step], anchor, step=step, place=1))
            rows.append(step_end(rank, 3 + 2 * step + rank, end, after[rank][step], place, step=step, own=own))
    line = small_timeline(rows, steps=(0, 1, 2))
    assert Replay(line).measured.step_times.tolist() == [35, 45, 35]
    # Rank 1 needs 30 in every step, and 15 + 15 is what the others are like: it arrives 5 early in step 0.
    assert errors(line) == pytest.approx([2.5 / 35, 2.5 / 45, 2.5 / 35])


def test_own_lags_and_tails_do_not_help() -> None:
    """A side stream is waited for with lags of 2, 2 and 20; member tails are not repeated at all."""
    rows = []
    for step, lag in enumerate((2, 2, 20)):
        at, first = 100 * step, 3 * step
        rows.append(event(0, "all_reduce", first, at + 10, at + 40, 10, first - 1, step=step, place=1, side=1))
        rows.append(
            event(
                0,
                "all_gather",
                first + 1,
                at + 40 + lag,
                at + 90,
                0,
                first - 1,
                step=step,
                place=2,
                after=first,
                lag=lag,
            )
        )
        rows.append(step_end(0, first + 2, at + 100, 10, first + 1, step=step))
    line = replace(small_timeline(rows, steps=(0, 1, 2)), computed=np.array([10, 0, 10] * 3))
    predicted = [100 + (11 - 2), 100 + (11 - 2), 100 - (20 - 2)]
    assert errors(line) == pytest.approx([abs(each - 100) / 100 for each in predicted])


def test_the_ratio_of_self_times_is_one_where_it_is_unknown() -> None:
    """Self times 10, 20 and 40: against the median of the others, 30, 25 and 15; then a rank that only works in one step."""
    rows = []
    for rank, own in enumerate([(10, 20, 40), (5, 0, 0), (0, 0, 0)]):
        until = 0
        for step, work in enumerate(own):
            until += work
            rows.append(step_end(rank, 3 * rank + step, 100 * (step + 1), work, -1, step=step, own=until))
    found = _self_time_ratio(small_timeline(rows, steps=(0, 1, 2)))
    # Rank 1: 5 over a median of 0, then 0 over 2.5.
    assert found == pytest.approx(np.array([[10 / 30, 20 / 25, 40 / 15], [1, 1, 1], [1, 1, 1]]))


def test_computing_beside_an_event_is_the_own_also_where_none_came_before_it() -> None:
    """The transfer of each step hides computing of 5, 5 and 30, and no computing precedes it."""
    rows = []
    for step, hidden in enumerate((5, 5, 30)):
        first, at = 2 * step, 100 * step
        rows.append(event(0, "all_reduce", first, at, at + T, 0, first - 1, step=step, place=1, overlap=hidden))
        rows.append(step_end(0, first + 1, at + 100, 100 - hidden, first, step=step))
    line = replace(small_timeline(rows, steps=(0, 1, 2)), computed=np.array([0, 10] * 3))
    # What follows is 10 computed and the median gap of the others: 85 - 10 and 60 beside 85, 72.5 - and 85 for the last.
    predicted = [5 + 10 + (85 + 60) / 2, 5 + 10 + (85 + 60) / 2, 30 + 10 + 85]
    assert errors(line) == pytest.approx([abs(each - 100) / 100 for each in predicted])
