"""Work, waiting and side streams along the timelines of ranks, worked out by hand; times in ms."""

from __future__ import annotations

import pytest

from paceline.metrics.timeline.rank_timeline import read_timeline
from support.comm_tables import collective
from support.fake_run import FakeRun
from support.named_timeline import BEGIN, Span, named_timeline

MS = 1_000_000
US = 1e-3
"""ms"""
NS = 1e-6
"""ms"""

# -- the critical stream -------------------------------------------------------------------------------------------------


def test_work_is_what_lies_between_collectives() -> None:
    one = {"a": ("tp", 20, 30), "b": ("tp", 50, 70), "c": ("tp", 130, 140), "d": ("tp", 150, 175)}
    found = named_timeline(one, ends=(100, 200))
    assert found.column("work", 0) == {"a": 20, "b": 20, "end0": 30, "c": 30, "d": 10, "end1": 25}
    assert found.column("anchor", 0) == {"a": BEGIN, "b": "a", "end0": "b", "c": "end0", "d": "c", "end1": "d"}
    assert found.column("self_time_until", 0) == {"a": 20, "b": 40, "end0": 70, "c": 100, "d": 110, "end1": 135}
    assert found.self_time() == [[70, 65]]
    assert not any(found.column("side_stream", 0).values()) and set(found.column("after", 0).values()) == {None}
    assert found.line.begin.tolist() == [0] and found.line.known.tolist() == [[True, True]]
    assert found.line.steps.tolist() == [0, 1] and not found.line.split_known


def test_a_rank_begins_with_its_first_event_if_that_comes_before_its_step() -> None:
    rows = [collective(0, 5 * MS, 9 * MS), collective(1, 15 * MS, 20 * MS, sequence=1)]
    steps = [{"rank": 0, "step": 0, "start": 10 * MS, "end": 50 * MS}, {"rank": 2, "step": 0}]
    line = read_timeline(FakeRun(collectives=rows, steps=steps))
    assert line.begin.tolist() == [5 * MS, 15 * MS]  # rank 2 only names its step
    assert line.known.ravel().tolist() == [True, True]
    assert line.self_time().ravel().tolist() == [41 * MS, 0]


def test_without_recordings_there_is_no_timeline() -> None:
    line = read_timeline(FakeRun())
    assert (len(line.work), len(line.steps), line.self_time().shape) == (0, 0, (0, 0))


def test_only_the_steps_asked_for_are_on_it() -> None:
    rows = [collective(0, 100 * n * MS, (100 * n + 20) * MS, step=n) for n in range(3)]
    steps = [{"rank": 0, "step": n, "start": 100 * n * MS, "end": (100 * n + 50) * MS} for n in range(3)]
    line = read_timeline(FakeRun(collectives=rows, steps=steps), (1, 2))
    assert line.steps.tolist() == [1, 2] and line.begin.tolist() == [100 * MS]


def test_of_events_that_end_together_the_next_follows_the_later_one() -> None:
    """b starts 2 µs before a ends, which is rounding: it follows a without any work."""
    found = named_timeline({"a": ("tp", 20, 40), "b": ("tp", 40 - 2 * US, 40), "c": ("tp", 50, 60)})
    assert found.column("anchor", 0) == {"a": BEGIN, "b": "a", "c": "b", "end0": "c"}
    assert found.column("work", 0) == {"a": 20, "b": 0, "c": 10, "end0": 40}


# -- computing during communication --------------------------------------------------------------------------------------

TWO: dict[str, Span] = {"a": ("tp", 20, 30), "b": ("tp", 50, 60)}


@pytest.mark.parametrize(
    ("overlapped", "exposed", "expected"),
    [
        (15.0, None, {"a": 10, "b": 5, "end0": 0}),  # earliest first
        (2.5, None, {"a": 2.5, "b": 0, "end0": 0}),
        (50.0, None, {"a": 10, "b": 10, "end0": 0}),
        (2 + NS, None, {"a": 2 + NS, "b": 0, "end0": 0}),
        (2.0, None, {"a": 0, "b": 0, "end0": 0}),  # a tenth of the communication is rounding
        (None, 8.0, {"a": 10, "b": 2, "end0": 0}),  # 20 of communication, 8 of it exposed
        (None, None, {"a": 0, "b": 0, "end0": 0}),
    ],
)
def test_covered_communication_is_the_first_of_the_step(
    overlapped: float | None, exposed: float | None, expected: dict[str, float]
) -> None:
    found = named_timeline(TWO, overlapped=[[overlapped]], exposed=[[exposed]])
    assert found.column("overlap", 0) == pytest.approx(expected)
    # 20 before, 20 between and 40 behind are own work, and so is what was computed meanwhile.
    assert found.self_time() == [[pytest.approx(80 + sum(expected.values()))]]
    assert found.line.split_known is (overlapped is not None or exposed is not None)


