"""The innermost span around a moment, against walking through all of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paceline.formats.kineto.nesting import NOTHING, Spans, innermost

Tree = tuple[int, int, list["Tree"]]


@st.composite
def nested(draw: st.DrawFn, begin: int = 0, end: int = 200, levels: int = 3) -> list[tuple[int, int]]:
    """Spans inside or beside each other, with times between them."""
    spans, at = list[tuple[int, int]](), begin
    while levels and at < end and len(spans) < 6 and draw(st.booleans()):
        start = draw(st.integers(at, end - 1))
        stop = draw(st.integers(start + 1, end))
        spans += [(start, stop), *draw(nested(start, stop, levels - 1))]
        at = stop + 1
    return spans


@given(st.lists(nested(), min_size=1, max_size=3), st.lists(st.integers(-2, 203), min_size=1, max_size=20), st.data())
def test_the_innermost_span_is_the_shortest_around_a_moment(
    threads: list[list[tuple[int, int]]], moments: list[int], data: st.DataObject
) -> None:
    rows = data.draw(st.permutations([(number, *span) for number, spans in enumerate(threads) for span in spans]))
    spans = Spans(*(np.array([row[column] for row in rows], dtype=np.int64) for column in range(3)))
    asked = [(number, moment) for number in range(len(threads)) for moment in moments]
    found = innermost(spans, *(np.array(column) for column in zip(*asked, strict=True)))
    for (thread, moment), index in zip(asked, found.tolist(), strict=True):
        around = [row for row in rows if row[0] == thread and row[1] < moment < row[2]]
        touching = [row for row in rows if row[0] == thread and moment in row[1:]]
        if not touching:
            shortest = min((row[2] - row[1] for row in around), default=None)
            assert (None if index == NOTHING else rows[index][2] - rows[index][1]) == shortest


def test_spans_that_overlap_without_nesting_give_one_that_holds_or_nothing() -> None:
    spans = Spans(np.array([1, 1]), np.array([0, 5]), np.array([10, 15]))
    for moment, index in zip(
        range(-1, 17), innermost(spans, np.ones(18, dtype=np.int64), np.arange(-1, 17)), strict=True
    ):
        assert index == NOTHING or spans.start[index] <= moment <= spans.end[index]
