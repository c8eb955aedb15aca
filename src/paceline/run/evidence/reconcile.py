"""Tables of a rank reconciled with each other and with those of its peers, on the rank's own clock.

kernels against steps      the last steps have as many kernels as the others; the kernels lie inside the steps; they add
                           up to the computing time that the steps state, as they do on the other ranks
collectives of a group     every member executed as many as the others, and is a member as the recording declares them
collectives against steps  steps that communicate have some
parts of collectives       transit and wait add up to the duration, as on the other ranks
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import duckdb

from paceline.core.message import Message, message
from paceline.run.evidence.gap import EvidenceGap
from paceline.run.read_warning import GapKind

FEWER = 0.75
"""A step with less than this share of the executions of the other steps was cut off."""
MEMBERS_DIFFER = 0.9
"""Fewer collectives than this share of the other members' are missing; one step more or less is not."""
SUMS_DIFFER = 0.2
"""Kernel time over computing time of a rank may differ by this share from its peers'."""
EQUAL = 1e-5
"""Sums of the same kernels differ by rounding only."""
FEWEST_STEPS = 3
MOST_COMPARED = 16
EARLY_NS = 200_000
"""Kernels that begin this much before their step were launched in another, or their clock is another rank's."""
ROUNDED_NS = 1_000
"""Sums of times that were written with two digits after a microsecond differ by less."""
ROUNDED_SHARE = 0.01
"""…and times worked out from rounded bandwidths by less than this share."""
NEARLY_ALL = 0.9
PEERS_AGREE = 0.05
"""…which must agree among themselves within this, else the ratio says nothing."""

_KERNELS = """
    WITH kernel AS (
        SELECT rank, step, count(*) AS executions, min(start) AS first, max(start) AS last,
               sum(duration) FILTER (WHERE core IS DISTINCT FROM 'COMMUNICATION') AS busy
        FROM raw.kernels WHERE step IS NOT NULL GROUP BY rank, step
    ),
    spans AS (
        SELECT rank, step, any_value(start) AS start, any_value("end") AS finish, any_value(computing) AS computing
        FROM raw.steps WHERE step IS NOT NULL GROUP BY rank, step
    )
    SELECT rank, step, coalesce(executions, 0), first, last, busy, start, finish, computing
    FROM spans LEFT JOIN kernel USING (rank, step)
    WHERE rank IN (SELECT rank FROM kernel) ORDER BY rank, step
"""

_MEMBERS = """
    WITH called AS MATERIALIZED (
        SELECT "group", rank, step, op IN ('send', 'receive', 'send_receive') AS message, count(*) AS calls
        FROM raw.collectives GROUP BY ALL
    )
    SELECT "group", rank, sum(calls)::BIGINT FROM called
    WHERE "group" IS NOT NULL AND NOT message
      AND step IN (SELECT step FROM called GROUP BY step
                   HAVING count(DISTINCT rank) = (SELECT count(DISTINCT rank) FROM called))
    GROUP BY "group", rank
"""


_STRANGERS = """
    WITH members AS (SELECT DISTINCT "group", rank FROM raw.groups WHERE rank IS NOT NULL),
    recorded AS (SELECT "group", rank FROM raw.collectives UNION ALL SELECT "group", rank FROM raw.transfers),
    executed AS (SELECT DISTINCT "group", rank FROM recorded WHERE "group" IN (SELECT "group" FROM members))
    SELECT DISTINCT rank FROM executed ANTI JOIN members USING ("group", rank) ORDER BY rank
"""

_PARTS = """
    SELECT rank, avg((abs(transit + wait - duration) <= greatest(?, ? * duration))::INT) FROM raw.collectives
    WHERE transit IS NOT NULL AND wait IS NOT NULL AND duration > ? GROUP BY rank
"""


@dataclass(frozen=True)
class _StepKernels:
    """Kernels of one step of a rank, and what its step table states."""

    step: int
    executions: int
    first: int | None
    last: int | None
    busy: int | None
    start: int | None
    finish: int | None
    computing: int | None


def reconcile_kernels(connection: duckdb.DuckDBPyConnection) -> list[EvidenceGap]:
    """Kernels against the steps of the same rank."""
    by_rank: dict[int, list[_StepKernels]] = defaultdict(list)
    for rank, *values in connection.execute(_KERNELS).fetchall():
        by_rank[rank].append(_StepKernels(*values))
    gaps = _gap("counts", _cut_short(by_rank), message("cut_kernels"))
    early = [rank for rank, steps in by_rank.items() if _early(steps)]
    outside = [rank for rank, steps in by_rank.items() if _outside(steps)]
    outside += [rank for rank in early if rank not in outside and 2 * len(early) <= len(by_rank)]
    gaps += _gap("conflict", outside, message("kernels_outside"))
    exchanged = _exchanged(by_rank)
    gaps += _gap("conflict", [rank for rank in exchanged if rank not in outside], message("mixed_kernels"))
    differing = _outliers({rank: _busy_share(steps) for rank, steps in by_rank.items() if rank not in outside})
    differing -= {rank for gap in gaps for rank in gap.ranks}
    return gaps + _gap("disagreement", differing, message("kernels_differ"))


def reconcile_members(connection: duckdb.DuckDBPyConnection) -> list[EvidenceGap]:
    """Collectives of a group's members against each other."""
    by_group: dict[str, dict[int, int]] = defaultdict(dict)
    for group, rank, count in connection.execute(_MEMBERS).fetchall():
        by_group[group][rank] = count
    fewer = set()
    for counts in by_group.values():
        common, agreeing = Counter(counts.values()).most_common(1)[0]
        if 2 * agreeing > len(counts):
            fewer |= {rank for rank, count in counts.items() if count < MEMBERS_DIFFER * common}
    return _gap("counts", fewer, message("fewer_collectives"))


