"""Communication groups from the numbers in links: each rank's index inside the communicator of each of its operators.

HCCL numbers the ends of a link inside the communicator, and a rank is at one end of every link it records:

    own index = k of a copy inside the card (k-k), else one end of copies between cards, the writing end of RDMA

Which end of a copy recorded it depends on the version of CANN (the reading or the writing one): the one is used with which more
groups come out.

Communicators of parallel training are regular: n members, s ranks apart, so that

    index(rank) = rank // s mod n

or, where tensor and pipeline parallelism are combined, n neighbours in each of m stages (near + n · stage).

An operator's groups are the blocks of those shapes that give every member the index it recorded, whose members all execute
the operator, move about as much, and whose links reach the number n - 1. No clock is needed. Operators without links, or with
groups that are not regular, are left to run/communicators/groups.py.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from paceline.run.communicators.neighbour_messages import pair_of, stage_size

ALIKE = 4.0
"""Members of one collective record bytes within this ratio: at the ends of hosts a card logs both of its links or none."""
SURE = 0.95
"""Confidence in a block whose members all recorded their index; it falls to 0.5 with the share that did not."""

_OPERATOR = re.compile(r"(\d+)[^0-9]*$")

P2P = ("send", "receive", "send_receive")

_MEMBERS = """
    WITH called AS (
        SELECT name, rank, any_value(op) AS op, max(bytes) AS bytes FROM raw.collectives
        WHERE "group" IS NULL AND rank IS NOT NULL AND name IS NOT NULL GROUP BY name, rank
    ),
    ends AS (
        SELECT name, rank, max(greatest(src, dst)) AS highest,
               min(src) FILTER (src = dst) AS self, max(src) FILTER (src = dst) AS last_self,
               min(src) FILTER (src <> dst) AS least_src, max(src) FILTER (src <> dst) AS most_src,
               min(dst) FILTER (src <> dst) AS least_dst, max(dst) FILTER (src <> dst) AS most_dst,
               min(dst) FILTER (src <> dst AND transport <> 'RDMA') AS least_read,
               max(dst) FILTER (src <> dst AND transport <> 'RDMA') AS most_read,
               min(src) FILTER (src <> dst AND transport <> 'RDMA') AS least_copied,
               max(src) FILTER (src <> dst AND transport <> 'RDMA') AS most_copied,
               min(src) FILTER (src <> dst AND transport = 'RDMA') AS least_written,
               max(src) FILTER (src <> dst AND transport = 'RDMA') AS most_written
        FROM raw.transfers
        WHERE scope = 'group' AND "group" IS NULL AND name IS NOT NULL AND src IS NOT NULL AND dst IS NOT NULL
        GROUP BY name, rank
    ),
    own AS (
        SELECT called.*, highest, self,
               if(self = last_self, self, NULL) AS copied,
               if($reading, if(least_read = most_read, least_read, NULL),
                  if(least_copied = most_copied, least_copied, NULL)) AS read,
               if(least_written = most_written, least_written, NULL) AS written,
               if(least_src = most_src, least_src, NULL) AS only_src, if(least_dst = most_dst, least_dst, NULL) AS only_dst
        FROM called LEFT JOIN ends USING (name, rank)
    )
    SELECT name, rank, op, bytes, highest, self,
           CASE WHEN op = 'send' THEN only_src WHEN op = 'receive' THEN only_dst
                WHEN copied IS NOT NULL THEN copied
                WHEN read IS DISTINCT FROM written AND read IS NOT NULL AND written IS NOT NULL THEN NULL
                ELSE coalesce(read, written) END AS own
    FROM own ORDER BY name, rank