def test_each_step_has_its_own_overlap() -> None:
    found = named_timeline(TWO | {"c": ("tp", 120, 130)}, ends=(100, 200), overlapped=[[None, 7]])
    assert found.column("overlap", 0) == {"a": 0, "b": 0, "end0": 0, "c": 7, "end1": 0}
    assert found.self_time() == [[80, 20 + 7 + 70]]


# -- side streams --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "aside"),
    [(20 + 2 * US, False), (20 + 2 * US + NS, True), (40 - 2 * US - NS, True), (40 - 2 * US, False), (45, False)],
)
def test_an_event_during_which_another_starts_runs_on_a_side_stream(start: float, aside: bool) -> None:
    found = named_timeline({"a": ("dp", 20, 40), "b": ("tp", start, 60)})
    assert found.column("side_stream", 0) == {"a": aside, "b": False, "end0": False}


@pytest.mark.parametrize(
    ("gap", "queued"), [(0, True), (10 * US, True), (10 * US + NS, False), (-2 * US, True), (-2 * US - NS, False)]
)
def test_an_event_that_starts_when_the_one_before_it_in_its_group_ends_was_queued(gap: float, queued: bool) -> None:
    found = named_timeline({"a": ("dp", 20, 40), "t": ("tp", 25, 30), "b": ("dp", 40 + gap, 60), "x": ("tp", 60, 61)})
    assert found.column("side_stream", 0) == {"a": True, "t": False, "b": queued, "x": False, "end0": False}
    assert found.column("after", 0)["b"] == ("a" if queued or gap > 0 else None)
    if queued:
        assert found.column("lag", 0)["b"] == pytest.approx(max(0, gap))


def test_an_event_queued_behind_another_group_or_the_critical_stream_is_on_the_critical_stream() -> None:
    other = named_timeline({"a": ("dp", 20, 40), "t": ("tp", 25, 30), "b": ("dp2", 40, 60)})
    assert not other.column("side_stream", 0)["b"]
    behind = named_timeline({"a": ("dp", 20, 40), "b": ("dp", 40, 60)})
    assert not any(behind.column("side_stream", 0).values())


BUCKETS: dict[str, Span] = {
    "t1": ("tp", 10, 15),
    "a": ("dp", 30, 60),
    "t2": ("tp", 40, 45),
    "b": ("dp", 60, 80),
    "t3": ("tp", 70, 72),
}


def test_the_critical_stream_issues_side_streams_and_waits_for_the_last_event_of_each() -> None:
    found = named_timeline(BUCKETS, BUCKETS)
    assert found.column("side_stream", 0) == {
        "t1": False, "a": True, "t2": False, "b": True, "t3": False, "end0": False
    }  # fmt: skip
    assert found.column("anchor", 0) == {"t1": BEGIN, "a": "t1", "t2": "t1", "b": "t1", "t3": "t2", "end0": "t3"}
    # Queued on every rank: issued no earlier than the one before it, so b has the work of a.
    assert found.column("work", 0) == {"t1": 10, "a": 15, "t2": 25, "b": 15, "t3": 25, "end0": 28}
    assert found.column("after", 0) == {"t1": None, "a": None, "t2": None, "b": "a", "t3": None, "end0": "b"}
    assert found.column("lag", 0) == {"t1": 0, "a": 0, "t2": 0, "b": 0, "t3": 0, "end0": 20}
    assert found.self_time() == [[10 + 25 + 25 + 28]] * 2
    for name in ("side_stream", "anchor", "work", "after", "lag"):
        assert found.column(name, 1) == found.column(name, 0)


def test_of_several_side_streams_the_one_that_ended_last_is_waited_for() -> None:
    events = {
        "a": ("dp", 20, 60),
        "c": ("dp2", 30, 50),
        "t1": ("tp", 40, 45),
        "d": ("dp3", 50, 90),
        "t2": ("tp", 70, 75),
        "t3": ("tp", 90, 92),
    }
    found = named_timeline(events)
    assert {name for name, side in found.column("side_stream", 0).items() if side} == {"a", "c", "d"}
    after, lag = found.column("after", 0), found.column("lag", 0)
    # When t2 starts, a and c have ended, d has not.
    assert (after["t1"], after["t2"], after["t3"], after["end0"]) == (None, "a", "d", None)
    assert (lag["t2"], lag["t3"]) == (10, 0)


