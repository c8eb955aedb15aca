"""The communication of a run as arrays: every rank's events in order, joined into the collectives they took part in.

An *event* is one rank's part of a collective; an *instance* is the collective itself. Members of an instance are joined
by (step, group, op, sequence); sends and receives by pair and sequence, or, in pipeline groups of more than two ranks
that do not name the peer, by ends that coincide.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.communication.p2p import Buffered, are_buffered, buffered_messages, message_rows
from paceline.metrics.steps import NO_STEP
from paceline.metrics.table import RunTables

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

PEER_TO_PEER = ("send", "receive", "send_receive")
COMPUTING = "computing"
"""The group key of rows that are computing, in recordings that hold every operation."""
PAIR_TOLERANCE_NS = 500_000
"""Both ends of a transfer finish within this, on aligned clocks."""
DISTANCE = 0.4
"""Pairs as many ranks apart have at least this share of the votes of the most frequent distance."""
NEIGHBOURS = 64
"""How many earlier and later ends are looked at."""
MIN_PAIR_SHARE = 0.5
"""Ranks talk to each other when their ends were nearest at least this often, compared with the best partner of either."""

_EVENTS = """
    WITH chosen AS (
        SELECT rank, coalesce(step, {outside}) AS step, op,
               -- Without a group, sends and receives have different names on both sides: they are paired by their ends.
               coalesce("group", if(op IN ('send', 'receive', 'send_receive'), 'p2p', name)) AS group_key,
               coalesce(sequence, -1) AS sequence,
               coalesce(peer, -1) AS peer, start, greatest(duration, 0) AS duration, coalesce(bytes, -1) AS bytes
        FROM collectives
        WHERE start IS NOT NULL AND duration IS NOT NULL {steps}
    )
    SELECT *,
           dense_rank() OVER (ORDER BY group_key) AS group_code,
           dense_rank() OVER (ORDER BY step, group_key, op, sequence) AS code,
           count(*) OVER (PARTITION BY step, group_key, op, sequence, rank) AS copies
    FROM chosen
    ORDER BY rank, start, duration
