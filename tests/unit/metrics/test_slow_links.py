"""Which links are compared with each other, and which are slow: every limit met from both sides."""

from __future__ import annotations

import pytest

from paceline.metrics.slow_links import has_links, links_below_class, with_link_steps
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


def slow_links(*transfers: dict[str, object], slow: float = 0.7, often: float = 0.6) -> list[tuple[int, int]]:
    found = links_below_class(FakeRun(transfers=list(transfers)), "true", slow=slow, often=often)
    return [(link.src, link.dst) for link in found]


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


def test_three_links_are_a_class_and_the_fast_half_is_its_reference() -> None:
    assert references(*ring(FAST, 2 * FAST)) == {0: None, 1: None}
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


@pytest.mark.parametrize(("duration", "found"), [(1_000_000, []), (1_000_001, [(3, 4)])])
def test_a_link_is_slow_below_a_share_of_the_reference(duration: int, found: list[tuple[int, int]]) -> None:
    """7 MB at 7 GB/s are 0.7 of 10 GB/s."""
    assert slow_links(*ring(FAST, FAST, FAST, duration)) == found


@pytest.mark.parametrize(("duration", "found"), [(12_150_000, []), (12_170_000, [(3, 4)])])
def test_six_times_the_noise_of_the_fast_half_is_not_slow(duration: int, found: list[tuple[int, int]]) -> None:
    """The fast half has 9.8 and 10.2 GB/s: noise 1.4826 · 0.2 / 10, so the limit is 0.8221 · 10: 99.96 MB in 12.16 ms."""
    assert slow_links(*ring(9_800_000, 10_200_000, 10_200_000, duration, size=99_960_000), slow=0.9) == found


@pytest.mark.parametrize(("slow_steps", "found"), [(2, []), (3, [(9, 10)])])
def test_a_slow_link_is_slow_in_most_steps(slow_steps: int, found: list[tuple[int, int]]) -> None:
    rows = [row for step in range(5) for row in ring(FAST, FAST, FAST, step=step)]
    rows += [moved(9, 10, LARGE, FAST * (9 if step < slow_steps else 1), step=step) for step in range(5)]
    assert slow_links(*rows) == found


@pytest.mark.parametrize(("fast", "slow", "found"), [(2, 1, 1), (3, 2, 0), (4, 2, 2), (3, 3, 0), (5, 3, 0), (6, 3, 3)])
def test_a_class_of_which_more_than_a_third_is_slow_is_mixed(fast: int, slow: int, found: int) -> None:
    assert len(slow_links(*ring(*[FAST] * fast, *[3 * FAST] * slow))) == found


def test_a_slow_link_has_the_numbers_of_all_it_carries_and_the_group_that_is_slowest() -> None:
    both = [
        *ring(FAST, FAST, FAST, 2 * FAST),
        *ring(FAST, FAST, FAST, 4 * FAST, name="y", group="h"),
        moved(3, 4, LARGE, 6 * FAST, name="z"),
        moved(3, 4, LARGE, FAST, step=2),
        moved(3, 4, LARGE, FAST, scope="group"),
        *ring(FAST, FAST, 2 * FAST, FAST, transport="HCCS"),
    ]
    first, second = links_below_class(FakeRun(transfers=both), "step = 1", slow=0.7, often=0.6)
    assert (first.src, first.transport, second.src, second.transport, second.group) == (2, "HCCS", 3, "RDMA", "h")
    # 12 times as long as one message at 10 GB/s; of these 6 cannot be compared, 2 should be 1 and 4 should be 1.
    assert (second.bytes, second.bandwidth) == (3 * LARGE, pytest.approx(30 / 12))
    assert second.reference == pytest.approx(30 / 8) and second.ratio == pytest.approx(8 / 12)


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
