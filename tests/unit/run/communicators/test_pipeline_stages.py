"""Stages and neighbours of pipelines that nobody declared: four stages of two ranks, worked out by hand."""

from __future__ import annotations

import duckdb
import pytest

from paceline.core.schema import TABLES
from paceline.run.communicators.group_kinds import GroupUse, kinds_of
from paceline.run.communicators.group_structure import Job, Member, regular_blocks, structured_groups
from paceline.run.communicators.neighbour_messages import pair_of, receives_by_end, stage_size
from paceline.run.communicators.pipeline_stages import stages_of

NUMBERS = {
    0: frozenset({0}), 1: frozenset({0}), 2: frozenset({0, 1}), 3: frozenset({0, 1}),
    4: frozenset({0, 1}), 5: frozenset({0, 1}), 6: frozenset({1}), 7: frozenset({1}),
}  # fmt: skip
PAIRS = [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 7)]


def test_ranks_with_one_number_are_the_outer_stages() -> None:
    assert stage_size(NUMBERS, 8) == 2


@pytest.mark.parametrize(
    "numbers",
    [
        {rank: frozenset({0}) if rank < 4 else frozenset({1}) for rank in range(8)},  # two stages
        {rank: own for rank, own in NUMBERS.items() if rank != 4},  # a rank was not recorded
        NUMBERS | {7: frozenset({0, 1})},  # the last stage is smaller than the first
        NUMBERS | {0: frozenset({1}), 7: frozenset({0})},  # the outer stages are not the outer ranks
    ],
)
def test_other_numbers_are_no_chain_of_pairs(numbers: dict[int, frozenset[int]]) -> None:
    assert stage_size(numbers, 8) is None


def test_a_message_without_a_number_belongs_to_the_only_pair_of_an_outer_stage() -> None:
    assert [pair_of(rank, None, 2, 8) for rank in (0, 3, 7)] == [(0, 2), None, (5, 7)]
    assert [pair_of(4, own, 2, 8) for own in (0, 1)] == [(4, 6), (2, 4)]


def test_every_message_that_has_a_number_joins_its_pair_and_no_other() -> None:
    connection = _messages()
    joined = {(one.rank, one.name): one.block.ranks for one in structured_groups(connection)}
    assert joined[2, "Send-op4"] == (2, 4)
    assert joined[2, "Send-op5"] == (0, 2)
    assert joined[0, "Receive-op5"] == (0, 2)
    assert (2, "Receive-op1") not in joined  # two pairs are possible: only time can tell


def test_a_receive_in_the_middle_ends_with_the_send_of_its_partner() -> None:
    connection = _messages()
    connection.execute("CREATE TABLE clock (rank BIGINT, clock_offset BIGINT)")
    connection.execute("INSERT INTO clock VALUES (2, 1_000_000)")  # its clock is a millisecond ahead
    connection.execute(
        'CREATE TABLE inferred (name VARCHAR, rank BIGINT, inferred_group VARCHAR, "index" BIGINT, confidence DOUBLE)'
    )
    for one in structured_groups(connection):
        ranks = one.block.ranks
        connection.execute(
            "INSERT INTO inferred VALUES (?, ?, ?, ?, 1)", [one.name, one.rank, str(ranks), ranks.index(one.rank)]
        )
    found = {(rank, name): pair for name, rank, pair in receives_by_end(connection)}
    assert found[2, "Receive-op1"] == (0, 2)  # activations, 100 µs
    assert found[2, "Receive-op6"] == (2, 4)  # gradients, 500 µs


def _messages() -> duckdb.DuckDBPyConnection:
    """One micro-batch: activations leave stage k at 100 k µs, gradients return from stage k at 700 - 100 k µs."""
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA raw")
    for table in ("ranks", "collectives", "transfers"):
        columns = ", ".join(f'"{column.name}" {column.type}' for column in TABLES[table].columns)
        connection.execute(f"CREATE TABLE raw.{table} ({columns})")
    for rank in range(8):
        stage = rank // 2
        if stage < 3:
            _add(connection, rank, "Send-op4", "send", 100 * (stage + 1), (0, 1))
            _add(connection, rank, "Receive-op5" if stage == 0 else "Receive-op6", "receive", 600 - 100 * stage, None)
        if stage > 0:
            _add(connection, rank, "Receive-op1", "receive", 100 * stage, None)
            _add(connection, rank, "Send-op5", "send", 700 - 100 * stage, (1, 0))
    return connection


def _add(
    connection: duckdb.DuckDBPyConnection, rank: int, name: str, op: str, end_us: int, link: tuple[int, int] | None
) -> None:
    skew = 1_000_000 if rank == 2 else 0
    connection.execute(
        "INSERT INTO raw.collectives (rank, step, name, op, sequence, start, duration) VALUES (?, 1, ?, ?, 1, ?, 10_000)",
        [rank, name, op, end_us * 1000 - 10_000 + skew],
    )
    if link:
        connection.execute(
            "INSERT INTO raw.transfers (rank, name, src, dst, scope, transport) VALUES (?, ?, ?, ?, 'group', 'RDMA')",
            [rank, name, *link],
        )


# -- stages -----------------------------------------------------------------------------------------------------------


def test_stages_follow_the_chain_of_pairs_from_the_ranks_that_send_first() -> None:
    sends_first = {rank: rank < 2 for rank in range(8)}
    assert stages_of(PAIRS, sends_first) == {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2, 6: 3, 7: 3}
    assert stages_of([(0, 2, 4, 6), (1, 3, 5, 7)], sends_first) == stages_of(PAIRS, sends_first)


def test_the_order_is_reversed_where_the_other_end_sends_first() -> None:
    assert stages_of([(0, 2)], {0: False, 2: True}) == {0: 1, 2: 0}


@pytest.mark.parametrize(
    ("pairs", "senders"), [([(0, 2)], {0, 2}), ([(0, 2)], set()), ([(0, 1), (1, 2), (2, 0)], {0}), ([], {0})]
)
def test_stages_stay_unknown_where_nothing_tells_them(pairs: list[tuple[int, int]], senders: set[int]) -> None:
    assert stages_of(pairs, {rank: rank in senders for rank in range(3)}) == {}


def test_a_group_of_two_stages_is_neither_tensor_nor_data_parallel() -> None:
    groups = {f"p{pair}": GroupUse(pair, frozenset({"send", "receive"}), 8, None) for pair in PAIRS}
    groups |= {f"d{k}": GroupUse((2 * k, 2 * k + 1), frozenset({"all_reduce"}), 2, 0.0) for k in range(4)}
    groups |= {f"e{k}": GroupUse((k, k + 6), frozenset({"all_reduce"}), 2, 0.0) for k in range(2)}
    kinds = kinds_of(groups, set())
    assert {kind for group, kind in kinds.items() if group.startswith("d")} == {"dp"}
    assert not any(group.startswith("e") for group in kinds)


def test_model_parallel_groups_are_neighbours_in_every_stage() -> None:
    """Two stages of four ranks, tensor parallel by two: 0 1 4 5 and 2 3 6 7, numbered 0 to 3 inside."""
    members = [Member(rank, rank % 2 + 2 * (rank // 4), 3, 8) for rank in range(8)]
    blocks = regular_blocks(members, Job(frozenset(range(8)), 8))
    assert [block.ranks for block in blocks] == [(0, 1, 4, 5), (2, 3, 6, 7)]
