"""Pipeline stages, from messages made by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from paceline.metrics.timeline.inferred_stages import inferred_stages
from support.comm_tables import Event, comm_events

Message = tuple[int, int, int]
"""Sender, receiver, end."""


def stages(*events: Event) -> list[int]:
    found = comm_events(*events)
    return inferred_stages(SimpleNamespace(events=found, step=found.step)).tolist()  # type: ignore[arg-type]


def messages(*sent: Message, step: int = 0, number: int = 0) -> list[Event]:
    return [
        event
        for instance, (sender, receiver, end) in enumerate(sent, start=number)
        for event in (
            Event(sender, end - 5, end, instance, "send", step),
            Event(receiver, end - 5, end, instance, "receive", step),
        )
    ]


def test_activations_go_down_before_gradients_return() -> None:
    back = [(2, 1, 30), (1, 0, 40)]
    assert stages(*messages((0, 1, 10), (1, 2, 20), *back)) == [0, 1, 2]
    assert stages(*messages((2, 1, 10), (1, 0, 20), (0, 1, 30), (1, 2, 40))) == [2, 1, 0]


def test_the_first_message_is_the_one_that_ends_first_not_the_one_listed_first() -> None:
    assert stages(*messages((1, 0, 40), (0, 1, 10))) == [0, 1]


def test_replicas_have_the_same_stages() -> None:
    assert stages(*messages((0, 2, 10), (1, 3, 12), (2, 0, 30), (3, 1, 32))) == [0, 0, 1, 1]


def test_most_steps_decide_and_each_step_counts_once() -> None:
    once = messages((1, 0, 10), (1, 0, 20), (1, 0, 30), (1, 0, 40))
    twice = [
        event
        for step in (1, 2)
        for event in messages((0, 1, 100 * step), (1, 0, 100 * step + 9), step=step, number=9 * step)
    ]
    assert stages(*once, *twice) == [0, 1]
    assert stages(*messages((0, 1, 10)), *messages((1, 0, 10), step=1, number=1)) == [-1, -1]  # one against one


def test_ranks_without_messages_are_in_no_stage() -> None:
    alone = [Event(rank, 0, 50, 9) for rank in (0, 1, 2, 3)]
    assert stages(*messages((1, 2, 10)), *alone) == [-1, 0, 1, -1]
    assert stages(*alone) == [-1] * 4
    assert stages() == []


def test_a_message_without_its_other_side_tells_nothing() -> None:
    assert stages(Event(0, 0, 5, 0, "send"), Event(1, 0, 5, 1, "receive")) == [-1, -1]


def test_stages_of_unequal_size_are_not_stages() -> None:
    assert stages(*messages((0, 1, 10), (0, 2, 12))) == [-1, -1, -1]
    assert stages(*messages((0, 1, 10), (1, 2, 20), (3, 4, 10))) == [-1] * 5


def test_a_rank_comes_after_the_longest_chain_before_it() -> None:
    assert stages(*messages((0, 1, 10), (1, 2, 20), (0, 2, 30))) == [0, 1, 2]
    assert stages(*messages((0, 3, 5), (2, 3, 10), (1, 2, 20), (0, 1, 30))) == [0, 1, 2, 3]


def test_a_pipeline_that_runs_in_a_circle_has_no_stages() -> None:
    assert stages(*messages((0, 1, 10), (1, 2, 20), (2, 0, 30))) == [-1, -1, -1]


@pytest.mark.parametrize(("first", "second", "expected"), [(3, 8, [0, 1]), (8, 3, [1, 0]), (5, 5, [0, 1])])
def test_in_combined_calls_the_one_that_waited_longer_receives(first: int, second: int, expected: list[int]) -> None:
    assert stages(Event(0, 10 - first, 10, 0, "send_receive"), Event(1, 10 - second, 10, 0, "send_receive")) == expected


def test_ranks_that_compute_layers_together_are_in_one_stage() -> None:
    """A message that was put to the wrong sender does not make a chain of their stages."""
    wrong = messages((0, 2, 10), (2, 1, 20), (1, 3, 12), (2, 0, 30), (3, 1, 32))
    assert stages(*wrong) == [0, 2, 1, 3]
    met = [
        Event(rank, 0, 50, 20 + n, group=group)
        for group, ranks in TEAMS.items()
        for n in NUMBERS[group]
        for rank in ranks
    ]
    assert stages(*wrong, *met) == [0, 0, 1, 1]


def test_groups_that_span_stages_make_no_team() -> None:
    everybody = [Event(rank, 0, 50, 20 + n, group="world") for n in range(9) for rank in range(3)]
    assert stages(*messages((0, 1, 10), (1, 2, 20)), *everybody) == [0, 1, 2]
    first_and_last = [Event(rank, 0, 50, 20, group="embedding") for rank in (0, 2)]
    assert stages(*messages((0, 1, 10), (1, 2, 20)), *first_and_last) == [0, 1, 2]


TEAMS = {"one": (0, 1), "other": (2, 3)}
NUMBERS = {"one": range(9), "other": range(9, 18)}
