"""Links repaired in the what-if replay: every collective and message that uses them takes less time.

A collective lasts as long as its slowest link needs. Of the collectives of one operator in one group,

    saved   = max over links of their time - max over links of their time once repaired       (sums over the steps)
    factor  = 1 - saved / transfer time of these collectives

A message between two ranks has one link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from paceline.metrics.communication.comm_events import PEER_TO_PEER, Ints
from paceline.replay.replay import Costs, Replay


@dataclass(frozen=True)
class LinkUse:
    """What one link took part in; times in ns, sums over the steps."""

    group: str | None
    op: str
    """Letters of the operator: allreduce, send …"""
    src: int
    dst: int
    time: float
    fixed: float
    """Once repaired."""


def repair_links(replay: Replay, costs: Costs, uses: Iterable[LinkUse]) -> Costs:
    """Costs with links repaired; `uses` holds every link of the groups concerned, the healthy ones too."""
    uses = list(uses)
    pairs = _by_pair(use for use in uses if use.op in PEER_TO_PEER)
    groups = _by_group(use for use in uses if use.op not in PEER_TO_PEER)
    factor = np.ones(len(costs.transfer))
    for instances, times in _collectives(replay, groups):
        transfer = float(costs.transfer[instances].sum())
        factor[instances] = _left(times, transfer)
    for instance, pair in _messages(replay, pairs):
        time, fixed = pairs[pair]
        factor[instance] = fixed / time if time else 1.0
    return replace(costs, transfer=costs.transfer * factor)


def _left(times: tuple[float, float], transfer: float) -> float:
    """Share of the transfer time that is left; links may work side by side, so that theirs is more than the transfer's."""
    time, fixed = times
    if not time or not transfer:
        return 1.0
    return 1 - (1 - fixed / time) * min(1.0, time / transfer)


def _by_pair(uses: Iterable[LinkUse]) -> dict[tuple[int, int], tuple[float, float]]:
    """Time of each link's messages now and once repaired."""
    found: dict[tuple[int, int], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for use in uses:
        time, fixed = found[use.src, use.dst]
        found[use.src, use.dst] = time + use.time, fixed + use.fixed
    return dict(found)


def _by_group(uses: Iterable[LinkUse]) -> dict[tuple[str, str], tuple[float, float]]:
    """Time of the slowest link of each group and operator, now and once repaired; operator "" = all of the group's."""
    slowest: dict[tuple[str, str], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    links: dict[tuple[str, int, int], tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for use in uses:
        group = str(use.group)
        time, fixed = slowest[group, use.op]
        slowest[group, use.op] = max(time, use.time), max(fixed, use.fixed)
        time, fixed = links[group, use.src, use.dst]
        links[group, use.src, use.dst] = time + use.time, fixed + use.fixed
    for (group, _, _), (one, other) in links.items():
        time, fixed = slowest[group, ""]
        slowest[group, ""] = max(time, one), max(fixed, other)
    return dict(slowest)


def _collectives(
    replay: Replay, groups: Mapping[tuple[str, str], tuple[float, float]]
) -> Iterable[tuple[Ints, tuple[float, float]]]:
    """Instances of each group and operator with the times of their slowest link.

    Where links name none of the group's operators, each has its share of the group's time.
    """
    events, line = replay.timeline.events, replay.timeline
    rows = events.first_row[events.first_row >= 0]
    rows = rows[~line.is_end[rows] & ~events.is_message[rows]]
    wanted = {group for group, _ in groups}
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in rows.tolist():
        if (group := str(events.group_key[row])) in wanted:
            found[group, _name_in_links(groups, group, str(events.op[row]))].append(int(events.instance[row]))
    told_apart = {group for group, op in found if (group, op) in groups}
    joined: dict[tuple[str, str], list[int]] = defaultdict(list)
    for (group, op), instances in found.items():
        joined[(group, op) if group in told_apart else (group, "")] += instances
    for key, instances in joined.items():
        if key in groups:
            yield np.array(instances, dtype=np.int64), groups[key]


def _name_in_links(groups: Mapping[tuple[str, str], tuple[float, float]], group: str, op: str) -> str:
    """Letters of an operator as the links call it: torch_npu's matrix says reduce for reduce_scatter."""
    letters = op.replace("_", "")
    begins = (name for of, name in groups if of == group and name and letters.startswith(name))
    return letters if (group, letters) in groups else max(begins, key=len, default=letters)


def _messages(replay: Replay, pairs: Mapping[tuple[int, int], object]) -> Iterable[tuple[int, tuple[int, int]]]:
    """Instances that are messages over one of these links."""
    if not pairs:
        return
    events = replay.timeline.events
    ranks = events.ranks[events.rank]
    members: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(events.is_message).tolist():
        members[int(events.instance[row])].append(row)
    for instance, rows in members.items():
        if len(rows) != 2:
            continue
        first, second = sorted(rows, key=lambda row: str(events.op[row]) != "send")
        ends = int(ranks[first]), int(ranks[second])
        if ends in pairs:
            yield instance, ends
