"""Communication operators one by one, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.metrics.communication.communication_operators import CommunicationOperators
from paceline.metrics.network.links import store_links
from paceline.metrics.table import Table
from support.fake_run import FakeRun

MS = 1_000_000


def call(rank: int, op: str, duration: int, *, step: int | None = 1, sequence: int = 0, **more: Any) -> dict[str, Any]:
    given = {name: more.pop(name, part) for name, part in (("transit", 2), ("wait", 1), ("sync", 1))}
    times = {name: None if time is None else time * MS for name, time in given.items()}
    row = {"rank": rank, "step": step, "group": "g", "op": op, "name": f"{op}{sequence}", "sequence": sequence}
    return {**row, "duration": duration * MS, "bytes": 4_000_000, **times, **more}


GROUPS = [{"group": group, "kind": "dp", "rank": rank} for group in ("g", "h") for rank in (0, 1)]
RUN = FakeRun(
    groups=[*GROUPS, {"group": "h", "kind": "dp", "rank": 2}],
    collectives=[
        # all_reduce: rank 0 8 ms in step 1 and 4 ms twice in step 2, rank 1 6 ms in step 1.
        call(0, "all_reduce", 8, wait=5),
        call(1, "all_reduce", 6),
        call(0, "all_reduce", 4, step=2, sequence=1),
        call(0, "all_reduce", 4, step=2, sequence=2, group="h", bytes=1_000_000),
        call(0, "all_gather", 30, sequence=3, transit=5, wait=0, sync=3),
        call(1, "send", 3, sequence=4, group=None),
        call(1, "receive", 90, sequence=5, group=None, transit=0, bytes=0),
    ],
)


def as_rows(table: Table, *names: str) -> list[tuple[Any, ...]]:
    columns = [table.texts[name] if name in table.texts else table.numbers[name].tolist() for name in names]
    return list(zip(*columns, strict=True))


def test_classes_come_first_then_single_collectives() -> None:
    assert as_rows(CommunicationOperators(RUN, "true").names(), "id", "what", "op", "kind", "name", "members") == [
        (0, "class", "receive", "", None, 1),
        (1, "class", "all_gather", "dp", None, 1),
        (2, "class", "all_reduce", "dp", None, 2),
        (3, "class", "send", "", None, 1),
        (8, "single", "all_gather", "dp", "all_gather3", 1),
        (9, "single", "all_reduce", "dp", "all_reduce0", 2),
        (10, "single", "all_reduce", "dp", "all_reduce1", 1),
        (11, "single", "all_reduce", "dp", "all_reduce2", 1),
    ]
    assert CommunicationOperators(RUN, "true").names().numbers["step"].tolist()[4:] == [1, 1, 2, 2]


def test_times_are_per_step_for_classes() -> None:
    assert as_rows(CommunicationOperators(RUN, "true").times(), "id", "rank", "elapse", "transit", "wait", "sync") == [
        (0, 1, 90, 0, 1, 1),
        (1, 0, 30, 5, 0, 3),
        (2, 0, 8, 3, 3.5, 1.5),  # 16, 6, 7 and 3 in two steps
        (2, 1, 6, 2, 1, 1),
        (3, 1, 3, 2, 1, 1),
        (8, 0, 30, 5, 0, 3),
        (9, 0, 8, 2, 5, 1),
        (9, 1, 6, 2, 1, 1),
        (10, 0, 4, 2, 1, 1),
        (11, 0, 4, 2, 1, 1),
    ]
    assert as_rows(CommunicationOperators(RUN, "step = 2").times(), "id", "elapse") == [(0, 8), (8, 4), (9, 4)]


def test_the_pieces_of_an_operator_make_up_its_time() -> None:
    """8 ms: 2 transfer, 5 wait, 1 of these before the first byte; in the middle one neither is known, in the last no waiting."""
    calls = [
        call(0, "x", 8, wait=5),
        call(1, "x", 9, transit=None, wait=None, sync=None),
        call(2, "x", 7, transit=3, wait=None, sync=None),
        call(3, "x", 4, transit=3, wait=2, sync=0),
    ]
    found = CommunicationOperators(FakeRun(collectives=calls), "step = 1").times()
    assert found.numbers["later_wait"][:4].tolist() == pytest.approx([4, np.nan, 0, 2], nan_ok=True)
    assert found.numbers["idle"][:4].tolist() == pytest.approx([1, np.nan, 4, 0], nan_ok=True)


def test_collectives_without_a_step_are_one_step_and_those_without_a_duration_are_left_out() -> None:
    run = FakeRun(
        collectives=[call(0, "x", 4, step=None), call(0, "x", 6, step=None, sequence=1), {"rank": 0, "op": "y"}]
    )
    assert as_rows(CommunicationOperators(run, "true").times(), "id", "elapse") == [(0, 10), (8, 6), (9, 4)]


def test_the_chart_offers_eight_classes_and_twelve_collectives_the_longest() -> None:
    run = FakeRun(collectives=[call(0, f"op{n}", 100 - n, sequence=n) for n in range(14)])
    found = CommunicationOperators(run, "true").names()
    assert found.numbers["id"].tolist() == list(range(20))
    assert found.texts["op"] == [f"op{n}" for n in [*range(8), *range(12)]]
    assert CommunicationOperators(run, "true").times().numbers["elapse"].tolist() == [
        100 - n for n in [*range(8), *range(12)]
    ]


def graph_step(step: int, name: str, duration: int) -> list[dict[str, Any]]:
    """One execution of a named operator: rank 1 arrives 3 ms after rank 0."""
    common = {"step": step, "sequence": step, "name": name}
    return [
        call(0, "all_reduce", duration, start=100 * step * MS, **common),
        call(1, "all_reduce", duration - 3, start=(100 * step + 3) * MS, **common),
    ]


NAMED = FakeRun(
    groups=GROUPS,
    collectives=[row for step in (1, 2) for name in ("op-a", "op-b") for row in graph_step(step, name, 10 + step)][:4]
    + [row for step in (1, 2) for row in graph_step(step + 10, "op-c", 4)],
    transfers=[
        {"rank": rank, "step": step, "group": "g", "name": name, "src": rank, "dst": 1 - rank, "scope": "global",
         "transport": "RDMA", "bytes": 6_000_000, "duration": time * MS}
        for rank, name, step, time in ((0, "op-a", 1, 2), (1, "op-a", 1, 3), (0, "other", 1, 9))
    ],
    packets=[
        {"rank": rank, "step": 1, "group": "g", "name": "op-a", "transport": "RDMA", "packet_bytes": size, "count": 2,
         "duration": (1 + rank) * MS}
        for rank, size in ((0, 512), (0, 4096), (1, 512))
    ],
)  # fmt: skip


def test_names_of_several_steps_are_offered_those_asked_for_first() -> None:
    def offered(*asked: str) -> list[tuple[Any, ...]]:
        rows = as_rows(CommunicationOperators(NAMED, "true", asked).names(), "id", "what", "name", "members", "last")
        return [row for row in rows if row[1] == "named"]

    assert offered() == [(20, "named", "op-c", 2, 1)]  # op-a and op-b are of step 1 only
    assert offered("op-b", "op-c") == [(20, "named", "op-b", 2, 1), (21, "named", "op-c", 2, 1)]
    elapse = as_rows(CommunicationOperators(NAMED, "true", ["op-c"]).times(), "id", "rank", "elapse")
    assert elapse[-2:] == [(20, 0, 4), (20, 1, 1)]


def test_links_and_packets_of_an_operator_are_its_own() -> None:
    store_links(NAMED, "true", {"RDMA": 4.0})
    traffic = CommunicationOperators(NAMED, "true", ["op-a"])
    columns = ("id", "whose", "src", "dst", "transport", "bytes", "time", "bandwidth", "utilisation")
    assert [row for row in as_rows(traffic.links(), *columns) if row[0] == 20] == [
        (20, "all", 1, 0, "RDMA", 6e6, 3, 2.0, 0.5),
        (20, "last", 1, 0, "RDMA", 6e6, 3, 2.0, 0.5),  # rank 1 arrives last
        (20, "all", 0, 1, "RDMA", 6e6, 2, 3.0, 0.75),
    ]
    sums = as_rows(traffic.transports(), "id", "whose", "links", "bytes", "time", "bandwidth", "utilisation")
    assert [row for row in sums if row[0] == 20] == [(20, "all", 2, 12e6, 5, 2.4, 0.6), (20, "last", 1, 6e6, 3, 2, 0.5)]
    sizes = as_rows(traffic.packets(), "id", "whose", "packet_bytes", "count", "bytes", "time", "bandwidth")
    assert [row for row in sizes if row[0] == 20] == [
        (20, "all", 512, 4, 2048, 3, 2048 / 3e6),
        (20, "all", 4096, 2, 8192, 1, 0.008192),
        (20, "last", 512, 2, 1024, 2, 0.000512),
    ]
    assert as_rows(CommunicationOperators(NAMED, "step = 2", ["op-a"]).links(), "id") == []
