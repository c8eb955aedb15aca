"""Tables of a rank against each other and against those of its peers."""

from __future__ import annotations

from typing import Any

import duckdb

from paceline.core.schema import TABLES
from paceline.run.evidence.gap import EvidenceGap, gap_of
from paceline.run.evidence.reconcile import (
    reconcile_identities,
    reconcile_kernels,
    reconcile_members,
    reconcile_parts,
    unrecorded_collectives,
)
from paceline.run.read_warning import ReadWarning


def tables(**rows: list[dict[str, Any]]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA raw")
    for name in ("kernels", "steps", "collectives", "groups", "transfers"):
        columns = ", ".join(f'"{column.name}" {column.type}' for column in TABLES[name].columns)
        connection.execute(f"CREATE TABLE raw.{name} ({columns})")
        for row in rows.get(name, []):
            names = ", ".join(f'"{column}"' for column in row)
            marks = ", ".join("?" for _ in row)
            connection.execute(f"INSERT INTO raw.{name} ({names}) VALUES ({marks})", list(row.values()))
    return connection


def step(rank: int, number: int, computing: int | None = 100) -> dict[str, Any]:
    start = 1_000 * number
    return {"rank": rank, "step": number, "start": start, "end": start + 1_000, "computing": computing}


def kernels(rank: int, number: int, count: int = 10, *, shift: int = 0, duration: int = 10) -> list[dict[str, Any]]:
    start = 1_000 * number + shift
    return [{"rank": rank, "step": number, "start": start + n, "duration": duration} for n in range(count)]


def found(
    *rows: list[dict[str, Any]], ranks: int = 3, computing: int | None = 100
) -> list[tuple[str, tuple[int, ...]]]:
    steps = [step(rank, number, computing) for rank in range(ranks) for number in range(3)]
    flat = [row for group in rows for row in group]
    return [(gap.kind, gap.ranks) for gap in reconcile_kernels(tables(steps=steps, kernels=flat))]


def healthy(*ranks: int) -> list[dict[str, Any]]:
    return [row for rank in ranks for number in range(3) for row in kernels(rank, number)]


def test_a_whole_recording_has_no_gap() -> None:
    assert found(healthy(0, 1, 2)) == []
    assert found(healthy(0, 1)) == []  # rank 2 recorded no kernels at all: not cut off


def test_last_steps_with_fewer_kernels_were_cut_off() -> None:
    assert found(healthy(0, 1), kernels(2, 0), kernels(2, 1)) == [("counts", (2,))]
    assert found(healthy(0, 1), kernels(2, 0), kernels(2, 1), kernels(2, 2, 7)) == [("counts", (2,))]
    assert found(healthy(0, 1), kernels(2, 0), kernels(2, 1), kernels(2, 2, 8)) == []


def test_kernels_outside_the_steps_are_of_another_recording() -> None:
    shifted = [row for number in range(3) for row in kernels(1, number, shift=5_000)]
    assert found(healthy(0, 2), shifted) == [("conflict", (1,))]


def test_kernels_that_do_not_add_up_as_on_the_peers_disagree() -> None:
    longer = [row for number in range(3) for row in kernels(1, number, duration=13)]
    assert found(healthy(0, 2), longer) == [("disagreement", (1,))]
    assert found(healthy(0, 2), [row for n in range(3) for row in kernels(1, n, duration=11)]) == []
    assert found(healthy(0), longer, ranks=2) == []  # two ranks: nobody knows which is right
    assert found(healthy(0, 2), longer, computing=None) == []


def collectives(**counts: int) -> list[dict[str, Any]]:
    return [
        {"rank": int(rank[1:]), "step": 1, "group": "g", "op": "all_reduce", "sequence": n}
        for rank, count in counts.items()
        for n in range(count)
    ]


def test_members_of_a_group_execute_the_same_collectives() -> None:
    assert reconcile_members(tables(collectives=collectives(r0=10, r1=10, r2=9))) == []
    [gap] = reconcile_members(tables(collectives=collectives(r0=10, r1=10, r2=8)))
    assert (gap.kind, gap.ranks) == ("counts", (2,))
    assert reconcile_members(tables(collectives=collectives(r0=10, r1=8))) == []  # nobody knows which is right


def test_gaps_and_warnings_say_the_same() -> None:
    assert str(EvidenceGap("cut", (3,), "is cut", "a.csv").to_warning()) == "rank 3: a.csv: is cut"
    assert str(EvidenceGap("counts", (3, 4), "lack steps").to_warning()) == "ranks 3, 4: lack steps"
    lost = gap_of(ReadWarning(3, "a.csv", "is empty", lost=True))
    assert (lost.kind, lost.ranks, lost.message) == ("lost", (3,), "a.csv: is empty")
    assert gap_of(ReadWarning(None, None, "odd", kind="cut")).kind == "cut"


def test_steps_that_communicate_without_collectives_were_recorded_at_level_0() -> None:
    steps = [{"rank": rank, "step": 1, "communication": 5} for rank in range(2)]
    [gap] = unrecorded_collectives(tables(steps=steps))
    assert gap.kind == "missing" and "Level1" in gap.message
    assert unrecorded_collectives(tables(steps=steps[:1])) == []  # one rank has nobody to wait for
    assert unrecorded_collectives(tables(steps=steps, collectives=collectives(r0=1))) == []
    assert unrecorded_collectives(tables()) == []


def test_a_rank_that_executes_collectives_of_a_group_it_is_no_member_of_is_another_rank() -> None:
    groups = [{"group": "a", "rank": 0}, {"group": "a", "rank": 2}]
    executed = [{"group": "a", "rank": rank, "op": "all_reduce"} for rank in (0, 9)]
    unknown = [{"group": "b", "rank": 5, "op": "all_reduce"}]  # nobody says who its members are
    [gap] = reconcile_identities(tables(groups=groups, collectives=executed + unknown))
    assert (gap.kind, gap.ranks) == ("conflict", (9,))
    assert reconcile_identities(tables(groups=groups, collectives=executed[:1])) == []


# -- kernels that begin before their step -------------------------------------------------------------------------------


def early(*ranks: int) -> list[tuple[str, tuple[int, ...]]]:
    """Four ranks, steps of 10 ms; on those named, kernels begin 1 ms before the step."""
    steps, rows = [], []
    for rank in range(4):
        for number in range(3):
            start = 10_000_000 * number
            steps.append({"rank": rank, "step": number, "start": start, "end": start + 10_000_000})
            first = start + (-1_000_000 if rank in ranks else 50_000)
            rows.append({"rank": rank, "step": number, "start": first, "duration": 5_000_000})
    return [(gap.kind, gap.ranks) for gap in reconcile_kernels(tables(steps=steps, kernels=rows))]


def test_nothing_runs_before_it_is_launched() -> None:
    assert early() == early(0, 1, 2, 3) == early(0, 1, 2) == []
    assert early(2) == [("conflict", (2,))]


# -- kernels that are another rank's -------------------------------------------------------------------------------------


def exchanged(kernels_of: tuple[int, ...], count: int = 3) -> list[tuple[str, tuple[int, ...]]]:
    """Ranks without times of day, whose computing differs by one in a thousand; `kernels_of`: whose each rank has."""
    steps, rows = [], []
    for rank, owner in enumerate(kernels_of):
        for number in range(count):
            steps.append({"rank": rank, "step": number, "computing": 1_000_000 + 1_000 * rank + 7 * number})
            busy = 1_000_000 + 1_000 * owner + 7 * number
            rows.append({"rank": rank, "step": number, "start": 0, "duration": busy})
    return [(gap.kind, gap.ranks) for gap in reconcile_kernels(tables(steps=steps, kernels=rows))]


def test_kernels_add_up_to_the_computing_of_their_own_rank() -> None:
    assert exchanged((0, 1, 2, 3)) == []
    assert exchanged((2, 1, 0, 3)) == [("conflict", (0, 2))]
    assert exchanged((7, 1, 2, 3)) == [], "a little more than stated, but nobody's"


def test_two_ranks_with_each_others_kernels_are_noticed_in_one_step() -> None:
    assert exchanged((1, 0), count=1) == [("conflict", (0, 1))]
    assert exchanged((1, 1, 2, 3), count=1) == [], "one step may agree by chance"
    assert exchanged((1, 7), count=1) == []


# -- parts of collectives ------------------------------------------------------------------------------------------------


def parts(*off: int) -> list[tuple[str, tuple[int, ...]]]:
    """Four ranks; those named have transit and wait of another rank's collectives."""
    rows = [
        {
            "rank": rank,
            "duration": 240_000 + number,
            "transit": 200_000,
            "wait": 40_000 + number + 3_000 * (rank in off),
        }
        for rank in range(4)
        for number in range(5)
    ]
    return [(gap.kind, gap.ranks) for gap in reconcile_parts(tables(collectives=rows))]


def test_transit_and_wait_add_up_on_every_rank_or_on_none() -> None:
    assert parts() == parts(0, 1, 2, 3) == parts(0, 1, 2) == []
    assert parts(0, 2) == [("disagreement", (0, 2))]