@pytest.mark.parametrize(("early", "waits"), [(0, True), (2 * US, True), (2 * US + NS, False)])
def test_a_side_stream_that_ends_two_microseconds_into_an_event_had_ended(early: float, waits: bool) -> None:
    found = named_timeline({"a": ("dp", 20, 60), "t1": ("tp", 30, 35), "t2": ("tp", 60 - early, 70)})
    assert found.column("after", 0) == {
        "a": None,
        "t1": None,
        "t2": "a" if waits else None,
        "end0": None if waits else "a",
    }
    assert found.column("lag", 0) == {"a": 0, "t1": 0, "t2": 0, "end0": 0 if waits else 40}


def test_a_side_stream_that_outlives_its_step_is_waited_for_in_the_next() -> None:
    found = named_timeline({"a": ("dp", 60, 130), "t1": ("tp", 70, 80), "t2": ("tp", 150, 160)}, ends=(100, 200))
    assert found.column("after", 0) == {"a": None, "t1": None, "end0": None, "t2": "a", "end1": None}
    assert found.column("lag", 0)["t2"] == 20


# -- the only group of a step, summed during backward --------------------------------------------------------------------

SUMS: dict[str, Span] = {"a": ("dp", 30, 40), "b": ("dp", 40.005, 50), "c": ("dp", 55, 75)}
"""40 of communication, but for 5 µs."""


@pytest.mark.parametrize(("overlapped", "aside"), [(12.0, True), (11.9, False)])
def test_sums_of_which_computing_covers_three_tenths_run_on_a_side_stream(overlapped: float, aside: bool) -> None:
    found = named_timeline(SUMS | {"b": ("dp", 40.02, 50.02)}, overlapped=[[overlapped]])
    assert found.column("side_stream", 0) == {"a": aside, "b": aside, "c": aside, "end0": False}
    if aside:
        assert found.column("after", 0) == {"a": None, "b": None, "c": None, "end0": "c"}


@pytest.mark.parametrize(
    ("overlapped", "gap", "aside"),
    [(9.1, 10 * US, True), (8.9, 0, False), (9.1, 10 * US + NS, False), (16.0, 0, True)],
)
def test_computing_beside_the_first_sum_while_the_second_queues_runs_beside_all(
    overlapped: float, gap: float, aside: bool
) -> None:
    """However long they take: 9.1 of 42 are less than three tenths, and more than three tenths of the first sum."""
    found = named_timeline({"a": ("dp", 30, 60), "b": ("dp", 60 + gap, 72)}, overlapped=[[overlapped]])
    assert found.column("side_stream", 0) == {"a": aside, "b": aside, "end0": False}
    if aside:
        assert found.column("after", 0) == {"a": None, "b": "a", "end0": "b"}
        assert found.column("lag", 0) == pytest.approx({"a": 0, "b": gap, "end0": 28})


@pytest.mark.parametrize(("gap", "queued"), [(10 * US, True), (10 * US + NS, False), (-2 * US, True), (5.0, False)])
def test_sums_on_a_side_stream_queue_within_ten_microseconds(gap: float, queued: bool) -> None:
    found = named_timeline({"a": ("dp", 30, 40), "b": ("dp", 40 + gap, 60)}, overlapped=[[20]])
    assert found.column("side_stream", 0) == {"a": True, "b": True, "end0": False}
    assert found.column("after", 0)["b"] == ("a" if queued else None)
    assert found.column("lag", 0)["b"] == pytest.approx(max(0, gap) if queued else 0)


@pytest.mark.parametrize(("early", "queued"), [(2 * US, True), (2 * US + NS, False)])
def test_sums_that_run_side_by_side_do_not_queue(early: float, queued: bool) -> None:
    """Rank 1 shows that the group runs on a side stream: 20 of its 30 are covered."""
    sums: dict[str, Span] = {"a": ("dp", 30, 40), "b": ("dp", 40, 60)}
    found = named_timeline(sums | {"b": ("dp", 40 - early, 60)}, sums, overlapped=[[None], [20]])
    assert found.column("side_stream", 0) == {"a": True, "b": True, "end0": False}
    assert found.column("after", 0) == {"a": None, "b": "a" if queued else None, "end0": "b"}


