"""Pipeline stages inferred from messages, where none are declared: activations go down the pipeline before gradients return.

Ranks that meet in more collectives than they have messages, and send nothing to each other, compute the same layers together
(tensor parallel): they are one team, in one stage. Of two teams that send to each other, the one that sends first in a step
comes before the other; a team's stage is the length of the longest chain before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.communication.comm_events import CommEvents
from paceline.metrics.timeline.rank_timeline import Timeline

UNKNOWN = -1
MOST_TEAM = 64
"""Tensor parallel groups are small: they stay within fast links."""


def inferred_stages(line: Timeline) -> NDArray[np.int64]:
    """The stage of every rank, -1 where nothing tells it (no pipeline, or one that runs in a circle)."""
    unknown = np.full(len(line.events.ranks), UNKNOWN, dtype=np.int64)
    pairs = _messages(line)
    teams = _teams(line.events, pairs)
    ahead = _neighbours(line, pairs, teams)
    if not ahead:
        return unknown
    stages = dict.fromkeys((team for pair in ahead for team in pair), 0)
    for _ in range(len(stages)):
        longer = {b: stages[a] + 1 for a, b in ahead if stages[b] <= stages[a]}
        if not longer:
            found = np.array([stages.get(team, UNKNOWN) for team in teams.tolist()], dtype=np.int64)
            even = len(set(Counter(found[found != UNKNOWN].tolist()).values())) == 1  # else some pairs are not pairs
            return found if even else unknown
        for team, stage in longer.items():
            stages[team] = max(stages[team], stage)
    return unknown  # interleaved stages: the last one sends to the first


def _messages(line: Timeline) -> NDArray[np.int64]:
    """Rows of both sides of every message, those that end first before others."""
    events = line.events
    rows = np.flatnonzero(events.is_message & (events.members[events.instance] == 2))
    pairs = rows[np.lexsort((events.rank[rows], events.instance[rows]))].reshape(-1, 2)
    sorted_pairs: NDArray[np.int64] = pairs[np.argsort(events.end[pairs].min(axis=1), kind="stable")]
    return sorted_pairs


def _teams(events: CommEvents, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lowest rank (its place) of each rank's team."""
    team = np.arange(len(events.ranks))
    talking = {(int(a), int(b)) for a, b in np.unique(events.rank[pairs], axis=0)}
    sent = np.bincount(events.rank[pairs].ravel(), minlength=len(team))
    for members, met in _groups(events):
        apart = not any((a, b) in talking for a, b in combinations(members, 2))
        if apart and met > max(sent[members]) > 0:
            joined = np.isin(team, team[members])
            team[joined] = team[joined].min()
    return team


def _groups(events: CommEvents) -> Iterator[tuple[list[int], int]]:
    """Members of each group, and how often all of them met."""
    rows = np.flatnonzero(~events.is_message & (events.members[events.instance] > 1))
    names, group = np.unique(events.group_key[rows].astype(str), return_inverse=True)
    order = np.argsort(group, kind="stable")
    for name, mine in zip(
        names, np.split(rows[order], np.searchsorted(group[order], np.arange(1, len(names)))), strict=False
    ):
        members, counts = np.unique(events.rank[mine], return_counts=True)
        if name != "None" and len(members) <= MOST_TEAM:
            yield members.tolist(), int(counts.min())


def _neighbours(line: Timeline, pairs: NDArray[np.int64], teams: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(before, behind) of teams that send to each other."""
    events = line.events
    seen: set[tuple[int, int, int]] = set()
    votes: Counter[tuple[int, int]] = Counter()
    for one, other in pairs.tolist():
        a, b = int(teams[events.rank[one]]), int(teams[events.rank[other]])
        step = int(line.step[one])
        if a == b or (step, min(a, b), max(a, b)) in seen:
            continue
        seen.add((step, min(a, b), max(a, b)))
        votes[(a, b) if _sends(line, one, other) else (b, a)] += 1
    return [pair for pair, count in votes.items() if count > votes[pair[::-1]]]


def _sends(line: Timeline, one: int, other: int) -> bool:
    """Whether data goes from one to the other; in combined calls the one that waited longer is the one that receives."""
    events = line.events
    if events.op[one] == "send_receive":
        return bool(events.duration[one] <= events.duration[other])
    return bool(events.op[one] == "send")