"""


@dataclass(frozen=True)
class CommEvents:
    """One row per rank × collective, ordered by rank and start; times in ns on the cluster clock."""

    ranks: Ints
    """The global ranks, ascending; `rank` holds places in it."""
    rank: Ints
    step: Ints
    group_key: NDArray[np.object_]
    op: NDArray[np.object_]
    start: Ints
    end: Ints
    bytes: Ints
    instance: Ints
    buffered_sends: bool = False
    """Whether sends go on at once, without waiting for their receives (metrics/communication/p2p.py)."""

    @cached_property
    def buffered(self) -> Buffered:
        """Messages whose sender does not wait; none where both sides do."""
        sent, received = message_rows(self.op, self.instance)
        kept = slice(None) if self.buffered_sends else slice(0)
        return buffered_messages(self.start, self.end, self.rank, sent[kept], received[kept])

    @cached_property
    def numbered_ops(self) -> tuple[Ints, list[object]]:
        return numbered(self.op)

    @cached_property
    def numbered_groups(self) -> tuple[Ints, list[object]]:
        return numbered(self.group_key)

    def is_op(self, *ops: str) -> Bools:
        """Which events are of these operators."""
        number, names = self.numbered_ops
        return np.isin(number, [place for place, name in enumerate(names) if name in ops])

    @cached_property
    def is_message(self) -> Bools:
        return self.is_op(*PEER_TO_PEER)

    @property
    def duration(self) -> Ints:
        return self.end - self.start

    @cached_property
    def instances(self) -> int:
        return int(self.instance.max()) + 1 if len(self.instance) else 0

    @cached_property
    def members(self) -> Ints:
        """How many ranks took part in each instance."""
        return np.bincount(self.instance, minlength=self.instances)

    @cached_property
    def first_row(self) -> Ints:
        """Where each instance is met first: at its lowest rank."""
        first = np.full(self.instances, -1, dtype=np.int64)
        first[self.instance[::-1]] = np.arange(len(self.instance))[::-1]
        return first

    @cached_property
    def last_start(self) -> Ints:
        """When the last member of each instance arrived."""
        last = np.full(self.instances, np.iinfo(np.int64).min)
        np.maximum.at(last, self.instance, self.start)
        return last

    @cached_property
    def transfer(self) -> Ints:
        """Duration of each instance after its last member arrived: the shortest duration any member saw.

        The last to arrive does not wait, so its duration is the transfer alone; no clock is compared. Of a buffered
        message it is the time from the begin of the send to the arrival.
        """
        shortest = np.full(self.instances, np.iinfo(np.int64).max)
        np.minimum.at(shortest, self.instance, self.duration)
        shortest[self.instance[self.buffered.received]] = self.buffered.latency
        return shortest

    def with_moments(self, rows: Ints, moments: Ints, op: str) -> tuple[CommEvents, Ints]:
        """With one more row for each of these, on its rank and in its step, that takes no time.

        Also the order in which the old rows, then the new ones, are put.
        """
        count = len(rows)
        start = np.concatenate([self.start, moments])
        rank = np.concatenate([self.rank, self.rank[rows]])
        order = np.lexsort((np.arange(len(start)), start, rank))
        instance = np.concatenate([self.instance, self.instances + np.arange(count)])[order]
        joined = CommEvents(
            ranks=self.ranks,
            rank=rank[order],
            step=np.concatenate([self.step, self.step[rows]])[order],
            group_key=np.concatenate([self.group_key, np.full(count, None, dtype=object)])[order],
            op=np.concatenate([self.op, np.full(count, op, dtype=object)])[order],
            start=start[order],
            end=np.concatenate([self.end, moments])[order],
            bytes=np.concatenate([self.bytes, np.full(count, -1)])[order],
            instance=np.unique(instance, return_inverse=True)[1].astype(np.int64),
            buffered_sends=self.buffered_sends,
        )
        return joined, order


def numbered(values: NDArray[Any]) -> tuple[Ints, list[object]]:
    """The number of each value, and the values by number, as they first occur: numbers are compared faster than texts.

    >>> numbered(np.array(["b", "a", "b"], dtype=object))
    (array([0, 1, 0]), ['b', 'a'])
    """
    items = values.tolist()
    names = list(dict.fromkeys(items))
    place = {name: number for number, name in enumerate(names)}
    return np.fromiter(map(place.__getitem__, items), np.int64, len(items)), names


def outside_steps(run: RunTables) -> int:
    """Number of the step of collectives that belong to none: no step's, or, where no step was recorded, that of all."""
    run.load(["steps"])
    return (
        NO_STEP
        if run.sql("SELECT 1 FROM steps WHERE step IS NOT NULL AND duration IS NOT NULL LIMIT 1").fetchall()
        else 0
    )


def read_events(run: RunTables, steps: tuple[int, ...] | None = None) -> CommEvents:
    """All communication events of a run, or of some of its steps."""
    run.load(["collectives", "groups"])
    outside = outside_steps(run)
    chosen = "" if steps is None else f"AND coalesce(step, {outside}) IN ({', '.join(map(str, steps)) or 'NULL'})"
    columns = run.sql(_EVENTS.format(steps=chosen, outside=outside)).fetchnumpy()
    ranks, rank = np.unique(columns["rank"].astype(np.int64), return_inverse=True)
    start = columns["start"].astype(np.int64)
    end = start + columns["duration"].astype(np.int64)
    instance = _InstanceMatcher(columns, end).instances()
    return CommEvents(
        ranks=ranks,
        rank=rank.astype(np.int64),
        step=columns["step"].astype(np.int64),
        group_key=columns["group_key"],
        op=columns["op"],
        start=start,
        end=end,
        bytes=columns["bytes"].astype(np.int64),
        instance=instance,
        buffered_sends=are_buffered(start, end, *message_rows(columns["op"], instance)),
    )