def reconcile_identities(connection: duckdb.DuckDBPyConnection) -> list[EvidenceGap]:
    """Ranks against the groups that the recordings declare: a file under another rank's name brings that rank's groups."""
    strangers = [rank for (rank,) in connection.execute(_STRANGERS).fetchall()]
    return _gap("conflict", strangers, message("mixed_groups"))


def reconcile_parts(connection: duckdb.DuckDBPyConnection) -> list[EvidenceGap]:
    """Transit and wait of HCCL's file against durations of the step trace: they add up on every rank, or on none."""
    shares = dict(connection.execute(_PARTS, [ROUNDED_NS, ROUNDED_SHARE, 10 * ROUNDED_NS]).fetchall())
    fitting = [rank for rank, share in shares.items() if share >= NEARLY_ALL]
    differing = [rank for rank, share in shares.items() if share < 0.5]
    return _gap("disagreement", differing, message("mixed_waits")) if len(fitting) >= max(2, len(differing)) else []


def unrecorded_collectives(connection: duckdb.DuckDBPyConnection) -> list[EvidenceGap]:
    """Profiler level 0 records how long steps communicate, but no collective."""
    [(communicating,)] = connection.execute(
        "SELECT count(DISTINCT rank) FROM raw.steps WHERE coalesce(communication, exposed) > 0"
    ).fetchall()
    [(recorded,)] = connection.execute("SELECT count(*) FROM (SELECT 1 FROM raw.collectives LIMIT 1)").fetchall()
    if recorded or communicating < 2:
        return []
    return [EvidenceGap("missing", (), message("level0"))]


def _gap(kind: GapKind, ranks: Iterable[int], said: Message) -> list[EvidenceGap]:
    found = tuple(sorted(ranks))
    return [EvidenceGap(kind, found, said)] if found else []


def _cut_short(by_rank: dict[int, list[_StepKernels]]) -> list[int]:
    return [rank for rank, steps in by_rank.items() if is_cut_short([step.executions for step in steps])]


def is_cut_short(executions: Sequence[int]) -> bool:
    """Whether the last steps hold far fewer executions than the steps before them.

    >>> is_cut_short([100, 100, 40, 0]), is_cut_short([100, 100, 98]), is_cut_short([10, 100, 100])
    (True, False, False)
    """
    if len(executions) < 2:
        return False
    typical = median(count for count in executions[:-1] if count) if any(executions[:-1]) else 0
    return executions[-1] < FEWER * typical


def _outside(steps: list[_StepKernels]) -> bool:
    """Whether no kernel lies inside its step: two files of one rank share a clock."""
    checked = [step for step in steps if None not in (step.start, step.finish, step.first, step.last)]
    return bool(checked) and all(_apart(step) for step in checked)


def _early(steps: list[_StepKernels]) -> bool:
    """Whether the kernels of every step begin before it does: nothing runs before it is launched."""
    firsts = [(step.first, step.start) for step in steps if step.first is not None and step.start is not None]
    return bool(firsts) and all(first < start - EARLY_NS for first, start in firsts)


def _apart(step: _StepKernels) -> bool:
    assert step.start is not None and step.finish is not None and step.first is not None and step.last is not None
    slack = step.finish - step.start
    return step.last < step.start - slack or step.first > step.finish + slack


def _exchanged(by_rank: dict[int, list[_StepKernels]]) -> list[int]:
    """Ranks whose kernels add up to what another rank's steps state, in every step and not to what their own do.

    Where computing overlaps, nowhere do kernels add up, and few steps may agree by chance; not both ways between two ranks.
    """
    strangers = [rank for rank, steps in by_rank.items() if not any(_equal(step, step) for step in steps)]
    stated = {rank: {step.step: step for step in steps} for rank, steps in by_rank.items()}
    owners = {rank: _owners(by_rank[rank], rank, stated) for rank in strangers[:MOST_COMPARED]}
    both_ways = [rank for rank, found in owners.items() if any(rank in owners.get(other, {}) for other in found)]
    if 2 * len(strangers) > len(by_rank):
        return both_ways
    surely = [rank for rank, found in owners.items() if max(found.values(), default=0) >= FEWEST_STEPS]
    return sorted({*both_ways, *surely})


def _owners(kernels: list[_StepKernels], rank: int, stated: Mapping[int, Mapping[int, _StepKernels]]) -> dict[int, int]:
    """Other ranks whose steps state what these kernels add up to → in how many steps: all that both have."""
    found = {}
    for other, steps in stated.items():
        shared = [step for step in kernels if step.step in steps]
        if other != rank and shared and all(_equal(step, steps[step.step]) for step in shared):
            found[other] = len(shared)
    return found


def _equal(kernels: _StepKernels, stated: _StepKernels) -> bool:
    if not kernels.busy or not stated.computing:
        return False
    return abs(kernels.busy - stated.computing) <= EQUAL * stated.computing


def _busy_share(steps: list[_StepKernels]) -> float:
    """Kernel time over computing time; nan where either is unknown."""
    busy = sum(step.busy or 0 for step in steps)
    computing = sum(step.computing or 0 for step in steps if step.executions)
    return busy / computing if busy and computing else math.nan


def _outliers(shares: dict[int, float]) -> set[int]:
    known = {rank: share for rank, share in shares.items() if not math.isnan(share)}
    if len(known) < 3:
        return set()
    middle = median(known.values())
    agreeing = sum(abs(share / middle - 1) <= PEERS_AGREE for share in known.values())
    if 2 * agreeing < len(known):
        return set()
    return {rank for rank, share in known.items() if abs(share / middle - 1) > SUMS_DIFFER}