def test_the_rank_that_hides_most_tells_and_the_median_step_decides() -> None:
    first = {name: ("dp", start, end) for name, (_, start, end) in SUMS.items()}
    steps = {
        f"{name}{n}": ("dp", start + 100 * n, end + 100 * n)
        for n in range(3)
        for name, (_, start, end) in first.items()
    }
    hidden = named_timeline(steps, steps, ends=(100, 200, 300), overlapped=[[0, 0, 15], [15, 0, 0]])
    assert hidden.column("side_stream", 0)["a1"] and hidden.column("side_stream", 1)["a1"]
    shown = named_timeline(steps, steps, ends=(100, 200, 300), overlapped=[[0, 0, 15], [0, 0, 15]])
    assert not any(shown.column("side_stream", 0).values())


GATHER = ("tp", 80, 90)


@pytest.mark.parametrize(
    ("events", "ops", "aside"),
    [
        (SUMS, {}, "abc"),
        (SUMS, {"a": "reduce_scatter", "b": "reduce_scatter", "c": "reduce_scatter"}, "abc"),
        (SUMS, {"a": "all_gather", "b": "all_gather", "c": "all_gather"}, ""),
        ({"c": SUMS["c"]}, {}, "c"),
        (SUMS | {"x": GATHER}, {}, "abc"),
        ({"c": SUMS["c"], "x": GATHER}, {}, ""),  # one sum among others
        ({"x": ("tp", 5, 9), "b": ("dp", 40, 50), "c": ("dp", 55, 70)}, {}, "bc"),
        ({"b": ("dp", 40, 50), "c": ("dp", 55, 70), "x": ("tp", 70, 95)}, {}, "bc"),  # half of the communication
        ({"b": ("dp", 40, 50), "c": ("dp", 55, 70), "x": ("tp", 70, 95.1)}, {}, ""),  # less than half
        ({"b": ("dp", 40, 50), "x": ("tp", 52, 54), "c": ("dp", 55, 70)}, {}, ""),  # something in between
    ],
)
def test_only_sums_that_nothing_interrupts_or_outweighs_are_taken_for_a_side_stream(
    events: dict[str, Span], ops: dict[str, str], aside: str
) -> None:
    found = named_timeline(events, ops=ops, overlapped=[[20]])
    assert "".join(name for name, side in found.column("side_stream", 0).items() if side) == aside


def test_what_side_streams_hide_is_no_overlap_of_the_critical_stream() -> None:
    # 62 of communication, a and b take 50 of it.
    found = named_timeline(BUCKETS, overlapped=[[56.3]])
    assert found.column("overlap", 0) == pytest.approx({"t1": 5, "a": 0, "t2": 1.3, "b": 0, "t3": 0, "end0": 0})
    none = named_timeline(BUCKETS, overlapped=[[56.2]])
    assert set(none.column("overlap", 0).values()) == {0}


# -- work and waiting where a side stream decided ------------------------------------------------------------------------

SOONER = BUCKETS | {"a": ("dp", 30, 50), "b": ("dp", 55, 80)}
"""b is issued 10 after t2, without having been queued."""


def test_a_queued_event_was_issued_where_ranks_that_did_not_wait_issue_it() -> None:
    found = named_timeline(BUCKETS, SOONER)
    assert found.column("after", 1)["b"] is None and found.column("work", 1)["b"] == 10
    assert (found.column("anchor", 0)["b"], found.column("work", 0)["b"]) == ("t2", 10)


def test_a_queued_event_was_issued_no_later_than_it_started() -> None:
    later = BUCKETS | {"a": ("dp", 30, 50), "b": ("dp", 65, 80)}  # 20 after t2
    found = named_timeline(BUCKETS, later)
    assert (found.column("anchor", 0)["b"], found.column("work", 0)["b"]) == ("t2", 15)


@pytest.mark.parametrize(
    ("exposed", "work"),
    [
        # The step's own work is 100 - 35; 10 of it follow the last sum, so that backward ends at 55.
        (35, {"a": 30, "b": 30 + (55 - 30) / 2, "c": 55, "end0": 65}),
        (5, {"a": 30, "b": 50, "c": 70, "end0": 95}),  # at 57.5 and 85, were that not after they began
        (65, {"a": 30, "b": 30, "c": 30, "end0": 35}),  # backward had ended at 25
    ],
)
def test_sums_that_queue_on_every_rank_were_issued_as_backward_went_on(exposed: float, work: dict[str, float]) -> None:
    sums: dict[str, Span] = {"a": ("dp", 30, 50), "b": ("dp", 50, 70), "c": ("dp", 70, 90)}
    found = named_timeline(sums, overlapped=[[25]], exposed=[[exposed]])
    assert found.column("after", 0) == {"a": None, "b": "a", "c": "b", "end0": "c"}
    assert found.column("work", 0) == pytest.approx(work)
    assert set(found.column("anchor", 0).values()) == {BEGIN}