"""


@dataclass(frozen=True)
class Member:
    """What one rank recorded of one operator; None where nothing tells it."""

    rank: int
    own: int | None
    """Its index in the communicator."""
    highest: int | None
    """The highest number in its links."""
    bytes: int | None


@dataclass(frozen=True)
class Job:
    recorded: frozenset[int]
    """Ranks of which collectives were recorded."""
    world: int
    """All ranks there are."""


@dataclass(frozen=True)
class Block:
    """One group: ranks in the order of their indices."""

    ranks: tuple[int, ...]
    known: int
    """Members whose recorded index agrees."""

    @property
    def confidence(self) -> float:
        return round(0.5 + (SURE - 0.5) * self.known / len(self.ranks), 3)


@dataclass(frozen=True)
class OperatorGroup:
    """An operator (by name) on one rank belongs to this group."""

    name: str
    rank: int
    block: Block
    operator: str
    """The same on all its members: its name on the first one."""


_Row = tuple[str, int, str, int | None, int | None, int | None, int | None]


def structured_groups(connection: duckdb.DuckDBPyConnection) -> list[OperatorGroup]:
    """The groups of all operators whose communicator is not recorded but shown by the numbers in their links."""
    found: list[OperatorGroup] = []
    for reading in (True, False):
        rows = connection.execute(_MEMBERS, {"reading": reading}).fetchall()
        groups = _groups_of(rows, connection) if rows else []
        if len(groups) > len(found):
            found = groups
        if len(found) == len(rows):
            break
    return found


def _groups_of(rows: Sequence[_Row], connection: duckdb.DuckDBPyConnection) -> list[OperatorGroup]:
    [(recorded, listed)] = connection.execute(
        "SELECT list(DISTINCT rank), (SELECT coalesce(max(rank), 0) FROM raw.ranks) FROM raw.collectives"
    ).fetchall()
    # The last ranks may be missing, but a rank table lists them, or their neighbours recorded links to them.
    highest = max((row[4] for row in rows if row[4] is not None), default=0)
    job = Job(frozenset(recorded), max(*recorded, highest, listed) + 1)
    return [*_of_collectives(rows, job), *_of_messages(rows, job)]


def _of_collectives(rows: Sequence[_Row], job: Job) -> Iterable[OperatorGroup]:
    """First operators of one name, then what is left: the graphs of two stages name one collective differently."""
    members: dict[tuple[str, str], list[Member]] = defaultdict(list)
    for name, rank, op, size, highest, _, own in rows:
        if op not in P2P:
            members[op, name].append(Member(rank, own, highest, _magnitude(size)))
    # Operators with equal evidence are solved once: a graph repeats a few kinds of operators hundreds of times.
    solved: dict[tuple[Member, ...], list[Block]] = {}
    left: dict[str, dict[str, tuple[Member, ...]]] = defaultdict(dict)
    for (op, name), evidence in members.items():
        key = tuple(evidence)
        if key not in solved:
            solved[key] = regular_blocks(key, job) or _by_size(key, job)
        mine = {member.rank for member in evidence}
        taken = {rank for block in solved[key] for rank in block.ranks}
        yield from (
            OperatorGroup(name, rank, block, name) for block in solved[key] for rank in block.ranks if rank in mine
        )
        if rest := tuple(member for member in evidence if member.rank not in taken):
            left[op][name] = rest
    for names in left.values():
        yield from _across_graphs(names, job)


def _by_size(evidence: Sequence[Member], job: Job) -> list[Block]:
    """Groups of operators that only share a name: they move different numbers of bytes."""
    unknown = [member for member in evidence if not member.bytes]
    found: dict[tuple[int, ...], Block] = {}
    for size in sorted({member.bytes for member in evidence if member.bytes}):
        alike = [member for member in evidence if member.bytes and size <= member.bytes <= ALIKE * size]
        ranks = {member.rank for member in alike}
        for block in regular_blocks(sorted([*alike, *unknown], key=lambda member: member.rank), job, needed=ranks):
            if not any(set(block.ranks) & set(other) for other in found):
                found[block.ranks] = block
    return list(found.values())


def _across_graphs(left: Mapping[str, tuple[Member, ...]], job: Job) -> Iterable[OperatorGroup]:
    """Operators of different ranks and names as one: the n-th of each graph that moves about as much."""
    alike: dict[tuple[tuple[int, ...], int], list[str]] = defaultdict(list)
    for name in sorted(left, key=_number):
        ranks = tuple(member.rank for member in left[name])
        alike[ranks, max((member.bytes or 0) for member in left[name])].append(name)
    classes = sorted(alike.items())
    for place, ((ranks, size), names) in enumerate(classes):
        others = [
            (more, theirs)
            for (more, bytes_), theirs in classes[place + 1 :]
            if len(theirs) == len(names)
            and max(size, bytes_) <= ALIKE * max(1, min(size, bytes_))
            and set(more).isdisjoint(ranks)
        ]
        for nth, name in enumerate(names):
            parts = dict.fromkeys(ranks, name) | {rank: theirs[nth] for more, theirs in others for rank in more}
            evidence = [
                member for part in dict.fromkeys(parts.values()) for member in left[part] if parts[member.rank] == part
            ]
            yield from (
                OperatorGroup(parts[rank], rank, block, parts[block.ranks[0]])
                for block in regular_blocks(sorted(evidence, key=lambda member: member.rank), job)
                if any(rank in ranks for rank in block.ranks)
                for rank in block.ranks
                if rank in parts and block.ranks[0] in parts
            )


def _number(name: str) -> tuple[int, str]:
    """Sort key: the number of an operator in its graph."""
    found = _OPERATOR.search(name)
    return (int(found[1]) if found else -1, name)


def _magnitude(size: int | None) -> int | None:
    """Bytes rounded to a power of two: enough to tell operators apart, and equal on the executions of one."""
    return 1 << size.bit_length() if size else None


def _of_messages(rows: Sequence[_Row], job: Job) -> Iterable[OperatorGroup]:
    """Sends and receives of a rank are in one group, the pipeline, or in one with each neighbour.

    Only where ends are numbered inside it: MindSpore's parser also writes "0-0" for a message between two cards.
    """
    names: dict[int, list[str]] = defaultdict(list)
    own: dict[int, set[int]] = defaultdict(set)
    highest: dict[int, int] = {}
    for name, rank, op, _, most, self, mine in rows:
        if op not in P2P:
            continue
        if self is not None:
            return
        names[rank].append(name)
        if mine is not None:
            own[rank].add(mine)
        if most is not None:
            highest[rank] = max(most, highest.get(rank, 0))
    if size := stage_size({rank: frozenset(own[rank]) for rank in names}, job.world) if _are_pairs(highest) else None:
        yield from _of_neighbours(rows, size, job)
        return
    one = {rank: next(iter(own[rank])) if len(own[rank]) == 1 else None for rank in names}
    evidence = tuple(Member(rank, one[rank], highest.get(rank), None) for rank in sorted(names))
    for block in regular_blocks(evidence, job):
        yield from (OperatorGroup(name, rank, block, name) for rank in block.ranks for name in names.get(rank, ()))


def _are_pairs(highest: Mapping[int, int]) -> bool:
    return set(highest.values()) == {1}


def _of_neighbours(rows: Sequence[_Row], size: int, job: Job) -> Iterable[OperatorGroup]:
    """Messages between neighbouring stages with a communicator for every pair of them; some receives stay open."""
    for name, rank, op, _, _, _, own in rows:
        if op in P2P and (pair := pair_of(rank, own, size, job.world)):
            yield OperatorGroup(name, rank, Block(pair, 2), name)


def regular_blocks(evidence: Sequence[Member], job: Job, *, needed: set[int] | None = None) -> list[Block]:
    """Disjoint groups of all members of one operator (or of those needed), of contradicting ones those with more evidence.

    None if ranks are left over: they are in groups with ranks that seem to be in other ones.

    >>> two = [Member(rank, rank % 2, 1, None) for rank in range(4)]
    >>> [block.ranks for block in regular_blocks(two, Job(frozenset(range(4)), 4))]
    [(0, 1), (2, 3)]
    """
    members = {member.rank: member for member in evidence}
    wanted = members.keys() if needed is None else needed
    sizes = sorted({member.highest + 1 for member in evidence if member.highest})
    for layouts in (_strided, _grids):
        found: dict[tuple[int, ...], Block] = {}
        for ranks in (ranks for size in sizes for ranks in layouts(members, size, job.world)):
            if block := _block_of(ranks, members, job.recorded):
                found.setdefault(ranks, block)
        if chosen := _disjoint(found.values(), wanted):
            return chosen
    return []


def _disjoint(blocks: Iterable[Block], wanted: Collection[int]) -> list[Block]:
    """Of blocks that contradict each other those with more evidence; none if a wanted rank is left over."""
    taken: set[int] = set()
    chosen = []
    for block in sorted(blocks, key=lambda each: (-each.known, len(each.ranks), each.ranks)):
        if taken.isdisjoint(block.ranks):
            taken.update(block.ranks)
            chosen.append(block)
    chosen = [block for block in chosen if not set(wanted).isdisjoint(block.ranks)]
    return sorted(chosen, key=lambda each: each.ranks) if taken.issuperset(wanted) else []


def _strides(world: int, size: int) -> list[int]:
    """Divisors of the number of groups of this size; none if such groups do not fill the job."""
    groups = world // size if world % size == 0 else 0
    return [stride for stride in range(1, groups + 1) if groups % stride == 0]


def _strided(members: Iterable[int], size: int, world: int) -> Iterable[tuple[int, ...]]:
    """Ranks of the groups of this size, s apart."""
    for stride in _strides(world, size):
        bases = {rank // (size * stride) * size * stride + rank % stride for rank in members}
        for base in sorted(bases):
            yield tuple(range(base, base + size * stride, stride))


def _grids(members: Iterable[int], size: int, world: int) -> Iterable[tuple[int, ...]]:
    """Ranks of groups of neighbours in every stage: the model-parallel groups of pipelines with tensor parallelism."""
    for inner in range(2, size):
        if size % inner or world % (size // inner):
            continue
        stage = world // (size // inner)
        for base in sorted({rank % stage // inner * inner for rank in members}):
            yield tuple(base + near + far for far in range(0, world, stage) for near in range(inner))


def _block_of(ranks: tuple[int, ...], members: Mapping[int, Member], recorded: frozenset[int]) -> Block | None:
    """The group of these ranks if the evidence allows it."""
    here = [members[rank] for rank in ranks if rank in members]
    if any(rank in recorded and rank not in members for rank in ranks) or not _fits(here, ranks):
        return None
    return Block(ranks, sum(member.own is not None for member in here))


def _fits(here: Sequence[Member], ranks: Sequence[int]) -> bool:
    highest = [member.highest for member in here if member.highest is not None]
    moved = [member.bytes for member in here if member.bytes]
    return (
        len(here) > 1
        and bool(highest)
        and max(highest) == len(ranks) - 1
        and all(member.own is None or ranks[member.own] == member.rank for member in here)
        and any(member.own is not None for member in here)
        and (not moved or max(moved) <= ALIKE * min(moved))
    )
