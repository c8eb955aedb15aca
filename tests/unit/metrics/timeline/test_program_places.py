"""Places of the program: the same on ranks and steps that run the same."""

from __future__ import annotations

import numpy as np

from paceline.metrics.communication.comm_events import CommEvents
from paceline.metrics.timeline.program_places import place_codes


def messages(instance: list[int]) -> CommEvents:
    """Ranks that send three messages each, joined into these instances."""
    count, zeros = len(instance), np.zeros(len(instance), dtype=np.int64)
    return CommEvents(
        ranks=np.arange(count // 3),
        rank=np.arange(count) // 3,
        step=zeros,
        group_key=np.full(count, "pp", dtype=object),
        op=np.full(count, "send", dtype=object),
        start=np.arange(count),
        end=np.arange(count) + 1,
        bytes=zeros,
        instance=np.array(instance),
    )


def test_a_message_that_lacks_its_other_side_counts_as_the_others_do() -> None:
    """The first message between ranks 0 and 1 was joined with nothing; those behind it are where those of ranks 2 and 3 are."""
    events = messages([0, 1, 2, 3, 1, 2, 4, 5, 6, 4, 5, 6])
    places = place_codes(events, np.zeros(12, dtype=np.int64)).reshape(4, 3).tolist()
    assert places == [places[0]] * 4 and len(set(places[0])) == 3