def test_sums_that_queue_on_every_rank_were_issued_before_the_next_that_does_not() -> None:
    """b and c queue behind a, d does not: 30 + (90 - 30) · 1 / 3 and · 2 / 3."""
    sums: dict[str, Span] = {"a": ("dp", 30, 80), "b": ("dp", 80, 83), "c": ("dp", 83, 85), "d": ("dp", 90, 95)}
    found = named_timeline(sums, overlapped=[[51]], exposed=[[9]])
    assert found.column("after", 0) == {"a": None, "b": "a", "c": "b", "d": None, "end0": "d"}
    assert found.column("work", 0) == pytest.approx({"a": 30, "b": 50, "c": 70, "d": 90, "end0": 91})


def test_a_slower_rank_issues_as_much_later() -> None:
    # Recorded self times are 80 and 120, so ranks are 0.8 and 1.2 times the median; 12 / 1.2 · 0.8 = 8.
    other = BUCKETS | {"a": ("dp", 30, 50), "b": ("dp", 57, 80)}
    found = named_timeline(BUCKETS, other, ends=(140,), exposed=[[60], [20]])
    assert found.column("work", 1)["b"] == 12 and found.column("work", 0)["b"] == pytest.approx(8)


@pytest.mark.parametrize(
    ("exposed", "work"),
    [
        ([[None], [20]], 10),
        ([[140], [140]], 10),
        ([[140], [20]], 10 / (120 / 60)),  # the median of 0 and 120 is 60
        ([[150], [20]], 10 / (120 / 55)),  # of -10 and 120
    ],
)
def test_a_rank_of_unknown_speed_is_as_fast_as_the_median(exposed: list[list[float | None]], work: float) -> None:
    found = named_timeline(BUCKETS, SOONER, ends=(140,), exposed=exposed)
    assert found.column("work", 0)["b"] == pytest.approx(work)


EARLY = BUCKETS | {"a": ("dp", 12, 50), "t1": ("tp", 20, 25), "b": ("dp", 52, 80), "t2": ("tp", 60, 62)}
"""b is issued 27 after t1, before t2."""


@pytest.mark.parametrize(
    ("others", "anchor", "work"),
    [
        ((EARLY, SOONER, SOONER | {"b": ("dp", 54, 80)}), "t2", 9),  # the least of 10 and 9
        ((SOONER, EARLY, EARLY), "t1", 27),
        ((EARLY, SOONER), "t1", 27),  # as many: the first
    ],
)
def test_most_ranks_decide_where_an_event_is_issued(
    others: tuple[dict[str, Span], ...], anchor: str, work: float
) -> None:
    found = named_timeline(BUCKETS, *others)
    assert (found.column("anchor", 0)["b"], found.column("work", 0)["b"]) == (anchor, work)


def test_an_event_is_not_issued_by_one_that_had_not_ended() -> None:
    late = BUCKETS | {"t1": ("tp", 35, 38), "t2": ("tp", 70, 72), "t3": ("tp", 75, 77)}
    found = named_timeline(late, SOONER, SOONER, EARLY)
    assert (found.column("anchor", 0)["b"], found.column("work", 0)["b"]) == ("t1", 22)  # 60 - 38 is less than 27


def test_two_microseconds_too_late_is_rounding() -> None:
    found = named_timeline(BUCKETS | {"t2": ("tp", 40, 60 + 2 * US)}, SOONER)
    assert (found.column("anchor", 0)["b"], found.column("work", 0)["b"]) == ("t2", 0)


def next_step(queued: bool) -> dict[str, Span]:
    """In the second step an event is issued right after the end of the first."""
    begin = 105.0 if queued else 109.0
    return {
        "t1": ("tp", 10, 15),
        "a0": ("dp", 60, 105 if queued else 103),
        "u": ("tp", 70, 75),
        "a1": ("dp", begin, 140),
        "t2": ("tp", 120, 125),
    }


