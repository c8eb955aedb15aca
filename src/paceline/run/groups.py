"""Communication groups that nobody declared: members of one communicator leave its collectives together.

Old formats name graph operators ("AllReduce-op12") but no communicator, and ranks of different groups run operators of
the same name. On one clock, members of a communicator end within microseconds of each other. Operators that move the
same number of bytes in the same way are one family and share a partition of the ranks; each operator of the family
votes with the partition its ends show, and the most frequent one is taken. Chance coincidences are outvoted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import groupby

import duckdb

TOGETHER_NS = 6_000
"""Members' ends agree within this on an aligned clock."""
MOST_VOTERS = 60

Partition = tuple[tuple[int, ...], ...]
Family = tuple[str, int, tuple[int, ...]]

_ENDS = """
    WITH named AS (
        SELECT name, op, coalesce(step, -1) AS step, sequence, rank, coalesce(bytes, -1) AS bytes,
               start + duration - coalesce(clock_offset, 0) AS finish
        FROM raw.collectives LEFT JOIN clock USING (rank)
        WHERE "group" IS NULL AND sequence IS NOT NULL AND start IS NOT NULL AND duration IS NOT NULL
          AND op NOT IN ('send', 'receive', 'send_receive')
        QUALIFY count(*) OVER (PARTITION BY name, step, sequence, rank) = 1
    ),
    -- A family: same operation, same bytes on average, same ranks.
    families AS (
        SELECT name, op, max(bytes)::BIGINT AS bytes, list_sort(list(DISTINCT rank)) AS ranks
        FROM named GROUP BY name, op HAVING count(DISTINCT rank) > 1
    )
    SELECT op, families.bytes, ranks, name, step, sequence, list([finish, rank] ORDER BY finish) AS ends
    FROM named JOIN families USING (name, op)
    GROUP BY op, families.bytes, ranks, name, step, sequence
    ORDER BY op, families.bytes, ranks, name, step, sequence
"""


def infer_groups(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, int, str]]:
    """(operator name, rank, group) for collectives whose communicator is not recorded."""
    votes: dict[Family, Counter[Partition]] = defaultdict(Counter)
    names: dict[Family, list[str]] = defaultdict(list)
    rows = connection.execute(_ENDS).fetchall()
    for (op, size, ranks, name), executions in groupby(rows, key=lambda row: (row[0], row[1], tuple(row[2]), row[3])):
        family = (op, size, ranks)
        names[family].append(name)
        if len(names[family]) <= MOST_VOTERS:
            votes[family][_partition([row[6] for row in executions])] += 1
    found = []
    for family, counter in votes.items():
        for block in _elected(counter):
            group = "inferred:" + ",".join(map(str, block))
            found += [(name, rank, group) for name in names[family] for rank in block]
    return found


def _partition(executions: list[list[list[int]]]) -> Partition:
    """Ranks that ended together in every execution."""
    blocks: dict[int, list[int]] = defaultdict(list)
    for number, ends in enumerate(executions):
        block, before = 0, None
        for finish, rank in ends:
            block += before is not None and finish - before > TOGETHER_NS
            before = finish
            blocks[rank] += [-1] * (number - len(blocks[rank])) + [block]
    together: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for rank, signature in blocks.items():
        together[tuple(signature)].append(rank)
    return tuple(sorted(tuple(sorted(ranks)) for ranks in together.values()))


def _elected(votes: Counter[Partition]) -> Partition:
    """The partition most operators show; between equals the one with fewer, equally large groups."""
    return max(
        votes, key=lambda partition: (votes[partition], len({len(block) for block in partition}) == 1, -len(partition))
    )
