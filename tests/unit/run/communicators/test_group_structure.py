"""Groups from the numbers in links: worked out by hand for rings on a few hosts."""

from __future__ import annotations

import duckdb
import pytest

from paceline.core.schema import TABLES
from paceline.run.communicators.group_kinds import GroupUse, kinds_of
from paceline.run.communicators.group_structure import Job, Member, regular_blocks, structured_groups

CARDS = 4
"""Per host: copies inside a host are recorded by the reader, writes between hosts by the writer."""

Link = tuple[int, int, str]


def tables(rows: list[tuple[int, str, str, int, list[Link]]]) -> duckdb.DuckDBPyConnection:
    """rank, operator, op, bytes, links of each."""
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA raw")
    for table in ("ranks", "collectives", "transfers"):
        columns = ", ".join(f'"{column.name}" {column.type}' for column in TABLES[table].columns)
        connection.execute(f"CREATE TABLE raw.{table} ({columns})")
    for rank, name, op, size, links in rows:
        connection.execute(
            "INSERT INTO raw.collectives (rank, name, op, sequence, bytes) VALUES (?, ?, ?, 1, ?)",
            [rank, name, op, size],
        )
        for src, dst, transport in links:
            connection.execute(
                "INSERT INTO raw.transfers (rank, name, src, dst, scope, transport) VALUES (?, ?, ?, ?, 'group', ?)",
                [rank, name, src, dst, transport],
            )
    return connection


def ring(ranks: list[int], me: int, *, itself: bool = True) -> list[Link]:
    """What rank `me` records of a ring over these ranks."""
    own, n = ranks.index(me), len(ranks)
    before, behind = ranks[own - 1], ranks[(own + 1) % n]
    links = [(own, own, "LOCAL")] if itself else []
    if before // CARDS == me // CARDS:
        links.append(((own - 1) % n, own, "SDMA"))
    if behind // CARDS != me // CARDS:
        links.append((own, (own + 1) % n, "RDMA"))
    return links


def found(connection: duckdb.DuckDBPyConnection) -> dict[str, set[tuple[int, ...]]]:
    groups: dict[str, set[tuple[int, ...]]] = {}
    for one in structured_groups(connection):
        groups.setdefault(one.name, set()).add(one.block.ranks)
    return groups


def test_tensor_and_data_parallel_groups_follow_from_each_ranks_own_number() -> None:
    tensor = [[0, 1], [2, 3], [4, 5], [6, 7]]
    data = [[0, 2, 4, 6], [1, 3, 5, 7]]
    rows = [
        (rank, "AllGather-op1", "all_gather", 8_000, ring(group, rank, itself=False))
        for group in tensor
        for rank in group
    ]
    rows += [(rank, "AllReduce-op2", "all_reduce", 9_000, ring(group, rank)) for group in data for rank in group]
    assert found(tables(rows)) == {
        "AllGather-op1": {tuple(group) for group in tensor},
        "AllReduce-op2": {tuple(group) for group in data},
    }


def test_one_name_for_two_operators_is_told_by_numbers_and_bytes() -> None:
    """Stage 0 reduces gradients where stage 1 reduces one number over all ranks, whose name on stage 0 is another one."""
    stages, world = [list(range(4)), list(range(4, 8))], list(range(8))
    rows = [(rank, "AllReduce-op7", "all_reduce", 1 << 20, ring(stages[0], rank)) for rank in stages[0]]
    rows += [(rank, "AllReduce-op7", "all_reduce", 8, ring(world, rank)) for rank in stages[1]]
    rows += [(rank, "AllReduce-op9", "all_reduce", 8, ring(world, rank)) for rank in stages[0]]
    groups = structured_groups(tables(rows))
    assert {(one.name, one.block.ranks) for one in groups if one.rank == 0} >= {("AllReduce-op9", tuple(world))}
    joined = {one.operator for one in groups if one.block.ranks == tuple(world)}
    assert joined == {"AllReduce-op9"}


def test_copies_may_be_recorded_by_the_writing_end() -> None:
    pairs = [[0, 1], [2, 3]]
    rows = [
        (rank, "AllGather-op1", "all_gather", 8_000, [(rank % 2, 1 - rank % 2, "HCCS")])
        for pair in pairs
        for rank in pair
    ]
    assert found(tables(rows)) == {"AllGather-op1": {(0, 1), (2, 3)}}