def test_an_event_at_the_begin_of_a_step_is_issued_by_the_end_of_the_one_before() -> None:
    found = named_timeline(next_step(True), next_step(False), ends=(100, 200))
    assert found.column("after", 0)["a1"] == "a0"
    assert (found.column("anchor", 1)["a1"], found.column("work", 1)["a1"]) == ("end0", 9)
    assert (found.column("anchor", 0)["a1"], found.column("work", 0)["a1"]) == ("end0", 5)
    found = named_timeline(next_step(True), next_step(False), ends=(50, 100, 200))
    assert (found.column("anchor", 0)["a1"], found.column("work", 0)["a1"]) == ("end1", 5)


def test_an_event_of_an_earlier_step_other_than_its_end_issues_nothing() -> None:
    # On rank 1, u issues a1, late in its step; on rank 0 the only u that has ended is that of the step before.
    events = {"a0": ("dp", 60, 103), "u0": ("tp", 70, 75), "u1": ("tp", 130, 132), "a1": ("dp", 134, 160)}
    issuer = events | {"v1": ("ep", 140, 142)}
    waits = events | {"a0": ("dp", 60, 105), "a1": ("dp", 105, 160), "v1": ("ep", 140, 142)}
    found = named_timeline(waits, issuer, ends=(100, 200))
    assert (found.column("after", 0)["a1"], found.column("anchor", 1)["a1"]) == ("a0", "u1")
    # So it is issued with the one before it in its queue, which begins 60 after the begin.
    assert (found.column("anchor", 0)["a1"], found.column("work", 0)["a1"]) == (BEGIN, 60)


JOINED = BUCKETS | {"b": ("dp", 60, 80), "j": ("ep", 85, 95)}
"""13 behind t3; self time is 10 at the first event, 60 at t3 and 73 at j."""
WAITED = BUCKETS | {"b": ("dp", 60, 90), "j": ("ep", 92, 95)}
"""20 behind t3, 2 after b has ended."""


@pytest.mark.parametrize(
    ("waited", "other", "work"),
    [
        (WAITED, JOINED, 13),
        # The other came another way: 75 at j, 65 since its first event. Here t3 is 50 after the first event.
        (WAITED, {name: span for name, span in JOINED.items() if name != "t3"}, 15),
        # t3 comes 5 later: what others have done at j since their first event, 63, is 8 more than 55.
        (WAITED | {"t3": ("tp", 75, 77)}, JOINED, 8),
        (WAITED | {"t3": ("tp", 85, 87)}, JOINED, 0),
        # Late input makes nothing else late: 63 + 14 - 60 = 17 is more than 13.
        (WAITED | {"t1": ("tp", 14, 19)}, JOINED, 13),
    ],
)
def test_the_critical_stream_waited_for_what_exceeds_the_work_of_others(
    waited: dict[str, Span], other: dict[str, Span], work: float
) -> None:
    found = named_timeline(waited, other)
    assert found.column("after", 0)["j"] == "b" and found.column("work", 0)["j"] == work


def test_computing_during_communication_is_self_time_on_the_way() -> None:
    # 75 of communication, 60 of it on side streams; all of the rest is covered: t3 is reached with 70, and adds 2.
    found = named_timeline(WAITED, JOINED, overlapped=[[75], [None]])
    assert found.column("overlap", 0)["t3"] == 2 and found.column("self_time_until", 0)["t3"] == 70
    assert found.column("work", 0)["j"] == 1  # 63 + 10 - 72


@pytest.mark.parametrize(("start", "work"), [(28, 78), (35, 73)])
def test_a_rank_that_waited_first_of_all_worked_no_longer_than_others(start: float, work: float) -> None:
    # x is reached 80 and 78 after the begin; since the first event, 50 here and 78 - start there.
    here, there = SUMS | {"x": ("tp", 80, 82)}, SUMS | {"a": ("dp", start, 40), "x": ("tp", 78, 82)}
    found = named_timeline(here, there, overlapped=[[20], [20]])
    assert (found.column("anchor", 0)["x"], found.column("after", 0)["x"]) == (BEGIN, "c")
    assert found.column("work", 0)["x"] == work


# -- the recorded split --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exposed", "self_time", "work"),
    [
        (30.0, 70, 10),  # the chain has 88, of which 18 were waiting before the end
        (80.0, 60, 0),  # not more than the whole gap
        (5.0, 95, 28),  # 57 of 62 are covered, 7 of them not on side streams: 88 + 7
    ],
)
def test_the_self_time_of_a_step_is_what_was_recorded(exposed: float, self_time: float, work: float) -> None:
    found = named_timeline(BUCKETS, exposed=[[exposed]])
    assert found.self_time() == [[self_time]] and found.column("work", 0)["end0"] == work


