"""Messages that make only their receiver wait, worked out by hand."""

from __future__ import annotations

import numpy as np

from paceline.metrics.communication.p2p import are_buffered, buffered_messages, message_rows

US = 1_000


def rows(*spans: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(spans, dtype=np.int64) * US
    return table[:, 0], table[:, 1]


def test_sends_and_receives_are_joined_by_instance() -> None:
    op = np.array(["send", "all_reduce", "receive", "send", "receive"], dtype=object)
    sent, received = message_rows(op, np.array([4, 1, 7, 7, 4]))
    assert list(zip(sent.tolist(), received.tolist(), strict=True)) == [(0, 4), (3, 2)]


def test_sides_that_end_together_wait_for_each_other() -> None:
    start, end = rows(
        (0, 100), (500, 900), (1000, 1100), (2000, 3000), (60, 100), (800, 900), (600, 1100), (2900, 3000)
    )
    assert not are_buffered(start, end, np.arange(4), np.arange(4, 8))


def test_sends_that_end_before_their_receives_begin_are_buffered() -> None:
    start, end = rows((0, 5), (500, 505), (1000, 1005), (2000, 2005), (60, 90), (800, 803), (600, 1090), (2900, 2903))
    assert are_buffered(start, end, np.arange(4), np.arange(4, 8))


def test_what_a_message_takes_is_seen_where_its_receiver_waited() -> None:
    """90 µs each; the second and the last had been lying there and are taken within 3 µs."""
    start, end = rows((0, 5), (500, 505), (1000, 1005), (2000, 2005), (60, 90), (800, 803), (600, 1090), (2900, 2903))
    rank = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    found = buffered_messages(start, end, rank, np.arange(4), np.arange(4, 8))
    assert (found.latency / US).tolist() == [90, 90, 90, 90]
    assert (found.hold / US).tolist() == [3, 3, 3, 3]
