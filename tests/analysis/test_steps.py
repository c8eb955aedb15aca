"""Where a step's time goes, by rank, step, stage and host, against parts worked out by hand."""

from __future__ import annotations

import pytest

from hand_made import HandMade
from paceline.analysis.steps import PARTS, breakdown_by, rank_breakdown, step_shares

MS = 1_000_000


def step(rank: int, number: int, **parts: int) -> dict[str, object]:
    return {"rank": rank, "step": number, **{name: value * MS for name, value in parts.items()}}


USUAL = {"duration": 100, "computing": 60, "overlapped": 10, "exposed": 25, "free": 15, "bubble": 5}
RUN = HandMade(
    ranks=[{"rank": 0, "host": "a", "stage": 0}, {"rank": 1, "host": "b", "stage": 1},
           {"rank": 2, "host": "b", "stage": 1}],
    steps=[step(0, 1, **USUAL), step(0, 2, **USUAL), step(1, 1, **USUAL | {"duration": 200}),
           step(1, 2, **USUAL), step(2, 1, **USUAL), step(2, 2, **USUAL)],
    collectives=[{"rank": rank, "step": 1, "op": "all_reduce", "duration": 20 * MS, "wait": 5 * MS} for rank in range(3)],
)  # fmt: skip


def row(table: object, index: int) -> dict[str, float]:
    return {name: column[index] for name, column in table.numbers.items()}  # type: ignore[attr-defined]


def test_parts_add_up_to_the_step() -> None:
    first = row(rank_breakdown(RUN, "true"), 0)
    # A quarter of the time inside collectives is waiting: 5 + (25 - 5) / 4.
    assert first == {
        "rank": 0, "step": 100, "compute": 50, "overlapped": 10, "exposed": 15, "waiting": 10, "tail": 0, "free": 15,
        "data": 0,
    }  # fmt: skip
    assert sum(first[part] for part in PARTS) == first["step"]


@pytest.mark.parametrize(
    ("by", "keys", "steps"),
    [("step", [1, 2], [400 / 3, 100]), ("stage", [0, 1], [100, 125]), ("host", ["a", "b"], [100, 125])],
)
def test_the_mean_of_its_ranks(by: str, keys: list[object], steps: list[float]) -> None:
    table = breakdown_by(RUN, "true", by)  # type: ignore[arg-type]
    column = "number" if by == "step" else by
    assert list(table.texts.get(column) or table.numbers[column]) == keys
    assert table.numbers["step"] == pytest.approx(steps)
    assert sum(table.numbers[part] for part in PARTS) == pytest.approx(steps)


def test_shares_of_all_ranks_together() -> None:
    shares = step_shares(RUN, (2,))
    assert shares["compute"] == pytest.approx(0.5) and sum(shares.values()) == pytest.approx(1)
    assert step_shares(HandMade(), ()) == {}


def test_waiting_for_input_is_not_computing_even_where_the_recording_says_so() -> None:
    run = HandMade(steps=[step(0, 1, duration=100, computing=90, exposed=10, data_wait=20)])
    only = row(rank_breakdown(run, "true"), 0)
    assert (only["data"], only["compute"], only["exposed"]) == (20, 70, 10)