def test_where_the_split_is_recorded_other_ranks_are_not_asked() -> None:
    found = named_timeline(WAITED, JOINED, exposed=[[10], [None]])
    # 90 recorded; the chain has 10 + 25 + 25 + 20 + 5, and 5 of 75 - 10 - 60, too little to be an overlap.
    assert found.column("work", 0)["j"] == 20


def test_each_step_has_its_own_split() -> None:
    second = {f"{name}'": (group, start + 100, end + 100) for name, (group, start, end) in BUCKETS.items()}
    found = named_timeline(BUCKETS | second, ends=(100, 200), exposed=[[30, 20]])
    assert found.self_time() == [[70, 80]]


@pytest.mark.parametrize(
    ("t3", "g", "t4", "works"),
    [
        (("tp", 60, 62), ("dp2", 65, 80), ("tp", 70, 72), (15, 28 - 10)),
        (("tp", 80, 82), ("dp2", 84, 95), ("tp", 90, 92), (35 - 10, 8)),
    ],
)
def test_waiting_is_taken_from_the_longest_gap_before_which_the_critical_stream_waited(
    t3: Span, g: Span, t4: Span, works: tuple[float, float]
) -> None:
    events = {"t1": ("tp", 10, 15), "a": ("dp", 30, 50), "t2": ("tp", 40, 45), "t3": t3, "g": g, "t4": t4}
    found = named_timeline(events, exposed=[[24]])  # 76 recorded, the chain has 86
    assert found.column("after", 0) | {"t1": None} == {
        "t1": None, "a": None, "t2": None, "t3": "a", "g": None, "t4": None, "end0": "g"
    }  # fmt: skip
    assert (found.column("work", 0)["t3"], found.column("work", 0)["end0"]) == works


# -- places in the program -----------------------------------------------------------------------------------------------


def test_ranks_and_steps_that_run_one_program_have_equal_places() -> None:
    def rank(groups: tuple[str, str], shift: float = 0.0) -> dict[str, Span]:
        first, second = groups
        return {
            f"{name}{step}": (group, 100 * step + start, 100 * step + start + 5)
            for step in (0, 1)
            for name, group, start in (
                ("a", first, 10),
                ("b", first, 20),
                ("c", second, 30),
                ("d", "dp", 40 - shift),
                ("e", first, 50),
            )
        }

    found = named_timeline(
        rank(("t0", "u0")), rank(("t0", "u0"), 25), rank(("t1", "u1")), rank(("t1", "u1")), ends=(100, 200)
    )
    places = [found.column("place", number) for number in range(4)]
    assert places[0] == places[1] == places[2] == places[3]
    for name in ("a", "b", "c", "d", "e", "end"):
        assert places[0][f"{name}0"] == places[0][f"{name}1"]
    assert len(set(places[0].values())) == 6


def test_groups_of_another_size_are_other_places() -> None:
    both = {"a": ("t", 10, 15)}
    found = named_timeline(both | {"b": ("u", 20, 25)}, both, {"a": ("v", 10, 15)})
    assert found.column("place", 0)["a"] == found.column("place", 1)["a"] != found.column("place", 2)["a"]
    assert found.column("place", 0)["b"] == found.column("place", 2)["a"]  # alone, and the first of those


# -- where computing was recorded kernel by kernel -----------------------------------------------------------------------

STEADY = [(0.0, 30.0), (30.0, 50.0), (60.0, 80.0), (80.0, 90.0)]
"""Kernels of a rank that waits from 50 to 60."""


def test_the_rank_that_comes_last_has_the_streams_of_the_others() -> None:
    """Rank 1 comes last to a: nothing starts inside it there, but on rank 0 b does, and both compute meanwhile."""
    waits = {"a": ("dp", 30, 85), "b": ("tp", 50, 60)}
    comes = {"a": ("dp", 75, 85), "b": ("tp", 55, 60)}
    found = named_timeline(waits, comes, kernels=[STEADY, [(0, 55), (60, 90)]])
    assert [found.column("side_stream", rank)["a"] for rank in (0, 1)] == [True, True]
    assert [found.column("side_stream", rank)["b"] for rank in (0, 1)] == [False, False]
    blind = named_timeline(waits, comes)
    assert [blind.column("side_stream", rank)["a"] for rank in (0, 1)] == [True, True]


