"""Which events are one collective or message, and what an instance took; on events made by hand."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest

from paceline.metrics.communication.comm_events import _frequent_pairs, read_events
from paceline.metrics.steps import NO_STEP
from support.comm_tables import Event, collective, comm_events
from support.fake_run import FakeRun

US = 1_000
MS = 1_000_000
Row = dict[str, Any]
Names = set[tuple[str, ...]]


def joined(rows: dict[str, Row]) -> Names:
    """Names of the events of each instance that has more than one."""
    events = read_events(FakeRun(collectives=list(rows.values())))
    names = {(row["rank"], row["start"]): name for name, row in rows.items()}
    found: dict[int, list[str]] = defaultdict(list)
    for rank, start, instance in zip(events.ranks[events.rank], events.start, events.instance, strict=True):
        found[int(instance)].append(names[rank, start])
    assert sorted(found) == list(range(len(found)))
    return {tuple(sorted(some)) for some in found.values() if len(some) > 1}


# -- events and instances as arrays --------------------------------------------------------------------------------------


def test_an_instance_takes_what_the_last_to_arrive_saw() -> None:
    events = comm_events(Event(3, 10, 50, 1), Event(5, 35, 52, 1), Event(7, 30, 51, 1), Event(7, 60, 65, 0))
    assert (events.instances, events.members.tolist()) == (2, [1, 3])
    assert events.duration.tolist() == [40, 17, 21, 5]
    assert events.transfer.tolist() == [5, 17] and events.last_start.tolist() == [60, 35]
    assert events.first_row.tolist() == [3, 0]


def test_the_transfer_of_a_buffered_message_runs_from_its_send_to_its_arrival() -> None:
    sides = [Event(0, 0, 5, 0, "send"), Event(1, 3, 40, 0, "receive")]
    assert comm_events(*sides).transfer.tolist() == [5]
    assert len(comm_events(*sides).buffered.sent) == 0
    buffered = comm_events(*sides, buffered_sends=True)
    assert buffered.transfer.tolist() == [40] and buffered.buffered.latency.tolist() == [40]


def test_without_events_there_are_no_instances() -> None:
    events = read_events(FakeRun())
    assert (events.instances, len(events.members), len(events.transfer), events.buffered_sends) == (0, 0, 0, False)


# -- reading -------------------------------------------------------------------------------------------------------------


def test_events_come_by_rank_and_start_and_unknown_values_have_their_marks() -> None:
    rows = [
        collective(4, 30, 40, sequence=1, bytes=7),
        collective(4, 10, 25, sequence=0, bytes=None),
        collective(2, 20, 15, step=None, sequence=0, bytes=None),  # a clock that went back
        collective(2, None, None),
    ]
    events = read_events(FakeRun(collectives=rows))
    assert events.ranks.tolist() == [2, 4] and events.rank.tolist() == [0, 1, 1]
    assert (events.start.tolist(), events.end.tolist()) == ([20, 10, 30], [20, 25, 40])
    assert events.bytes.tolist() == [-1, -1, 7] and events.step.tolist() == [0, 0, 0]
    assert events.group_key.tolist() == ["g"] * 3 and events.op.tolist() == ["all_reduce"] * 3


@pytest.mark.parametrize(("steps", "starts"), [(None, [0, 1, 2]), ((1,), [1]), ((0, 2), [0, 2]), ((), [])])
def test_only_the_steps_asked_for_are_read(steps: tuple[int, ...] | None, starts: list[int]) -> None:
    run = FakeRun(collectives=[collective(0, step or 0, 9, step=step) for step in (None, 1, 2)])
    assert read_events(run, steps).start.tolist() == starts


def test_what_belongs_to_no_step_is_not_in_step_0_where_steps_were_recorded() -> None:
    rows = [collective(0, 10, 20, step=None), collective(0, 30, 40, step=0)]
    steps = [{"rank": 0, "step": 0, "duration": 50}]
    assert read_events(FakeRun(collectives=rows, steps=steps)).step.tolist() == [NO_STEP, 0]
    assert read_events(FakeRun(collectives=rows, steps=steps), (0,)).start.tolist() == [30]
    unmeasured = [{"rank": 0, "step": 0, "duration": None}]
    assert read_events(FakeRun(collectives=rows, steps=unmeasured)).step.tolist() == [0, 0]


def test_without_a_group_collectives_go_by_name_and_messages_together() -> None:
    rows = [collective(0, 0, 1, group=None, name="ar"), collective(0, 2, 3, group=None, name="s", op="send")]
    rows += [collective(0, 4, 5, group=None, name=op, op=op) for op in ("receive", "send_receive")]
    assert read_events(FakeRun(collectives=rows)).group_key.tolist() == ["ar", "p2p", "p2p", "p2p"]


@pytest.mark.parametrize(
    ("times", "buffered"), [((0, 10 * US, 100 * US), True), ((0, 10 * US, 11 * US), False)], ids=str
)
def test_a_run_knows_whether_its_sends_wait(times: tuple[int, int, int], buffered: bool) -> None:
    begin, sent, received = times
    rows = [
        row
        for n in range(4)
        for row in (
            collective(0, n * MS + begin, n * MS + sent, op="send", sequence=n),
            collective(1, n * MS + begin, n * MS + received, op="receive", sequence=n),
        )
    ]
    events = read_events(FakeRun(collectives=rows))
    assert events.buffered_sends is buffered and events.members.tolist() == [2] * 4


# -- joining collectives -------------------------------------------------------------------------------------------------


def test_step_group_operator_and_sequence_name_a_collective() -> None:
    assert joined(
        {
            "a0": collective(0, 0, 10),
            "b0": collective(0, 20, 30, sequence=1),
            "c0": collective(0, 40, 50, step=1),
            "d0": collective(0, 60, 70, group="h"),
            "e0": collective(0, 80, 90, op="all_gather"),
            "f0": collective(0, 100, 110, sequence=None),
            "a1": collective(1, 5, 10),
            "b1": collective(1, 25, 30, sequence=1),
            "c1": collective(1, 45, 50, step=1),
            "d1": collective(1, 65, 70, group="h"),
            "e1": collective(1, 85, 90, op="all_gather"),
            "f1": collective(1, 105, 110, sequence=None),
            "a2": collective(2, 7, 10),
        }
    ) == {("a0", "a1", "a2"), ("b0", "b1"), ("c0", "c1"), ("d0", "d1"), ("e0", "e1")}


def test_a_collective_that_a_rank_has_twice_is_joined_with_none() -> None:
    twice = {"a0": collective(0, 0, 10), "b0": collective(0, 20, 30), "a1": collective(1, 0, 10)}
    other = {"c0": collective(0, 40, 50, sequence=3), "c1": collective(1, 40, 50, sequence=3)}
    assert joined(twice | other) == {("c0", "c1")}


# -- pairing messages by number ------------------------------------------------------------------------------------------


def send(rank: int, end: float, sequence: int | None = 0, **more: Any) -> Row:
    return collective(rank, end - 5, end, op="send", sequence=sequence, **more)


def receive(rank: int, end: float, sequence: int | None = 0, **more: Any) -> Row:
    return collective(rank, end - 5, end, op="receive", sequence=sequence, **more)


def both(rank: int, end: float, sequence: int | None = 0, **more: Any) -> Row:
    return collective(rank, end - 5, end, op="send_receive", sequence=sequence, **more)


def test_two_ranks_pair_their_messages_by_number_and_direction() -> None:
    assert joined(
        {
            "s0": send(0, 10),
            "t0": send(0, 20, 1),
            "u0": send(0, 25, 0, step=1),
            "r0": receive(0, 30),
            "r1": receive(1, 9 * MS),
            "q1": receive(1, 8 * MS, 1),
            "p1": receive(1, 7 * MS, 0, step=1),
            "s1": send(1, 6 * MS),
        }
    ) == {("r1", "s0"), ("q1", "t0"), ("r0", "s1"), ("p1", "u0")}


def test_messages_with_one_number_are_paired_by_their_ends() -> None:
    sends = {f"s{n}": send(0, n * 10 * MS, None) for n in (1, 2, 3)}
    receives = {f"r{n}": receive(1, n * 10 * MS, None) for n in (1, 2, 3)}
    assert joined(sends | receives) == {("r1", "s1"), ("r2", "s2"), ("r3", "s3")}


def test_peers_that_are_named_tell_who_sent_to_whom() -> None:
    assert joined(
        {
            "a": send(0, 10, peer=1),
            "b": send(0, 20, peer=2),
            "c": receive(1, 5 * MS, peer=0),
            "d": receive(2, 6 * MS, peer=0),
            "e": send(2, 7 * MS, peer=1),
            "f": receive(1, 9 * MS, peer=2),
        }
    ) == {("a", "c"), ("b", "d"), ("e", "f")}


def test_numbers_that_count_all_messages_of_a_rank_are_no_numbers_of_messages() -> None:
    """Rank 1 of a pipeline: its second send is the first to rank 2, whose first receive from it is its second in all."""
    assert joined(
        {
            "to0": send(1, 10, 0, peer=0),
            "first": send(1, 20, 1, peer=2),
            "second": send(1, 30, 2, peer=2),
            "at0": receive(0, 5 * MS, 0, peer=1),
            "from3": receive(2, 4 * MS, 0, peer=3),
            "got first": receive(2, 6 * MS, 2, peer=1),
            "got second": receive(2, 7 * MS, 3, peer=1),
        }
    ) >= {("first", "got first"), ("got second", "second")}


@pytest.mark.parametrize(
    ("ends", "pairs"),
    [
        ((10, 20, 30), {("s0", "r0"), ("s1", "r1"), ("s2", "r2")}),  # in order both sides end together
        ((20, 30, 40), {("s1", "r0"), ("s2", "r1")}),  # by number they do: the first that came and the last are missing
    ],
)
def test_of_two_ranks_that_number_from_elsewhere_messages_keep_their_order_if_they_end_together(
    ends: tuple[int, ...], pairs: set[tuple[str, str]]
) -> None:
    sends = {f"s{n}": send(0, 10 * (n + 1) * MS, n) for n in range(3)}
    receives = {f"r{n}": receive(1, end * MS, n + 1) for n, end in enumerate(ends)}
    assert joined(sends | receives) == {tuple(sorted(pair)) for pair in pairs}


def test_groups_are_paired_each_for_itself() -> None:
    assert joined(
        {"a": send(0, 10), "b": receive(1, 9 * MS), "c": send(0, 20, group="h"), "d": receive(2, 9 * MS, group="h")}
    ) == {("a", "b"), ("c", "d")}


def test_both_sides_of_a_combined_call_are_one_message() -> None:
    calls = {"a": both(0, 10), "b": both(1, 9 * MS), "c": both(0, 20, 1), "d": both(1, 8 * MS, 1)}
    assert joined(calls) == {("a", "b"), ("c", "d")}
    assert joined({"a": both(0, 10), "b": send(1, 10)}) == set()
    three = {
        "a": both(0, 10, peer=1),
        "b": both(1, 9 * MS, peer=0),
        "c": both(2, 10, peer=1),
        "d": both(1, 8 * MS, peer=2),
    }
    assert joined(three) == {("a", "b"), ("c", "d")}


def test_a_message_whose_number_its_other_side_lacks_is_paired_by_its_end() -> None:
    assert joined({"a": send(0, 10, 4), "b": receive(1, 12, 5)}) == {("a", "b")}


# -- pairing messages by their ends --------------------------------------------------------------------------------------


def chain(*, late: float) -> dict[str, Row]:
    """Rank 0 sends to 1 and 1 to 2, numbered differently on each side; receives end so much later than their sends."""
    return {
        "s0": send(0, 10 * MS, 7),
        "r1": receive(1, 10 * MS + late, 3),
        "s1": send(1, 30 * MS, 4),
        "r2": receive(2, 30 * MS + late, 9),
    }


@pytest.mark.parametrize(("late", "paired"), [(500_000, True), (500_001, False), (-500_000, True), (-500_001, False)])
def test_ends_of_a_message_are_at_most_half_a_millisecond_apart(late: int, paired: bool) -> None:
    assert joined(chain(late=late)) == ({("r1", "s0"), ("r2", "s1")} if paired else set())


def test_the_nearest_end_is_the_other_side_if_each_is_the_others() -> None:
    near = {"q0": send(0, 10 * MS + 300 * US, 8)}
    assert joined(chain(late=100 * US) | near) == {("r1", "s0"), ("r2", "s1")}


def test_a_send_is_never_paired_with_a_send_nor_with_its_own_rank() -> None:
    far = {"x": receive(1, 20 * MS, 3), "y": send(2, 40 * MS)}
    assert joined({"a": send(0, 10, 1), "b": receive(0, 10, 2), **far}) == set()
    assert joined({"a": send(0, 10, 1), "b": send(1, 10, 2), **far}) == set()


def test_combined_calls_of_three_ranks_are_paired_by_their_ends() -> None:
    calls = {"a": both(0, 10), "b": both(1, 20), "c": both(1, 30 * MS, 1), "d": both(2, 30 * MS, 1)}
    assert joined(calls) == {("a", "b"), ("c", "d")}


def test_ranks_that_are_partners_now_and_then_are_passed_over_for_the_usual_one() -> None:
    rows: dict[str, Row] = {}
    for n in range(4):
        rows |= {f"s{n}": send(0, 10 * n * MS, 100 + n), f"r{n}": receive(1, 10 * n * MS + 10, 200 + n)}
    # Once, rank 4 happens to end nearer; it is as far from rank 0 as nobody else.
    rows |= {"s9": send(0, 90 * MS, 109), "x": receive(4, 90 * MS + 5, 300), "r9": receive(1, 90 * MS + 10, 209)}
    assert joined(rows) == {*((f"r{n}", f"s{n}") for n in range(4)), ("r9", "s9")}


@pytest.mark.parametrize(("between", "paired"), [(63, True), (64, False)])
def test_sixty_four_ends_around_are_looked_at(between: int, paired: bool) -> None:
    rows = {"s": send(0, 10 * MS), "r": receive(1, 10 * MS + 100), "far": send(2, 90 * MS)}
    rows |= {f"own{n}": send(1, 10 * MS + 10 + n, 5 + n) for n in range(between)}
    assert joined(rows) == ({("r", "s")} if paired else set())


@pytest.mark.parametrize(
    ("votes", "partners"),
    [
        ({(0, 2): 20, (2, 4): 10}, {(0, 2), (2, 4)}),  # half as often as the best partner of rank 2
        ({(0, 2): 20, (2, 4): 9}, {(0, 2)}),
        ({(0, 2): 10, (2, 0): 10, (2, 4): 5, (4, 2): 5}, {(0, 2), (2, 0), (2, 4), (4, 2)}),  # both directions count
        ({(0, 1): 10, (2, 4): 4}, {(0, 1), (2, 4)}),  # two apart: 0.4 of the votes of one apart
        ({(0, 1): 10, (2, 4): 3}, {(0, 1)}),
        ({(0, 1): 10, (2, 3): 3, (5, 4): 3}, {(0, 1), (2, 3), (5, 4)}),  # one apart, all of them
        ({(0, 1): 6, (4, 2): 2, (5, 7): 2, (6, 8): 2}, {(0, 1), (4, 2), (5, 7), (6, 8)}),
    ],
)
def test_partners_are_frequent_and_as_many_ranks_apart_as_others(
    votes: dict[tuple[int, int], int], partners: set[tuple[int, int]]
) -> None:
    assert _frequent_pairs(Counter(votes), list(range(9))) == partners


def test_the_last_of_a_ring_sends_to_the_first() -> None:
    ring = {(4, 5): 10, (5, 6): 10, (6, 7): 10, (7, 4): 10}
    assert _frequent_pairs(Counter(ring), [4, 5, 6, 7]) == set(ring)


def test_nobody_is_a_partner_without_votes() -> None:
    assert _frequent_pairs(Counter(), []) == set()
