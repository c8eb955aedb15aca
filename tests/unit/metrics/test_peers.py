"""Peer groups, reference, excess, noise and chance, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.metrics.peers import Excess, excess_over_peers, fast_half, nan_median, peer_groups, program

NAN = np.nan
SIGMA = 1.4826
"""Standard deviation of a normal distribution over its MAD."""


def compared(*values: list[float]) -> Excess:
    return excess_over_peers(np.array(values, dtype=np.float64), (tuple(range(len(values))),))


def known(*relative: list[float], noise: float = 0.0, between: float = 0.0, chance: float = 1.0) -> Excess:
    """Ranks that exceed a reference of 1 by these shares."""
    values = 1 + np.array(relative)
    return Excess((), values, np.ones_like(values), noise, between, np.full(len(values), chance))


def test_a_program_is_the_number_of_collectives_per_step() -> None:
    assert program({"send": 3, "all_reduce": 9}, 4) == (("all_reduce", 2), ("send", 1))
    assert program({"all_reduce": 3}, 0) == (("all_reduce", 3),)


def test_peers_are_of_one_stage_and_one_program() -> None:
    assert peer_groups([0, 1, 0, 0], ["a", "a", "b", "a"]) == ((0, 3), (1,), (2,))


def test_the_fast_half_includes_the_middle_one_and_leaves_out_the_unknown() -> None:
    assert fast_half(np.array([5.0, 3.0, NAN, 4.0])) == [1, 3]
    assert fast_half(np.array([2.0, 1.0, 1.0, 3.0])) == [1, 2]
    assert fast_half(np.array([NAN])) == []


def test_medians_are_over_known_values() -> None:
    assert nan_median(np.array([[1, 5, NAN], [7, NAN, NAN]])).tolist() == [3, 7]
    assert np.isnan(nan_median(np.array([[NAN, NAN]]))).all()


def test_reference_and_excess_per_step_and_per_rank() -> None:
    # The fast half are ranks 0 and 2: 105 and 200 in the two steps.
    found = compared([100, 200], [150, 300], [110, 200])
    assert found.reference.tolist() == [[105, 200]] * 3
    assert found.relative[1] == pytest.approx([150 / 105 - 1, 0.5])
    assert found.per_rank[1] == pytest.approx(225 / 152.5 - 1)


@pytest.mark.parametrize("groups", [(), ((0,), (1,)), ((0,),)])
def test_a_rank_without_peers_has_no_excess(groups: tuple[tuple[int, ...], ...]) -> None:
    found = excess_over_peers(np.array([[1.0, 1.0], [2.0, 2.0]]), groups)
    assert np.isnan(found.reference).all() and np.isnan(found.per_rank).all()
    assert (found.noise, found.between, found.chance.tolist(), found.persistent()) == (0, 0, [1, 1], [])


def test_peers_that_recorded_nothing_have_no_reference() -> None:
    found = excess_over_peers(np.array([[NAN], [NAN], [1.0], [2.0]]), ((0, 1), (2, 3)))
    assert found.reference.ravel().tolist() == pytest.approx([NAN, NAN, 1, 1], nan_ok=True)
    assert found.persistent() == [3]


def test_ranks_without_work_of_their_own_have_no_excess() -> None:
    assert np.isnan(compared([0], [0]).per_rank).all()


def test_noise_is_the_spread_of_the_fast_half() -> None:
    found = compared([100], [104], [150], [160])  # reference 102
    assert found.noise == pytest.approx(SIGMA * 2 / 102) == found.between


def test_noise_of_two_peers_is_how_far_the_slower_strays_from_its_median() -> None:
    # 1.1, 1.21 and 1.32 times the reference are 1 / 11 below, at and 1 / 11 above their median.
    found = compared([100, 200, 400], [110, 242, 528])
    assert found.noise == pytest.approx(SIGMA / 11) and found.between == 0


def test_all_but_a_lone_healthy_rank_tell_how_far_ranks_stray() -> None:
    found = compared([100, 110], [110, 100], [200, 230])
    # The reference is 105 in both steps: ranks 0 and 1 stray by 5 / 105 from it, rank 2 by 15 / 215 from its median.
    assert found.noise == pytest.approx(SIGMA * 5 / 105) and found.between == 0


def test_ranks_that_take_turns_are_noise_and_a_lasting_difference_is_not() -> None:
    found = compared([100, 100], [106, 106], [200, 200])
    assert found.between == pytest.approx(SIGMA * 3 / 103)


def test_chance_of_being_slowest_so_often() -> None:
    found = compared([1.0] * 6, [2.0] * 6, [3.0] * 6, [4.0] * 6)
    # The fast half are the first two. Rank 3 lost against all three others, rank 2 only against the fast half.
    assert found.chance == pytest.approx([1, 1, 8 / 3**6, 8 / 4**6])


def test_chance_of_losing_most_steps_but_not_all() -> None:
    found = compared([1.0] * 6, [2.0] * 6, [3.0, 3, 3, 3, 3, 2])  # the last step is a tie
    assert found.chance[2] == pytest.approx(6 * (6 * 2 + 1) / 3**6)  # 6 · C(6, 5) (1/3)^5 2/3 + (1/3)^6


def test_chance_counts_only_steps_that_all_of_them_recorded() -> None:
    found = compared([1.0] * 5, [2, 2, 2, 2, NAN], [3, 3, 3, NAN, 3])
    assert found.chance[2] == pytest.approx(6 / 3**3)


@pytest.mark.parametrize(("noise", "limit"), [(0.0, 0.025), (0.004, 0.025), (0.01, 0.05)])
def test_a_rank_is_slow_above_two_and_a_half_percent_and_five_times_the_noise(noise: float, limit: float) -> None:
    assert known([0], noise=noise).threshold == pytest.approx(limit)
    above, below = [limit + 1e-4] * 5, [limit - 1e-4] * 5
    assert known(above, below, noise=noise).persistent() == [0]


def test_one_step_is_enough() -> None:
    assert known([0.1]).persistent() == [0]


@pytest.mark.parametrize(
    ("relative", "found"),
    [
        ([0.1] * 3 + [0.0] * 2, [0]),  # in 60 % of the steps
        ([0.1] * 6 + [0.0] * 6, []),  # the median is 5 %, in half of the steps
        ([0.1] * 3 + [0.0] * 2 + [NAN] * 5, [0]),
        ([0.1] * 5 + [0.0126] * 5, [0]),  # half of the threshold shows it
        ([0.1] * 5 + [0.0124] * 5, []),
        ([0.1] * 9 + [-0.026], [0]),  # clearly faster in 10 % of the steps
        ([0.1] * 8 + [-0.026] * 2, []),
        ([0.1] * 8 + [-0.024] * 2, [0]),
        ([NAN] * 3, []),
    ],
)
def test_a_slow_rank_is_slow_in_most_steps_and_hardly_ever_faster(relative: list[float], found: list[int]) -> None:
    assert known(relative).persistent() == found


@pytest.mark.parametrize(
    ("excess", "between", "chance", "found"),
    [
        (0.0251, 0.0, 0.0009, [0]),
        (0.0249, 0.0, 0.0009, []),
        (0.0251, 0.0, 0.001, []),
        (0.0601, 0.02, 0.0009, [0]),
        (0.0599, 0.02, 0.0009, []),
    ],
)
def test_in_noise_a_rank_is_slow_when_chance_would_hardly_ever_make_it_lose_so_often(
    excess: float, between: float, chance: float, found: list[int]
) -> None:
    assert known([excess], noise=1.0, between=between, chance=chance).persistent() == found


def test_the_worst_comes_first() -> None:
    assert known([0.1], [0.3], [0.0], [0.2]).persistent() == [1, 3, 0]


def steady_ranks(*excess: float) -> Excess:
    """Ten steps of ranks that are slower than 100 by so much, in per cent, in every step."""
    return compared(*([100 + more] * 10 for more in excess))


def test_below_the_floor_a_rank_stands_apart_from_how_its_peers_differ() -> None:
    assert steady_ranks(-0.2, -0.1, 0, 0, 0.1, 0.2, 0.2, 2).persistent() == [7]
    # About the same, where peers differ by nearly as much.
    assert steady_ranks(-0.8, -0.5, -0.3, 0, 0.3, 0.5, 0.8, 1.8).persistent() == []
    # As far apart as the first, but too small to be worth a word.
    assert steady_ranks(-0.02, -0.01, 0, 0, 0.01, 0.02, 0.02, 0.8).persistent() == []


def test_four_peers_are_too_few_to_stand_apart_by_two_per_cent() -> None:
    assert steady_ranks(0, 0.4, -0.4, 2).persistent() == []


def test_small_groups_learn_from_each_other_how_ranks_differ() -> None:
    values = np.array([[100 + more] * 10 for more in (0, 0.4, -0.4, 2, 0, 0.3, -0.3, 0.1, 0, 0.2, -0.2, 0.1)])
    assert excess_over_peers(values, (tuple(range(4)), tuple(range(4, 8)), tuple(range(8, 12)))).persistent() == [3]
    # Of two peers either may be the exception.
    assert not excess_over_peers(values[:4], ((0, 1), (2, 3))).apart.any()


def test_what_chance_does_as_well_is_doubted() -> None:
    apart, clear = steady_ranks(-0.2, -0.1, 0, 0, 0.1, 0.2, 0.2, 2), steady_ranks(0, 0, 0, 0, 0, 0, 0, 20)
    assert apart.doubt([7]) == pytest.approx(0.05, abs=0.001)
    assert clear.doubt([7]) == 0


def test_a_rank_that_is_not_the_slowest_in_most_steps_does_not_stand_apart() -> None:
    usual = [100.0] * 10
    values = [usual, usual, usual, usual, usual, usual, usual, [102.0] * 6 + usual[:4]]
    assert compared(*values).persistent() == []  # 6 of 10 steps: 2 · 8 · P(Binomial(10, 1 / 8) ≥ 6) = 0.007
