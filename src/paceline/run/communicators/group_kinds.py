"""Kinds of groups without a name, from their structure: which ranks they join, and what they do.

    world     all ranks (run/tables/views.py)
    pp        groups that only send and receive; a group with two ranks of one pipeline is nothing else
    ep        groups that exchange all-to-all
    tp, dp    of the rest, groups of equal size and distance are a family: the family of nearest neighbours is tp if it is called
              at least as often as the farthest one, which is dp; beside a pipeline tp is called before the first message of
              a step, which leaves with the first activations, and a single family is dp if it is not

Anything else stays "other".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

_USE = """
    WITH first_message AS (
        SELECT rank, step, min(start) AS leaves FROM grouped.collectives WHERE op IN ('send', 'send_receive') GROUP BY rank, step
    ),
    calls AS (
        SELECT "group", op, rank, coalesce(step, 0) AS step, count(*) AS calls, count(start < leaves) AS compared,
               count(*) FILTER (start < leaves) AS early
        FROM grouped.collectives LEFT JOIN first_message USING (rank, step) WHERE "group" IS NOT NULL GROUP BY ALL
    )
    SELECT "group", list(DISTINCT op), (sum(calls) / count(DISTINCT (rank, step)))::DOUBLE,
           (sum(early) / nullif(sum(compared), 0))::DOUBLE
    FROM calls GROUP BY "group"
"""
_MEMBERS = """
    SELECT "group", any_value(kind), list(rank ORDER BY index, rank) FROM members GROUP BY "group"
"""
_MESSAGES = frozenset({"send", "receive", "send_receive"})
EARLY = 0.02
"""Of a family's calls in a step at least this share comes before the first message if it is part of forward."""


@dataclass(frozen=True)
class GroupUse:
    """What a group joins and does."""

    ranks: tuple[int, ...]
    ops: frozenset[str]
    calls: float
    """Per rank and step."""
    early: float | None
    """Share of the calls that come before the rank's first message of the step; None without messages."""

    @property
    def family(self) -> tuple[int, int]:
        """(distance of neighbours, size)."""
        return (self.ranks[1] - self.ranks[0], len(self.ranks))


def structural_kinds(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Group → kind, of groups whose kind is "other" so far and that tell theirs."""
    uses = {group: (frozenset(ops), calls, early) for group, ops, calls, early in connection.execute(_USE).fetchall()}
    known: set[str] = set()
    open_groups: dict[str, GroupUse] = {}
    for group, kind, ranks in connection.execute(_MEMBERS).fetchall():
        if kind != "other":
            known.add(kind)
        elif group in uses and len(ranks) > 1:
            open_groups[group] = GroupUse(tuple(ranks), *uses[group])
    return kinds_of(open_groups, known)


def kinds_of(groups: Mapping[str, GroupUse], known: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    families: dict[tuple[int, int], list[str]] = defaultdict(list)
    pipelines = _pipelines([use.ranks for use in groups.values() if use.ops <= _MESSAGES])
    for group, use in groups.items():
        if use.ops <= _MESSAGES:
            found[group] = "pp"
        elif _crosses(use.ranks, pipelines):
            continue  # embeddings that the first and the last stage share, or a norm over a pipeline
        elif "all_to_all" in use.ops:
            found[group] = "ep"
        else:
            families[use.family].append(group)
    for family, kind in _kinds_of_families(families, groups).items():
        found |= dict.fromkeys(families[family], kind)
    return {group: kind for group, kind in found.items() if kind not in known or kind == "pp"}


def _pipelines(groups: Sequence[tuple[int, ...]]) -> dict[int, int]:
    """Rank → the least rank of its pipeline: of all ranks that pipeline groups connect it with.

    >>> _pipelines([(0, 2), (2, 4), (1, 3)])
    {0: 0, 2: 0, 4: 0, 1: 1, 3: 1}
    """
    found = {rank: rank for ranks in groups for rank in ranks}
    for _ in range(len(groups)):
        before = dict(found)
        for ranks in groups:
            least = min(found[rank] for rank in ranks)
            found |= dict.fromkeys(ranks, least)
        if found == before:
            break
    return found


def _crosses(ranks: tuple[int, ...], pipelines: Mapping[int, int]) -> bool:
    """Whether two members are in one pipeline: stages share neither tensors nor gradients."""
    known = [pipelines[rank] for rank in ranks if rank in pipelines]
    return len(known) > len(set(known))


def _kinds_of_families(
    families: Mapping[tuple[int, int], Sequence[str]], groups: Mapping[str, GroupUse]
) -> dict[tuple[int, int], str]:
    if not families:
        return {}
    near, far = min(families), max(families)
    early = [groups[group].early for group in families[near]]
    shares = [share for share in early if share is not None]
    if near[0] < far[0]:
        if shares and max(shares) < EARLY:
            return {}
        often = _calls(families[near], groups) >= _calls(families[far], groups)
        return {near: "tp", far: "dp"} if often else {}
    if len(families) > 1 or not shares:
        return {}
    return {near: "tp" if max(shares) >= EARLY else "dp"}


def _calls(names: Sequence[str], groups: Mapping[str, GroupUse]) -> float:
    return sum(groups[name].calls for name in names) / len(names)
