"""Which links are compared with each other: every limit met from both sides."""

from __future__ import annotations

import pytest

from paceline.metrics.network.link_traffic import has_links
from paceline.metrics.network.slow_links import shown_link, with_link_steps
from support.fake_run import FakeRun
from support.transfers import moved

LARGE = 7_000_000
FAST = 700_000
"""ns at which LARGE bytes are 10 GB/s."""


def ring(*durations: int, size: int = LARGE, **more: object) -> list[dict[str, object]]:
    """Link n → n + 1 takes the n-th duration."""
    return [moved(src, src + 1, size, duration, **more) for src, duration in enumerate(durations)]


def references(*transfers: dict[str, object], groups: list[dict[str, object]] | None = None) -> dict[int, float | None]:
    """By sender."""
    run = FakeRun(transfers=list(transfers), groups=groups or [])
    rows = run.sql(f"{with_link_steps('true')} SELECT src, is_compared, bytes / expected FROM link_steps").fetchall()
    return {src: round(reference, 9) if compared else None for src, compared, reference in rows}


@pytest.mark.parametrize(
    ("size", "compared"),
    [(LARGE // 4, True), (LARGE // 4 - 1, False), (4 * LARGE, True), (4 * LARGE + 1, False)],
)
def test_links_that_carry_a_quarter_to_four_times_the_median_are_compared(size: int, compared: bool) -> None:
    odd = moved(9, 10, size, FAST * 10, name="all-total")
    assert (references(*ring(FAST, FAST, FAST, name="all-total"), odd)[9] == 10) is compared


@pytest.mark.parametrize(("size", "reference"), [(1_000_000, 10), (999_999, None)])
def test_little_traffic_says_nothing(size: int, reference: float | None) -> None:
    assert references(*ring(100_000, 100_000, 100_000, size=1_000_000), moved(9, 10, size, 200_000))[9] == reference


def test_two_links_are_a_class_and_the_fast_half_is_its_reference() -> None:
    assert references(*ring(FAST)) == {0: None}
    assert references(*ring(FAST, 2 * FAST)) == {0: 10, 1: 10}
    assert set(references(*ring(FAST, 2 * FAST, 2 * FAST)).values()) == {7.5}  # 5 is slow, of 5 and 10 the median
    assert set(references(*ring(FAST, FAST, 4 * FAST, 4 * FAST)).values()) == {10}
    assert set(references(*ring(FAST, 2 * FAST, 4 * FAST, 5 * FAST, 7 * FAST)).values()) == {5}


@pytest.mark.parametrize(
    ("name", "size", "compared"),
    [
        ("x_2", 2**23, True),  # the same operator
        ("y_1", 2**23, False),
        ("x_1", 2**22.4, False),  # round(22.4) = 22: messages half as large are another kind
        ("x_1", 2**22.6, True),
    ],
)
def test_kinds_of_messages_are_operators_and_sizes_by_powers_of_two(name: str, size: float, compared: bool) -> None:
    alike = ring(FAST, FAST, FAST, size=2**23, name="x_1")
    assert (references(*alike, moved(9, 10, size, FAST, name=name))[9] is not None) is compared


def test_groups_of_other_sizes_are_other_classes() -> None:
    groups: list[dict[str, object]] = [{"group": "g", "rank": 0}, {"group": "h", "rank": 0}, {"group": "h", "rank": 1}]
    groups.append({"group": "i", "rank": 7})
    alike = ring(FAST, FAST, FAST)
    assert references(*alike, moved(9, 10, LARGE, FAST, group="h"), groups=groups)[9] is None
    assert references(*alike, moved(9, 10, LARGE, FAST, group="i"), groups=groups)[9] == 10


def test_a_link_in_every_step_against_the_class_of_the_steps_chosen() -> None:
    rows = [*ring(FAST, FAST, FAST), *ring(4 * FAST, step=2), moved(4, 4, LARGE, 5), moved(0, 1, 9, 3, scope="group")]
    query = (
        f'{with_link_steps("step = 1")} SELECT step, src, scope, "group", bytes, duration, expected, is_compared, peers'
    )
    found = FakeRun(transfers=rows).sql(f"{query} FROM link_steps ORDER BY scope, step, src").fetchall()
    one = (LARGE, FAST, FAST, True, 3)
    assert found == [
        *((1, src, "global", None, *one) for src in range(3)),
        (1, 4, "global", None, LARGE, 5, 5, False, None),
        (2, 0, "global", None, LARGE, 4 * FAST, FAST, True, 3),
        (1, 0, "group", "g", 9, 3, 3, False, None),
    ]


def test_the_speed_of_a_class_is_that_of_all_steps_together() -> None:
    run = FakeRun(transfers=[*ring(FAST, FAST, FAST), *ring(3 * FAST, 3 * FAST, 3 * FAST, step=2)])
    # Twice LARGE bytes in 1 + 3 times FAST: half of 10 GB/s.
    assert shown_link(run, "true", 0, 1, "RDMA") == (pytest.approx(5), pytest.approx(5))


def test_a_link_as_it_is_shown() -> None:
    run = FakeRun(
        transfers=[*ring(FAST, FAST, FAST, 2 * FAST), moved(3, 4, LARGE, 3 * FAST, name="z"), moved(8, 9, 5, 1)]
    )
    # 14 MB in 3.5 ms; the second message cannot be compared and counts as it is: 0.7 + 2.1 ms.
    assert shown_link(run, "true", 3, 4, "RDMA") == (4, pytest.approx(5))
    assert shown_link(run, "true", 8, 9, "RDMA") is None and shown_link(run, "true", 3, 4, "HCCS") is None


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({}, True),
        ({"dst": 0}, False),
        ({"transport": "LOCAL"}, False),
        ({"scope": "group"}, False),
        ({"duration": 0}, False),
    ],
)
def test_whether_the_recording_tells_who_sent_to_whom(change: dict[str, object], known: bool) -> None:
    assert has_links(FakeRun(transfers=[{**moved(0, 1, LARGE, 1), **change}])) is known
