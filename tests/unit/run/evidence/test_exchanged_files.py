"""Files of two ranks that changed places, told by what their other files say."""

from __future__ import annotations

from typing import Any

import duckdb

from paceline.core.schema import TABLES
from paceline.run.evidence.exchanged_files import (
    exchanged_ends,
    exchanged_links,
    exchanged_splits,
    exchanged_times,
    foreign_kernels,
    foreign_samples,
    foreign_timelines,
    mutual_strangers,
)

RANKS = range(2)


def tables(**rows: list[dict[str, Any]]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA raw")
    for name in ("kernels", "steps", "collectives", "groups", "transfers", "events", "memory"):
        columns = ", ".join(f'"{column.name}" {column.type}' for column in TABLES[name].columns)
        connection.execute(f"CREATE TABLE raw.{name} ({columns})")
        for row in rows.get(name, []):
            names = ", ".join(f'"{column}"' for column in row)
            marks = ", ".join("?" for _ in row)
            connection.execute(f"INSERT INTO raw.{name} ({names}) VALUES ({marks})", list(row.values()))
    return connection


def begin(rank: int) -> int:
    return 1_000_000 * (rank + 1)


def times(*, timeline: tuple[int, int] = (0, 1), collectives: tuple[int, int] = (0, 1)) -> list[tuple[int, ...]]:
    """Ranks with gaps; whose timeline and whose collectives each of two ranks has."""
    steps, kernels, started = [], [], []
    for rank in RANKS:
        steps.append({"rank": rank, "step": 1, "start": begin(timeline[rank]), "preparing": 5_000 + rank})
        first = begin(rank) + 5_000 + rank
        kernels += [
            {"rank": rank, "step": 1, "start": first, "core": "AI_CORE"},
            {"rank": rank, "step": 1, "start": first + 70_000, "core": "COMMUNICATION"},
        ]
        began = begin(collectives[rank]) + 75_000 + collectives[rank]
        started.append({"rank": rank, "step": 1, "start": began + 80})
    found = exchanged_times(tables(steps=steps, kernels=kernels, collectives=started))
    return [gap.ranks for gap in found]


def test_files_of_one_rank_tell_of_the_same_moments() -> None:
    assert times() == []
    assert times(timeline=(1, 0)) == [(0, 1)]
    assert times(collectives=(1, 0)) == [(0, 1)]
    assert times(collectives=(1, 1)) == [], "not both ways: what was measured may differ"


def test_files_of_one_step_that_changed_places_are_noticed() -> None:
    mine = {rank: {step: 1_000_000 * rank + 50_000_000 * step for step in range(4)} for rank in range(3)}
    stated = {rank: dict(steps) for rank, steps in mine.items()}
    assert mutual_strangers(mine, stated) == []
    stated[0][2], stated[1][2] = mine[1][2], mine[0][2]
    assert mutual_strangers(mine, stated) == [0, 1]


def test_ranks_that_start_together_are_no_strangers_because_all_files_differ() -> None:
    """A file that states every moment 5 µs later than the other file of its rank is not another rank's."""
    mine = {rank: {step: 1_000 * rank + 50_000_000 * step for step in range(4)} for rank in range(3)}
    stated = {rank: {step: moment + 5_000 for step, moment in steps.items()} for rank, steps in mine.items()}
    assert mutual_strangers(mine, stated) == []


def split(owners: tuple[int, ...], *, left_out: int = 0) -> list[tuple[int, ...]]:
    """Ranks with gaps; of which rank the split of each rank's steps is."""
    rows = [
        {
            "rank": rank,
            "step": step,
            "duration": 900_000 * (rank + 1) + step,
            "computing": 300_000 * (owner + 1) + step,
            "exposed": 600_000 * (owner + 1) - left_out,
        }
        for rank, owner in enumerate(owners)
        for step in range(3)
    ]
    return [gap.ranks for gap in exchanged_splits(tables(steps=rows))]


def test_parts_of_steps_add_up_to_their_own_durations() -> None:
    assert split((0, 1, 2)) == []
    assert split((2, 1, 0)) == [(0, 2)]
    assert split((2, 1, 0), left_out=70_000) == [], "the parts are not the whole on any rank"


def first_kernels(*late: int, receiving: int | None = None) -> list[tuple[int, ...]]:
    """Ranks with gaps; how long after its input each rank's first kernel begins. One may receive something first."""
    steps = [
        {"rank": rank, "step": step, "start": 100_000 * step, "data_wait": 77_000}
        for rank in range(len(late))
        for step in (1, 2)
    ]
    kernels = [
        {"rank": rank, "step": step, "start": 177_000 + 100_000 * (step - 1) + each}
        for rank, each in enumerate(late)
        for step in (1, 2)
    ]
    received = [{"rank": receiving, "step": step, "start": 77_000 + 100_000 * step} for step in (1, 2)]
    connection = tables(steps=steps, kernels=kernels, collectives=received if receiving is not None else [])
    return [gap.ranks for gap in foreign_kernels(connection)]


def test_the_first_kernel_begins_when_the_step_trace_has_the_first_operator() -> None:
    assert first_kernels(1_600, 1_700, 1_600, 1_800) == []
    assert first_kernels(1_600, -60_000, 1_600, -30_000) == [(1, 3)]
    assert first_kernels(1_600, 60_000, 1_600, 1_700) == [], "its host launches slowly"
    assert first_kernels(1_600, 60_000, receiving=1) == [], "a later stage of a pipeline"
    assert first_kernels(50_000, -60_000, -50_000, 1_600) == [], "few show that the first kernel is the first operator"


def ends(*transports: tuple[int, str]) -> list[tuple[int, ...]]:
    """Ranks with gaps; what ranks say of the link from 0 to 1."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE transfers (rank BIGINT, src BIGINT, dst BIGINT, transport VARCHAR, scope VARCHAR)")
    for rank, transport in transports:
        connection.execute("INSERT INTO transfers VALUES (?, 0, 1, ?, 'global')", [rank, transport])
    return [gap.ranks for gap in exchanged_ends(connection)]


def test_both_ends_of_a_link_agree_whether_it_leaves_the_host() -> None:
    assert ends((0, "RDMA"), (1, "RDMA")) == []
    assert ends((0, "HCCS"), (1, "SDMA")) == []
    assert ends((0, "RDMA"), (0, "SDMA"), (1, "SDMA")) == [], "one rank says both"
    assert ends((0, "RDMA"), (1, "HCCS")) == [(0, 1)]


def foreign(owners: dict[int, int], *, shift: int = 0) -> list[list[tuple[int, ...]]]:
    """Ranks with gaps; of which rank the timeline and the memory samples of each rank are."""
    kernels = [{"rank": rank, "step": step, "start": begin(rank) + 1_000 * step} for rank in owners for step in (1, 2)]
    events = [
        {"rank": rank, "start": begin(owner) + 1_000 * step + shift}
        for rank, owner in owners.items()
        for step in (1, 2)
    ]
    memory = [{"rank": rank, "kind": "operator", "time": begin(rank)} for rank in owners]
    memory += [{"rank": rank, "kind": "sample", "time": begin(owner) + shift} for rank, owner in owners.items()]
    connection = tables(kernels=kernels, events=events, memory=memory)
    return [[gap.ranks for gap in check(connection)] for check in (foreign_timelines, foreign_samples)]


def test_a_file_that_holds_no_moment_of_its_rank_is_anothers() -> None:
    assert foreign({0: 0, 1: 1, 2: 2, 3: 3}) == [[], []]
    assert foreign({0: 2, 1: 1, 2: 0, 3: 3}) == [[(0, 2)], [(0, 2)]]
    assert foreign({0: 1, 1: 0}) == [[], []], "nobody shows that the two files hold the same moments"
    assert foreign({0: 0, 1: 1, 2: 2}, shift=500) == [[], []], "they do not hold the same moments on any rank"


def links(begin_at: tuple[int, ...], indices: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Ranks with gaps; where the links in each rank's file begin, and the places that are declared."""
    rows = [
        {"group": "g", "rank": rank, "src": source, "dst": other, "scope": "group"}
        for rank, source in enumerate(begin_at)
        for other in range(4)
    ]
    declared = [{"group": "g", "rank": rank, "index": index} for rank, index in enumerate(indices)]
    return [gap.ranks for gap in exchanged_links(tables(transfers=rows, groups=declared))]


def test_links_of_a_rank_begin_at_it() -> None:
    assert links((0, 1, 2)) == []
    assert links((0, 2, 1)) == [(1, 2)]
    assert links((0, 2, 1), indices=(0, 2, 1)) == [], "the group has an order of its own"
    assert links((3, 3, 3)) == [], "every rank recorded the same links"
