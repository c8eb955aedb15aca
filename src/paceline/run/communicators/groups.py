"""Inference of communication groups that the recording does not name, from collectives that end together.

Old formats name graph operators ("AllReduce-op12") but no communicator, and ranks of different groups run operators of
the same name. Where links do not tell the groups (group_structure.py), ends do: on one clock, members of a communicator
end soon after each other, in a ring within the time of one message. Operators of one kind that move the same number of bytes are
one family and share a partition of the ranks: each operator of the family votes for the partition that its ends show, and the
most frequent one is used. Coincidences are outvoted.

How soon is learnt from the data: the closest tolerance that gives groups of equal size. No rank leaves a collective before the
last member arrives; ranks for which that does not hold are no group, and a rank alone is none either: unknown stays unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import groupby

import duckdb

TOGETHER_NS = 6_000
"""Members' ends agree within this on an aligned clock, if nothing staggers them."""
CLOSER_NS = (3_000, 1_500, 700, 300, 0)
FURTHER_NS = (20_000, 60_000, 200_000, 600_000)
"""Members of a ring end one message after each other."""
CLOCK_NS = 50_000
"""How exact an aligned clock is taken to be."""
MOST_VOTERS = 60
MOST_SURE = 0.8
"""Confidence in groups that all operators of a family show: ends can coincide."""
SAME_SIZE = 1.3
"""Members of one collective record nearly the same bytes; above this ratio they are different collectives."""

Partition = tuple[tuple[int, ...], ...]
Family = tuple[str, int, tuple[int, ...]]


@dataclass(frozen=True)
class EndsGroup:
    """An operator (by name) on one rank belongs to the group of these ranks."""

    name: str
    rank: int
    ranks: tuple[int, ...]
    confidence: float


_ENDS = """
    SELECT op, name, coalesce(step, -1) AS step, sequence,
           list([start + duration - coalesce(clock_offset, 0), rank, coalesce(bytes, -1), duration] ORDER BY start + duration)
    FROM (
        FROM raw.collectives
        WHERE "group" IS NULL AND (name, rank) NOT IN (SELECT (name, rank) FROM inferred)
          AND sequence IS NOT NULL AND start IS NOT NULL AND duration IS NOT NULL
          AND op NOT IN ('send', 'receive', 'send_receive')
        QUALIFY count(*) OVER (PARTITION BY name, step, sequence, rank) = 1
    ) LEFT JOIN clock USING (rank)
    GROUP BY ALL ORDER BY op, name, step, sequence
"""


def infer_groups(connection: duckdb.DuckDBPyConnection) -> list[EndsGroup]:
    """Groups of collectives whose communicator is neither recorded nor shown by links."""
    votes: dict[Family, Counter[Partition]] = defaultdict(Counter)
    names: dict[Family, list[str]] = defaultdict(list)
    rows = connection.execute(_ENDS).fetchall()
    for (op, name), executions in groupby(rows, key=lambda row: row[:2]):
        ends = [sorted(row[4]) for row in executions]
        for size, ranks in _alike(ends):
            family = (op, size, ranks)
            names[family].append(name)
            if len(names[family]) <= MOST_VOTERS:
                members = set(ranks)
                votes[family][_partition([[end for end in one if end[1] in members] for one in ends])] += 1
    elected = _completed_partitions({family: _elected(counter) for family, counter in votes.items()}, names)
    found = []
    for family, partition in elected.items():
        agreed = _share(votes[family], partition)
        for block in partition:
            if len(block) > 1:
                confidence = round(MOST_SURE * agreed, 3)
                found += [
                    EndsGroup(name, rank, block, confidence)
                    for name in names[family]
                    for rank in block
                    if rank in family[2]
                ]
    return found


def _share(votes: Counter[Partition], partition: Partition) -> float:
    """The share of operators that voted for a partition, or for parts of it."""
    blocks = [set(block) for block in partition]
    part = sum(
        count
        for one, count in votes.items()
        if any(len(block) > 1 for block in one) and all(any(set(block) <= whole for whole in blocks) for block in one)
    )
    return part / max(1, votes.total())


def _completed_partitions(elected: dict[Family, Partition], names: dict[Family, list[str]]) -> dict[Family, Partition]:
    """Replace incomplete partitions by complete ones of other operators that contain them; lone ranks included."""
    regular = [partition for partition in elected.values() if _is_regular(partition)]
    whole = {}
    for (op, size, ranks), partition in elected.items():
        wider = [elected[other] for other in elected if other[:2] == (op, size) and set(other[2]) > set(ranks)]
        whole[op, size, ranks] = _completed(_completed(partition, wider, lone=True), regular)
    by_name = {name: whole[family] for family in whole if _is_regular(whole[family]) for name in names[family]}
    return {
        family: partition
        if _is_regular(partition)
        else _completed(partition, [by_name[name] for name in names[family] if name in by_name], lone=True)
        for family, partition in whole.items()
    }


