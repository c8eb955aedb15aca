"""Which dataset operator is the bottleneck, on pipelines drawn by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.metrics.input_pipeline import (
    PROCESSING,
    READING,
    ROOT,
    DatasetOperator,
    bottleneck,
    bottlenecks,
    pipelines,
)
from support.fake_run import FakeRun

Uses = dict[int, tuple[int | None, float | None]]
"""By operator: its consumer, and how full its output queue is."""


def operators(uses: Uses) -> list[DatasetOperator]:
    return [DatasetOperator(op_id, f"Op{op_id}", parent, 1, use, None) for op_id, (parent, use) in uses.items()]


def chain(*uses: float | None) -> Uses:
    """Root first; each takes from the next."""
    return {i: (i - 1 if i else None, use) for i, use in enumerate(uses)}


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        (chain(None, 0.8, 0.9), (0, ROOT, 0.8)),
        (chain(0.1, 0.8), (0, ROOT, 0.8)),  # the root's own queue does not count
        (chain(None, 0.79, 0.95), (1, PROCESSING, 0.95)),
        (chain(None, 0.1, 0.21), (1, PROCESSING, 0.21)),
        (chain(None, 0.25, 0.35), (2, READING, None)),  # 10 points are not more than 10
        (chain(0.3, 0.5, 0.9), (0, PROCESSING, 0.5)),
        (chain(None, 0.55, 0.59), (2, READING, None)),
        (chain(None, 0.55, 0.6), None),
        (
            chain(None, 0.1, None, 0.9),
            (1, PROCESSING, 0.9),
        ),  # an operator without a queue runs in its consumer's thread
        (chain(None, 0.1, 0.15, None), None),  # ends at a leaf that has none
        (chain(None, None), None),
        (chain(None), None),
        ({}, None),
        ({1: (0, 0.5)}, None),  # without a root
        # Two inputs: the search goes on at the emptier, and compares with the fuller.
        ({0: (None, 0.3), 1: (0, 0.35), 2: (0, 0.2)}, (2, READING, None)),
        ({0: (None, 0.3), 1: (0, 0.41), 2: (0, 0.2)}, (0, PROCESSING, 0.41)),
        ({0: (None, None), 1: (0, None), 2: (0, 0.5), 3: (2, 0.55)}, (3, READING, None)),
        # Behind the full queue of 1 nothing is late; behind the emptier 2 the reader is.
        ({0: (None, None), 1: (0, 0.9), 2: (0, 0.3), 3: (1, 0.1), 4: (2, 0.35)}, (4, READING, None)),
    ],
)
def test_the_first_suspect_from_the_root_towards_the_leaves(
    uses: Uses, expected: tuple[int, str, float | None] | None
) -> None:
    found = bottleneck(operators(uses))
    assert (found and (found.stage.op_id, found.why, found.input_use)) == expected


@pytest.mark.parametrize(("cpu", "workers", "expected"), [(304, 4, 76), (76, 0, 76), (76, None, 76), (None, 4, None)])
def test_cpu_use_is_shared_by_the_workers(cpu: float | None, workers: int | None, expected: float | None) -> None:
    assert DatasetOperator(1, "Map", 0, workers, 0.0, cpu).cpu_per_worker == expected


def test_an_operator_that_takes_from_one_before_it_is_taken_for_a_leaf() -> None:
    circle = operators({0: (None, None), 1: (0, 0.3), 2: (1, 0.35)}) + operators({1: (2, 0.3)})
    found = bottleneck(circle)
    assert found is not None and (found.stage.op_id, found.why) == (2, READING)


@given(st.lists(st.tuples(st.integers(0, 6), st.none() | st.integers(0, 6), st.none() | st.floats(0, 1)), max_size=7))
def test_pipelines_joined_in_circles_end(rows: list[tuple[int, int | None, float | None]]) -> None:
    bottleneck([DatasetOperator(op_id, "Op", parent, 1, use, None) for op_id, parent, use in rows])


def test_pipelines_are_read_by_rank_and_how_full_a_queue_is_is_of_its_capacity() -> None:
    rows = [
        {
            "rank": 1,
            "op_id": 1,
            "op": "Map",
            "parent": 0,
            "workers": 4,
            "queue_size": 2.0,
            "queue_capacity": 16,
            "cpu": 50.0,
        },
        {"rank": 1, "op_id": 0, "parent": None, "queue_size": 2.0, "queue_capacity": 0},
        {"rank": 0, "op_id": 0, "op": "Batch"},
        {"rank": 0, "op": "stage of an operator"},
        {"op_id": 3},
    ]
    run = FakeRun(input_pipeline=rows)
    assert pipelines(run) == {
        0: [DatasetOperator(0, "Batch", None, None, None, None)],
        1: [DatasetOperator(0, "?", None, None, None, None), DatasetOperator(1, "Map", 0, 4, 0.125, 50)],
    }
    found = bottlenecks(run)
    assert {rank: (one.stage.op, one.why) for rank, one in found.items()} == {1: ("Map", READING)}