class _InstanceMatcher:
    """Works out which events belong together."""

    def __init__(self, columns: dict[str, NDArray[np.generic]], end: Ints) -> None:
        self.start = columns["start"].astype(np.int64)
        self.end = end
        self.rank = columns["rank"].astype(np.int64)
        self.step = columns["step"].astype(np.int64)
        self.sequence = columns["sequence"].astype(np.int64)
        self.peer = columns["peer"].astype(np.int64)
        self.op = columns["op"]
        self.group_codes = columns["group_code"].astype(np.int64)
        self.codes = columns["code"].astype(np.int64)
        self.copies = columns["copies"].astype(np.int64)

    def instances(self) -> Ints:
        count = len(self.rank)
        if not count:
            return np.zeros(0, dtype=np.int64)
        result = np.arange(count, dtype=np.int64)
        number, names = numbered(self.op)
        paired = np.isin(number, [place for place, name in enumerate(names) if name in PEER_TO_PEER])
        self._join(result, np.flatnonzero(~paired & (self.sequence >= 0)))
        self._pair(result, np.flatnonzero(paired))
        return np.unique(result, return_inverse=True)[1].astype(np.int64)

    def _join(self, result: Ints, rows: Ints) -> None:
        """Equal (step, group, op, sequence) is the same collective, unless one rank has it twice."""
        codes = self.codes[rows]
        usable = ~np.isin(codes, codes[self.copies[rows] > 1])
        first = np.full(int(codes.max()) + 1 if len(codes) else 0, -1, dtype=np.int64)
        first[codes[::-1]] = rows[::-1]
        result[rows[usable]] = first[codes[usable]]

    def _pair(self, result: Ints, rows: Ints) -> None:
        """Sends with receives, and both sides of combined calls, group by group."""
        for group_key in np.unique(self.group_codes[rows]):
            group = rows[self.group_codes[rows] == group_key]
            for combined in (False, True):
                chosen = group[(self.op[group] == "send_receive") == combined]
                if len(chosen):
                    self._pair_group(result, chosen, combined=combined)

    def _pair_group(self, result: Ints, rows: Ints, *, combined: bool) -> None:
        if len(np.unique(self.rank[rows])) == 2 or (self.peer[rows] >= 0).all():
            left = self._pair_by_number(result, rows, combined=combined)
        else:
            left = rows
        if len(left):
            self._pair_by_end(result, left, combined=combined)

    def _pair_by_number(self, result: Ints, rows: Ints, *, combined: bool) -> Ints:
        """Pair the messages of a step from a to b: by their numbers, else in the order in which both sides began them.

        Numbers may count all messages of a rank, or begin elsewhere, so that the sides differ; messages of a pair keep their
        order. That decides where every peer was recorded, else where both sides of a message then end together.
        """
        others = {int(rank) for rank in np.unique(self.rank[rows])}
        sides: dict[tuple[int, int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for row in rows.tolist():
            here = int(self.rank[row])
            there = int(self.peer[row]) if self.peer[row] >= 0 else next(iter(others - {here}), -1)
            outward = (combined and here < there) or (not combined and self.op[row] == "send")
            pair = (here, there) if outward else (there, here)
            sides[int(self.step[row]), pair[0], pair[1]][0 if outward else 1].append(row)
        in_order = bool((self.peer[rows] >= 0).all())
        unpaired: list[int] = []
        for sent, received in sides.values():
            pairs = self._message_pairs(sent, received, in_order=in_order)
            for one, other in pairs:
                result[max(one, other)] = result[min(one, other)]
            unpaired += set(sent + received).difference(*pairs) if pairs else sent + received
        return np.array(sorted(unpaired), dtype=np.int64)

    def _message_pairs(self, sent: list[int], received: list[int], *, in_order: bool) -> list[tuple[int, int]]:
        """Rows of sends with rows of their receives, all between the same two ranks in one step."""
        numbers = [Counter(self.sequence[side].tolist()) for side in (sent, received)]
        of_number = {int(self.sequence[row]): row for row in received}
        numbered = [
            (row, of_number[number])
            for row in sent
            if numbers[0][number := int(self.sequence[row])] == numbers[1][number] == 1
            and self.rank[row] != self.rank[of_number[number]]
        ]
        if numbers[0] == numbers[1] or len(sent) != len(received):
            return numbered
        ordered = list(zip(sorted(sent, key=self._begin), sorted(received, key=self._begin), strict=True))
        return ordered if in_order or self._apart(ordered) <= self._apart(numbered) else numbered

    def _apart(self, pairs: list[tuple[int, int]]) -> float:
        """How far apart both sides of a message typically end; they end together, unless sends are buffered."""
        return float(np.median([abs(self.end[a] - self.end[b]) for a, b in pairs])) if pairs else np.inf

    def _begin(self, row: int) -> int:
        return int(self.start[row])

    def _pair_by_end(self, result: Ints, rows: Ints, *, combined: bool) -> None:
        """Partners finish together: the nearest end on a frequent partner, if each is the other's nearest.

        Ranks of one stage finish at nearly the same time, so one coincidence proves nothing: see _frequent_pairs.
        """
        ordered = rows[np.argsort(self.end[rows], kind="stable")]
        ends, places = self.end[ordered], np.arange(len(ordered))
        first = np.maximum(np.searchsorted(ends, ends - PAIR_TOLERANCE_NS), places - NEIGHBOURS)
        last = np.minimum(np.searchsorted(ends, ends + PAIR_TOLERANCE_NS, side="right"), places + NEIGHBOURS + 1)
        windows = zip(ordered.tolist(), first.tolist(), last.tolist(), strict=True)
        around = {row: self._other_sides(row, ordered[low:high], combined) for row, low, high in windows}
        votes = Counter((int(self.rank[row]), int(self.rank[near[0]])) for row, near in around.items() if near)
        frequent = _frequent_pairs(votes, np.unique(self.rank[rows]).tolist())
        nearest = {}
        for row, near in around.items():
            fitting = (other for other in near if (int(self.rank[row]), int(self.rank[other])) in frequent)
            nearest[row] = next(fitting, -1)
        for row, other in nearest.items():
            if other >= 0 and nearest[other] == row:
                result[max(row, other)] = result[min(row, other)]

    def _other_sides(self, row: int, near: Ints, combined: bool) -> list[int]:
        """Of these rows those that may be the other side of this one, nearest end first."""
        possible = near[(self.rank[near] != self.rank[row]) & (combined | (self.op[near] != self.op[row]))]
        return possible[np.argsort(np.abs(self.end[possible] - self.end[row]), kind="stable")].tolist()  # type: ignore[no-any-return]


def _frequent_pairs(votes: Counter[tuple[int, int]], ranks: list[int]) -> set[tuple[int, int]]:
    """Which ranks are partners, from whose ends were nearest how often.

    A rank has few partners and keeps them, and everywhere in the group partners are as many places apart; the last may
    send to the first.
    """
    place = {rank: number for number, rank in enumerate(ranks)}
    both = {pair: count + votes[pair[::-1]] for pair, count in votes.items()}
    most: dict[int, int] = {}
    apart: Counter[int] = Counter()

    def distance(pair: tuple[int, int]) -> int:
        straight = abs(place[pair[0]] - place[pair[1]])
        return 1 if straight == len(ranks) - 1 else straight

    for pair, count in both.items():
        most |= {rank: max(count, most.get(rank, 0)) for rank in pair}
        apart[distance(pair)] += count
    return {
        pair
        for pair, count in both.items()
        if count >= MIN_PAIR_SHARE * max(most[rank] for rank in pair)
        and apart[distance(pair)] >= DISTANCE * max(apart.values())
    }
