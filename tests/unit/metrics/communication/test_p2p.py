"""Messages whose sender does not wait, from times made up so that every limit is just met or just missed."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.metrics.communication.p2p import Buffered, are_buffered, buffered_messages, message_rows

US = 1_000


def test_sends_are_joined_with_the_receives_of_their_instance() -> None:
    op = np.array(["send", "receive", "all_reduce", "receive", "send", "send"], dtype=object)
    sent, received = message_rows(op, np.array([4, 7, 1, 4, 7, 9]))
    assert (sent.tolist(), received.tolist()) == ([0, 4], [3, 1])  # nobody received number 9


def buffered(took: list[int], later: list[int]) -> bool:
    """Sends that begin at 0 and take `took`; their receives end so much later than they do."""
    count = len(took)
    end = np.array([*took, *(long + more for long, more in zip(took, later, strict=True))])
    return are_buffered(np.zeros(2 * count, dtype=np.int64), end, np.arange(count), np.arange(count, 2 * count))


def test_fewer_than_four_messages_show_no_pattern() -> None:
    assert buffered([10 * US] * 4, [100 * US] * 4) and not buffered([10 * US] * 3, [100 * US] * 3)


@pytest.mark.parametrize(("took", "tolerance"), [(10 * US, 20 * US), (100 * US, 20 * US), (200 * US, 40 * US)])
def test_sides_that_wait_end_within_20_us_or_a_fifth_of_the_send(took: int, tolerance: int) -> None:
    assert buffered([took] * 4, [tolerance + 1] * 4)
    assert not buffered([took] * 4, [tolerance] * 4)
    # Two of ten the other way round are too many; as far as the tolerance they are not.
    assert not buffered([took] * 10, [tolerance + 1] * 8 + [-tolerance - 1] * 2)
    assert buffered([took] * 10, [tolerance + 1] * 8 + [-tolerance] * 2)


def test_a_fifth_of_the_messages_must_end_apart() -> None:
    assert buffered([10 * US] * 5, [100 * US] + [0] * 4)
    assert not buffered([10 * US] * 6, [100 * US] + [0] * 5)


def test_a_tenth_may_end_in_reversed_order() -> None:
    assert buffered([10 * US] * 10, [100 * US] * 9 + [-100 * US])
    assert not buffered([10 * US] * 9, [100 * US] * 8 + [-100 * US])


@pytest.mark.parametrize(("longest", "expected"), [(320 * US, True), (320 * US + 1, False)])
def test_nine_of_ten_sends_take_at_most_three_times_the_median_and_20_us(longest: int, expected: bool) -> None:
    assert buffered([100 * US] * 9 + [longest] * 2, [100 * US] * 11) is expected
    assert buffered([100 * US] * 10 + [longest], [100 * US] * 11)  # one of eleven may


def messages(*rows: tuple[int, int, int, int, int]) -> Buffered:
    """(sender, receiver, begin of the send, begin and end of the receive); sends end at once."""
    sender, receiver, sent, begun, ended = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    count = len(sender)
    return buffered_messages(
        start=np.concatenate([sent, begun]),
        end=np.concatenate([sent, ended]),
        rank=np.concatenate([sender, receiver]),
        sent=np.arange(count),
        received=np.arange(count, 2 * count),
    )


ARRIVALS = [
    # travel, took
    (0, 1, 0, 0, 100),  # 100, 100: the soonest
    (0, 1, 1000, 1020, 1110),  # 110, 90: as soon
    (0, 1, 2000, 2000, 2130),  # 130, 130: just as soon
    (0, 1, 3000, 3359, 3500),  # 500, 141: waited longer than a transfer of 100 and a hold of 40
    (0, 1, 4000, 4200, 4240),  # 240, 40: had come before
    (0, 1, 5000, 5041, 5131),  # 131, 90: not quite as soon
    (0, 1, 6000, 6360, 6500),  # 500, 140: not quite as long
    (0, 1, 7000, 7064, 7105),  # 105, 41
]


def test_the_arrival_decides_what_came_as_soon_as_any_or_was_waited_for() -> None:
    found = messages(*ARRIVALS)
    # Decided travels are 100, 105, 110, 130 and 500: 110 is typical of those that had come before.
    assert found.latency.tolist() == [100, 110, 130, 500, 110, 110, 110, 105]
    assert found.hold.tolist() == [40, 40, 40, 40, 40, 90, 140, 40]


def test_the_lower_of_two_in_the_middle_is_typical() -> None:
    assert messages(*ARRIVALS[:7]).latency[4] == 110  # of 100, 110, 130 and 500


def test_a_message_never_took_longer_than_it_did() -> None:
    found = messages((0, 1, 0, 0, 10), (0, 1, 100, 100, 200), (0, 1, 300, 300, 400), (0, 1, 500, 519, 520))
    # Holds are 1, travels 10, 100, 100, 20: what was decided took 100, the last message at most 20.
    assert found.latency.tolist() == [10, 100, 100, 20] and found.hold.tolist() == [1, 1, 1, 1]


def test_each_pair_of_ranks_has_its_own_times() -> None:
    slow = [(1, 0, begin, begin + 2000, begin + 2000 + hold) for begin, hold in ((0, 9000), (20_000, 5000))]
    found = messages((0, 2, 0, 0, 100), *slow, (2, 0, 0, 0, 70), (0, 2, 1000, 1000, 1120), (0, 1, 0, 0, 30))
    # 1 → 0: the soonest took 7000, its hold of 5000 is the least; the other waited 9000, travelled 11,000 > 1.3 · 7000.
    assert found.latency.tolist() == [100, 7000, 7000, 70, 120, 30]
    assert found.hold.tolist() == [100, 9000, 5000, 70, 100, 30]


def test_a_message_received_before_it_was_sent_has_no_hold() -> None:
    found = messages((0, 1, 100, 60, 95))  # clocks differ by more than the transfer took
    assert (found.latency.tolist(), found.hold.tolist()) == ([-5], [0])


def test_without_messages_nothing_is_buffered() -> None:
    found = messages()
    assert len(found.latency) == len(found.hold) == 0
