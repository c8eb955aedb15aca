"""The search for components: scores worked out by hand, what covers what, and what cannot be told apart."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest

from paceline.diagnosis.components.network import LinkEnds, link_components
from paceline.diagnosis.components.search import (
    MOST_NATS,
    PRICE,
    Component,
    Explanation,
    Observations,
    explain,
    weighted_median,
)

LN4 = math.log(4)
FOUR_TIMES = 5 * math.log(1 + (LN4 / 0.06) ** 2 / 9)
"""Nats of one link four times slower, five executions: 20.5."""
CARDS = 4
"""Of each host."""


def seen(excess: Iterable[float], executions: float = 5) -> Observations:
    values = np.array(list(excess), dtype=np.float64)
    return Observations(values, np.full(len(values), 0.06), np.full(len(values), executions), np.ones(len(values)))


def rows(*places: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(places, dtype=np.int64)


def component(family: str, *places: int, price: float = PRICE) -> Component:
    return Component(family, (), rows(*places), price)


# -- the score ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("executions", "freedom"), [(1, 3), (2, 3), (3, 6), (5, 9), (500, 9)])
def test_a_median_of_many_executions_has_thinner_tails(executions: float, freedom: float) -> None:
    z = 0.5 / 0.06
    expected = (freedom + 1) / 2 * math.log(1 + z**2 / freedom)
    assert seen([0.5], executions).rho(rows(0), np.zeros(1)) == pytest.approx(min(MOST_NATS, expected))


def test_one_observation_brings_at_most_so_much() -> None:
    assert seen([50.0]).rho(rows(0), np.zeros(1)) == MOST_NATS


def test_the_margin_is_what_is_explained_minus_the_price() -> None:
    [found] = explain(seen([LN4, 0, 0]), [component("link", 0, price=7)])
    assert found.factor == pytest.approx(4) and found.margin == pytest.approx(FOUR_TIMES - 7)


def test_what_explains_less_than_its_price_is_not_named() -> None:
    weak = seen([math.log(1.4), 0, 0], executions=1)
    nats = 2 * math.log(1 + (math.log(1.4) / 0.06) ** 2 / 3)
    assert explain(weak, [component("link", 0, price=nats - 0.01)])
    assert not explain(weak, [component("link", 0, price=nats + 0.01)])


@pytest.mark.parametrize(("factor", "found"), [(1.34, 0), (1.36, 1)])
def test_a_component_slows_what_it_covers_by_the_least_factor(factor: float, found: int) -> None:
    assert len(explain(seen([math.log(factor)] * 3), [component("nic", 0, 1, 2)])) == found


@pytest.mark.parametrize(("slow", "found"), [(6, 0), (7, 1)])
def test_a_component_slows_seven_tenths_of_what_it_covers(slow: int, found: int) -> None:
    observations = seen([LN4] * slow + [0] * (10 - slow))
    assert len(explain(observations, [component("nic", *range(10))])) == found


def test_one_component_for_all_beats_one_for_each() -> None:
    candidates = [*(component("link", n, price=8) for n in range(4)), component("nic", 0, 1, 2, 3, price=9)]
    [found] = explain(seen([LN4] * 4 + [0] * 4), candidates)
    assert found.component.family == "nic"


def test_a_component_that_covers_healthy_links_too_loses_to_those_that_do_not() -> None:
    candidates = [component("nic", 0, 1, 2, 3, price=8), *(component("link", n, price=8) for n in range(4))]
    assert [one.component.family for one in explain(seen([LN4, LN4, LN4, 0]), candidates)] == ["link"] * 3


def test_two_faults_at_once_where_they_meet_the_slower_decides() -> None:
    one, other = component("a", 0, 1, 2), component("b", 2, 3, 4)
    values = [LN4, LN4, math.log(8), math.log(8), math.log(8), 0, 0]
    found = {each.component.family: round(each.factor, 3) for each in explain(seen(values), [one, other])}
    assert found == {"a": 4, "b": 8}


def test_greed_is_corrected_by_exchange() -> None:
    """The middle one explains most alone, but both sides explain everything."""
    middle, left, right = component("m", 1, 2, 3, 4), component("l", 0, 1, 2), component("r", 3, 4, 5)
    found = explain(seen([LN4] * 6), [middle, left, right])
    assert sorted(each.component.family for each in found) == ["l", "r"]


def test_a_class_where_much_of_the_slow_time_has_no_component_is_mixed() -> None:
    candidates = [component("link", 0, price=8)]
    assert explain(seen([LN4] * 1 + [0] * 9), candidates)
    assert not explain(seen([LN4] * 4 + [0] * 6), candidates)


@pytest.mark.parametrize(("healthy_weight", "found"), [(1.0, True), (2.0, False)])
def test_a_component_slows_seven_tenths_of_the_weight_it_covers(healthy_weight: float, found: bool) -> None:
    """Three of its four links are slow: 3 / 4 of the weight, or 3 / 5."""
    links = seen([LN4, LN4, LN4, 0])
    weighted = Observations(links.excess, links.deviation, links.executions, np.array([1.0, 1, 1, healthy_weight]))
    assert bool(explain(weighted, [component("nic", 0, 1, 2, 3)])) is found


def test_components_of_the_same_links_are_one_answer_with_several_names() -> None:
    names = [component("link", 0, price=9), component("nic-out", 0, price=7), component("nic-in", 0, price=8)]
    [found] = explain(seen([LN4, 0, 0]), names)
    # The first is named, at the lowest price of the three.
    assert found.component.family == "link" and [one.family for one in found.same] == ["nic-out", "nic-in"]
    assert found.margin == pytest.approx(FOUR_TIMES - 7)


def test_a_weighted_median_lies_where_half_of_the_weight_is() -> None:
    assert weighted_median(np.array([5.0, 1, 3]), np.array([1.0, 1, 3])) == 3
    assert weighted_median(np.array([1.0, 2]), np.array([1.0, 1])) == 1.5


# -- what covers what ---------------------------------------------------------------------------------------------------

Link = tuple[int, int]


def ring(hosts: int) -> list[Link]:
    """One ring through all cards: the last card of each host sends to the first of the next."""
    return [(CARDS * host + CARDS - 1, CARDS * ((host + 1) % hosts)) for host in range(hosts)]


def rails(hosts: int) -> list[Link]:
    """One ring for every card of a host."""
    return [(CARDS * h + card, CARDS * ((h + 1) % hosts) + card) for card in range(CARDS) for h in range(hosts)]


def both_ways(hosts: int) -> list[Link]:
    return [link for one in rails(hosts) for link in (one, one[::-1])]


def searched(
    links: list[Link], slow: dict[Link, float], *, outside: bool = False, crosses: bool = True
) -> tuple[Explanation, ...]:
    src, dst = (rows(*end) for end in zip(*links, strict=True))
    observations = seen(math.log(slow.get(link, 1.0)) for link in links)
    known = np.full(len(links), outside)
    return explain(
        observations,
        link_components(LinkEnds(src, dst, src // CARDS, dst // CARDS, crosses, known), observations),
    )


def touching(links: list[Link], host: int) -> dict[Link, float]:
    return {link: 4.0 for link in links if host in (link[0] // CARDS, link[1] // CARDS)}


def names(found: Iterable[Explanation]) -> list[tuple[str, tuple[int, ...]]]:
    return [(one.component.family, one.component.key) for one in found]


@pytest.mark.parametrize("layout", [ring, rails, both_ways])
@pytest.mark.parametrize("hosts", [3, 4, 8, 16])
def test_the_network_card_of_a_host(layout: object, hosts: int) -> None:
    links = layout(hosts)  # type: ignore[operator]
    assert names(searched(links, touching(links, 1))) == [("nic", (1,))]


@pytest.mark.parametrize("layout", [ring, rails, both_ways])
def test_with_two_hosts_network_cards_and_the_network_cannot_be_told_apart(layout: object) -> None:
    links = layout(2)  # type: ignore[operator]
    [found] = searched(links, dict.fromkeys(links, 4.0), outside=True)
    assert (found.component.family, found.component.key) == ("nic", (0,))
    same = {(one.family, one.key) for one in found.same}
    assert {("nic", (1,)), ("pair", (0, 1)), ("fabric", ())} <= same


def test_a_link_of_one_ring_may_be_any_card_at_its_ends() -> None:
    [found] = searched(ring(4), {(7, 8): 4.0})
    assert (found.component.family, found.component.key) == ("link", (7, 8))
    assert {one.family for one in found.same} == {"cable", "card", "pair", "nic-out", "nic-in"}


def test_a_link_among_others_between_the_same_hosts_is_exact() -> None:
    [found] = searched(both_ways(4), {(5, 9): 4.0})
    assert names([found]) == [("link", (5, 9))] and found.same == ()


def test_both_directions_of_a_cable() -> None:
    assert names(searched(both_ways(4), {(5, 9): 4.0, (9, 5): 4.0})) == [("cable", (5, 9))]


def test_the_network_card_of_one_rank() -> None:
    links = both_ways(4)
    assert names(searched(links, {link: 4.0 for link in links if 5 in link})) == [("card", (5,))]


def test_everything_between_two_hosts() -> None:
    links = both_ways(4)
    slow = {link: 4.0 for link in links if {link[0] // CARDS, link[1] // CARDS} == {1, 2}}
    assert names(searched(links, slow)) == [("pair", (1, 2))]


def test_what_one_host_sends() -> None:
    links = both_ways(4)
    assert names(searched(links, {link: 4.0 for link in links if link[0] // CARDS == 2})) == [("nic-out", (2,))]


@pytest.mark.parametrize("layout", [ring, rails, both_ways])
@pytest.mark.parametrize("hosts", [4, 8, 12])
def test_a_switch_between_halves(layout: object, hosts: int) -> None:
    links = layout(hosts)  # type: ignore[operator]
    half = hosts // 2
    slow = {link: 4.0 for link in links if (link[0] // CARDS < half) != (link[1] // CARDS < half)}
    [found] = searched(links, slow)
    assert names([found]) == [("cut", tuple(range(half)))]


@pytest.mark.parametrize("hosts", [3, 4, 8])
def test_the_whole_network_is_only_accused_by_a_reference_from_outside(hosts: int) -> None:
    links = rails(hosts)
    assert names(searched(links, dict.fromkeys(links, 4.0), outside=True)) == [("fabric", ())]
    assert ("fabric", ()) not in names(searched(links, dict.fromkeys(links, 4.0)))


def test_links_inside_a_host() -> None:
    links = [
        (a, b)
        for host in range(3)
        for a in range(4 * host, 4 * host + 4)
        for b in range(4 * host, 4 * host + 4)
        if a != b
    ]
    slow = {link: 4.0 for link in links if link[0] // CARDS == 1}
    assert names(searched(links, slow, crosses=False)) == [("board", (1,))]
    assert names(searched(links, {link: 4.0 for link in links if 6 in link}, crosses=False)) == [("card", (6,))]


def test_two_network_cards_at_once() -> None:
    links = rails(8)
    found = searched(links, touching(links, 1) | touching(links, 5))
    assert sorted(names(found)) == [("nic", (1,)), ("nic", (5,))]


def test_healthy_links_have_no_candidates() -> None:
    assert searched(rails(8), {}) == ()
