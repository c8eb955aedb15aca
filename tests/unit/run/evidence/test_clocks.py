"""Files that changed places between hosts betray themselves by their clocks."""

from __future__ import annotations

import duckdb
import pytest

from paceline.run.evidence.clocks import exchanged_ranks, reconcile_clocks

HOSTS = {0: "a", 1: "a", 2: "b", 3: "b"}
SKEW = 5_000_000


def gaps(
    *,
    late: dict[tuple[int, int], int] | None = None,
    slow_to_notice: dict[tuple[int, int], int] | None = None,
    op: str = "all_reduce",
    name: str = "sum",
    offsets: dict[int, int] | None = None,
    per_step: int = 3,
    steps: int = 4,
    duration: int = 500,
) -> list[tuple[str, tuple[int, ...]]]:
    """Four ranks in one group; `late` and `slow_to_notice` by (rank, step) in ns."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE ranks (rank BIGINT, host VARCHAR)")
    connection.execute("CREATE TABLE clock (rank BIGINT, clock_offset BIGINT)")
    connection.execute(
        'CREATE TABLE collectives (rank BIGINT, step BIGINT, "group" VARCHAR, name VARCHAR, op VARCHAR, sequence BIGINT,'
        " start BIGINT, duration BIGINT)"
    )
    for rank, host in HOSTS.items():
        connection.execute("INSERT INTO ranks VALUES (?, ?)", [rank, host])
        connection.execute("INSERT INTO clock VALUES (?, ?)", [rank, (offsets or {}).get(rank, 0)])
        for step in range(steps):
            for number in range(per_step):
                start = 100_000_000 * step + 1_000 * number + 10 * rank + (late or {}).get((rank, step), 0)
                took = duration + (slow_to_notice or {}).get((rank, step), 0)
                row = [rank, step, "world", name, op, number, start, took]
                connection.execute("INSERT INTO collectives VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    return [(gap.kind, gap.ranks) for gap in reconcile_clocks(connection, 48)]


def test_ends_that_agree_and_hosts_with_clocks_of_their_own_are_as_expected() -> None:
    assert gaps(offsets={2: SKEW, 3: SKEW + 10_000}) == []


def test_one_step_of_a_rank_ends_at_another_time() -> None:
    assert gaps(late={(1, 2): 4_000_000}) == [("conflict", (1,))]


def test_members_leave_a_slow_ring_one_after_the_other() -> None:
    assert gaps(late={(1, 2): 4_000_000}, duration=3_500_000) == []
    assert gaps(late={(1, 2): 4_000_000}, duration=2_500_000) == [("conflict", (1,))]


def test_a_rank_that_is_late_in_all_steps_is_on_another_clock_and_no_conflict() -> None:
    assert gaps(late={(1, step): 4_000_000 for step in range(4)}) == []


def test_a_rank_that_notices_the_ends_late_is_no_conflict() -> None:
    """Its thread waited for a core: it began with the others. Seen on a busy machine with gloo."""
    assert gaps(slow_to_notice={(2, 2): 9_000_000, (3, 2): 7_000_000}) == []


def test_a_clock_aligned_by_ends_that_others_notice_late_is_no_conflict() -> None:
    """Rank 1 arrives last and notices at once, the others when they get a core: its clock seems 3 ms late, but in step 2."""
    seen = {(rank, step): 2_500_000 + 400_000 * step for rank in (0, 2, 3) for step in (0, 1, 3)}
    waited = {(rank, step): -4_000_000 for rank in (0, 2, 3) for step in range(4)}
    seen = {at: seen.get(at, 0) + 4_000_000 for at in waited}
    assert gaps(late={**waited, **{(1, step): 3_000_000 for step in range(4)}}, slow_to_notice=seen) == []


def test_a_clock_that_drifts_is_no_conflict() -> None:
    assert gaps(late={(1, step): 50_000 * step - 2_500_000 for step in range(100)}, steps=100) == []


@pytest.mark.parametrize("op", ["all_to_all", "send"])
def test_members_that_exchange_nothing_need_not_meet(op: str) -> None:
    assert gaps(late={(1, 2): 4_000_000}, op=op) == []


@pytest.mark.parametrize("name", ["c10d::allreduce_", "record_param_comms", "nccl:all_reduce"])
def test_calls_that_only_launch_a_collective_need_not_meet(name: str) -> None:
    assert gaps(late={(1, 2): 4_000_000}, name=name) == []
    assert gaps(late={(1, 2): 4_000_000}, name="gloo:all_reduce") == [("conflict", (1,))]


def test_receivers_of_a_broadcast_may_begin_when_all_others_have_left() -> None:
    assert gaps(late={(1, 2): 4_000_000}, op="broadcast") == []


def test_one_collective_that_ends_late_is_a_hiccup() -> None:
    assert gaps(late={(1, 2): 4_000_000}, per_step=2) == []


def test_ranks_whose_identities_were_exchanged_have_the_clock_of_the_other_host() -> None:
    assert gaps(offsets={0: SKEW, 3: SKEW}) == [("conflict", (0, 1, 2, 3))]


@pytest.mark.parametrize(
    ("offsets", "found"),
    [
        ((0, 0, 0, 9, 9, 9), ()),
        ((0, 9, 0, 9, 9, 0), (1, 5)),
        ((0, 0, 0, 0, 0, 0), ()),
        ((0, 3, 6, 9, 12, 15), ()),
        ((0, 0, 0, 0, 9, 0), ()),
    ],
)
def test_a_majority_tells_whose_clock_a_host_has(offsets: tuple[int, ...], found: tuple[int, ...]) -> None:
    clocks = {rank: ("ab"[rank // 3], 1_000_000 * offset) for rank, offset in enumerate(offsets)}
    assert exchanged_ranks(clocks) == found