def test_a_rank_without_a_recording_still_belongs_to_its_group() -> None:
    world = list(range(8))
    rows = [(rank, "AllReduce-op1", "all_reduce", 9_000, ring(world, rank)) for rank in world if rank != 5]
    [group] = found(tables(rows))["AllReduce-op1"]
    assert group == tuple(world)


def test_no_group_where_numbers_contradict_each_other() -> None:
    members = [Member(rank, 0, 1, None) for rank in range(4)]
    assert regular_blocks(members, Job(frozenset(range(4)), 4)) == []


def test_no_group_that_leaves_out_a_rank_of_the_same_operator() -> None:
    """Ranks 0 to 3 look like a ring of four; rank 4 is number 4 of a larger one that misses the others."""
    members = [Member(rank, rank, rank, None) for rank in range(5)]
    assert regular_blocks(members, Job(frozenset(range(8)), 8)) == []


def test_messages_join_stages_by_number() -> None:
    rows = [(rank, "Send-op1", "send", 100, [(0, 1, "RDMA")]) for rank in range(4)]
    rows += [(rank, "Receive-op5", "receive", 100, []) for rank in range(4, 8)]
    rows += [(rank, "Send-op6", "send", 100, [(1, 0, "RDMA")]) for rank in range(4, 8)]
    assert found(tables(rows))["Send-op1"] == {(0, 4), (1, 5), (2, 6), (3, 7)}


def test_numbers_of_messages_inside_a_pair_are_not_taken_for_groups() -> None:
    rows = [(rank, "Receive-op1", "receive", 100, [(0, 0, "SDMA")]) for rank in range(2)]
    assert structured_groups(tables(rows)) == []


def test_confidence_falls_with_members_that_recorded_no_number() -> None:
    members = [Member(0, 0, 1, None), Member(1, None, None, None)]
    [block] = regular_blocks(members, Job(frozenset({0, 1}), 2))
    assert block.confidence == pytest.approx(0.725)


# -- kinds ------------------------------------------------------------------------------------------------------------


def use(ranks: tuple[int, ...], op: str, calls: float, early: float | None = None) -> GroupUse:
    return GroupUse(ranks, frozenset({op}), calls, early)


def test_near_groups_that_talk_often_are_tensor_parallel_and_far_ones_data_parallel() -> None:
    groups = {"a": use((0, 1), "all_reduce", 40), "b": use((2, 3), "all_reduce", 40), "c": use((0, 2), "all_reduce", 5)}
    assert kinds_of(groups, set()) == {"a": "tp", "b": "tp", "c": "dp"}


def test_one_family_beside_a_pipeline_is_told_by_when_it_is_called() -> None:
    messages = {"p": use((0, 2), "send", 8)}
    late = {**messages, "a": use((0, 1), "all_reduce", 4, 0.0), "b": use((2, 3), "all_reduce", 4, 0.0)}
    early = {**messages, "a": use((0, 1), "all_reduce", 4, 0.1), "b": use((2, 3), "all_reduce", 4, 0.0)}
    assert kinds_of(late, set()) == {"p": "pp", "a": "dp", "b": "dp"}
    assert kinds_of(early, set()) == {"p": "pp", "a": "tp", "b": "tp"}


@pytest.mark.parametrize(("early", "kinds"), [(0.0, {}), (0.1, {"a": "tp", "b": "tp", "c": "dp"})])
def test_near_groups_that_are_called_after_the_pipeline_only_are_not_tensor_parallel(
    early: float, kinds: dict[str, str]
) -> None:
    """Gradients of neighbours, and a norm over their stages."""
    near = {"a": use((0, 1), "all_reduce", 2, early), "b": use((2, 3), "all_reduce", 2, early)}
    assert kinds_of({**near, "c": use((0, 2, 4, 6), "all_reduce", 1, 0.0)}, set()) == kinds


def test_a_single_family_without_a_pipeline_stays_unknown() -> None:
    assert kinds_of({"a": use((0, 1), "all_reduce", 4), "b": use((2, 3), "all_reduce", 4)}, set()) == {}