def test_what_comes_last_to_a_queue_still_holds_up_what_follows_it() -> None:
    """b queues behind a on rank 0; rank 1 comes to b later, with nothing to compute meanwhile, and c queues behind it."""
    waits = {"a": ("dp", 30, 80), "b": ("dp", 80, 90), "c": ("dp", 90, 92)}
    comes = {"a": ("dp", 60, 80), "b": ("dp", 84, 90), "c": ("dp", 90, 92)}
    found = named_timeline(waits, comes, kernels=[[(0, 70)], [(0, 84)]])
    assert [found.column("side_stream", rank)["b"] for rank in (0, 1)] == [True, True]
    assert [found.column("after", rank)["c"] for rank in (0, 1)] == ["b", "b"]


def test_an_event_beside_which_nobody_computes_is_waited_for_though_another_starts_inside() -> None:
    """While t is waited for, sums that were issued before it begin."""
    one = {"t": ("tp", 50, 60), "a": ("dp", 55, 85)}
    assert not named_timeline(one, kernels=[STEADY]).column("side_stream", 0)["t"]
    assert named_timeline(one).column("side_stream", 0)["t"]


@pytest.mark.parametrize(("end", "aside"), [(66.0, True), (64.0, False)])
def test_an_event_beside_which_the_rank_that_hides_most_computes_is_on_a_side_stream(end: float, aside: bool) -> None:
    """From 50 on: 10 of waiting, then computing, of which 3/10 have to be beside it; 6 of 16, 4 of 14. Rank 1 only waits."""
    found = named_timeline({"a": ("dp", 50, end)}, {"a": ("dp", 50, end)}, kernels=[STEADY, [(0, 50), (90, 95)]])
    assert [found.column("side_stream", rank)["a"] for rank in (0, 1)] == [aside, aside]


def test_computing_beside_the_critical_stream_is_what_was_recorded_there_and_not_dealt_out() -> None:
    """t1 only waits, t2 hides 2 of 10; the step's sum of 30 is not asked."""
    one = {"t1": ("tp", 50, 60), "t2": ("tp", 88, 98)}
    found = named_timeline(one, kernels=[STEADY], overlapped=[[30]])
    assert found.column("overlap", 0) == {"t1": 0, "t2": 2, "end0": 0}
    assert named_timeline(one, overlapped=[[30]]).column("overlap", 0) == {"t1": 10, "t2": 10, "end0": 0}


def test_a_queued_event_was_issued_after_as_many_kernels_as_where_it_did_not_queue() -> None:
    """Rank 1 issues b at 50, after two kernels; rank 0 had computed two at 25, while a was still on its way."""
    fast = {"a": ("dp", 10, 62), "b": ("dp", 62, 75)}
    slow = {"a": ("dp", 20, 40), "b": ("dp", 51, 75)}
    kernels = [[(0, 10), (10, 25), (25, 90)], [(0, 20), (20, 50), (50, 90)]]
    found = named_timeline(fast, slow, kernels=kernels)
    assert found.column("after", 0)["b"] == "a" and found.column("after", 1)["b"] is None
    assert (found.column("anchor", 0)["b"], found.column("work", 0)["b"]) == (BEGIN, 25)
    assert (found.column("anchor", 1)["b"], found.column("work", 1)["b"]) == (BEGIN, 51)


def test_a_queued_event_was_issued_no_later_than_it_began_whatever_was_computed() -> None:
    fast = {"a": ("dp", 10, 20), "b": ("dp", 20, 75)}
    slow = {"a": ("dp", 5, 20), "b": ("dp", 51, 75)}
    kernels = [[(0, 10), (10, 25), (25, 90)], [(0, 5), (20, 50), (50, 90)]]
    found = named_timeline(fast, slow, kernels=kernels)
    assert (found.column("anchor", 0)["b"], found.column("work", 0)["b"]) == (BEGIN, 20)


def test_in_later_steps_kernels_are_counted_from_the_begin_of_the_step() -> None:
    """The second step of the first rank: b queues; issued after one kernel of that step, which ends at 125."""
    fast = {"x": ("tp", 40, 50), "a": ("dp", 110, 162), "b": ("dp", 162, 175)}
    slow = {"x": ("tp", 40, 50), "a": ("dp", 120, 140), "b": ("dp", 151, 175)}
    kernels = [[(0, 40), (105, 125), (125, 190)], [(0, 40), (100, 150), (151, 190)]]
    found = named_timeline(fast, slow, ends=(100, 200), kernels=kernels)
    assert (found.column("anchor", 0)["b"], found.column("work", 0)["b"]) == ("end0", 25)