def _is_regular(partition: Partition) -> bool:
    sizes = {len(block) for block in partition}
    return len(sizes) == 1 and sizes != {1}


def _completed(partition: Partition, regular: list[Partition], *, lone: bool = False) -> Partition:
    """For a partition with unequal blocks, the regular partition of other operators whose fragments they are.

    >>> _completed(((0,), (1, 3), (2, 4)), [((0, 2, 4), (1, 3, 5)), ((0, 1), (2, 3), (4, 5))])
    ((0, 2, 4), (1, 3, 5))
    """
    if len({len(block) for block in partition}) == 1 and not lone:
        return partition
    for whole in regular:
        if all(any(set(block) <= set(other) for other in whole) for block in partition):
            return whole
    return partition


def _alike(executions: list[list[list[int]]]) -> list[tuple[int, tuple[int, ...]]]:
    """(bytes, ranks) of the ranks on which an operator name means the same operator: about equal bytes.

    Stages number their operators independently: one name may be a gradient all-reduce on one and an activation on another.
    """
    most: dict[int, int] = defaultdict(int)
    for ends in executions:
        for _, rank, size, _ in ends:
            most[rank] = max(most[rank], size)
    classes: list[tuple[int, list[int]]] = []
    for rank, size in sorted(most.items(), key=lambda entry: (entry[1], entry[0])):
        if not classes or size > SAME_SIZE * max(1, classes[-1][0]):
            classes.append((size, []))
        classes[-1][1].append(rank)
    return [(size, tuple(sorted(ranks))) for size, ranks in classes if len(ranks) > 1]


def _partition(executions: list[list[list[int]]]) -> Partition:
    """Ranks that ended together in every execution.

    Groups of one kind are equally large. If the blocks are not, some ranks finished together by chance: try smaller
    tolerances, then whether the smallest block, shifted, fills the larger ones. If no two ranks ended together, the ends may be
    staggered: try larger tolerances.
    """
    first = _together(executions, TOGETHER_NS)
    for tolerance in (TOGETHER_NS, *(FURTHER_NS if _is_scattered(first) else CLOSER_NS)):
        together = _together(executions, tolerance)
        if _is_regular(together) and _overlap(together, executions):
            return together
    return _tiled(first) or first


def _is_scattered(partition: Partition) -> bool:
    return all(len(block) == 1 for block in partition)


def _overlap(partition: Partition, executions: list[list[list[int]]]) -> bool:
    """Whether no rank left before the last member of its block arrived, in any execution."""
    block_of = {rank: number for number, block in enumerate(partition) for rank in block}
    for ends in executions:
        last_arrival: dict[int, int] = {}
        first_end: dict[int, int] = {}
        for finish, rank, _, duration in ends:
            block = block_of[rank]
            last_arrival[block] = max(finish - duration, last_arrival.get(block, finish - duration))
            first_end[block] = min(finish, first_end.get(block, finish))
        if any(last_arrival[block] > first_end[block] + CLOCK_NS for block in first_end):
            return False
    return True


def _tiled(partition: Partition) -> Partition:
    """The smallest block and its shifted copies, if they fill all others exactly.

    >>> _tiled(((0, 1, 8, 9), (2, 3, 4, 5, 10, 11, 12, 13)))
    ((0, 1, 8, 9), (2, 3, 10, 11), (4, 5, 12, 13))
    """
    pattern = min(partition, key=len)
    if len(pattern) < 2:
        return ()
    tiles = []
    for block in partition:
        left = set(block)
        while left:
            tile = tuple(rank - pattern[0] + min(left) for rank in pattern)
            if not left.issuperset(tile):
                return ()
            tiles.append(tile)
            left.difference_update(tile)
    return tuple(sorted(tiles))


def _together(executions: list[list[list[int]]], tolerance: int) -> Partition:
    blocks: dict[int, list[int]] = defaultdict(list)
    for number, ends in enumerate(executions):
        block, before = 0, None
        for finish, rank, *_ in ends:
            block += before is not None and finish - before > tolerance
            before = finish
            blocks[rank] += [-1] * (number - len(blocks[rank])) + [block]
    together: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank, signature in blocks.items():
        together[tuple(signature)].append(rank)
    return tuple(sorted(tuple(sorted(ranks)) for ranks in together.values()))


def _elected(votes: Counter[Partition]) -> Partition:
    """The most frequent partition; among equals the one with fewer, equally large groups."""
    return max(
        votes, key=lambda partition: (votes[partition], len({len(block) for block in partition}) == 1, -len(partition))
    )
