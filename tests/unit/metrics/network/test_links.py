"""Links against their class, transports and packets, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.metrics.network.link_traffic import has_links
from paceline.metrics.network.links import MOST_LINKS, LinkTables, packet_sizes, packets_by_size, store_links
from paceline.metrics.network.slow_links import FEW_BYTES
from support.fake_run import FakeRun
from support.transfers import moved

LARGE = 8_000_000


def links(
    *transfers: dict[str, object], nominal: dict[str, float] | None = None
) -> dict[tuple[int, int], dict[str, float]]:
    table = LinkTables(FakeRun(transfers=list(transfers)), "true", nominal).links()
    rows = [{name: column[i] for name, column in table.numbers.items()} for i in range(table.length)]
    return {(int(row["src"]), int(row["dst"])): row for row in rows}


HEALTHY = [moved(0, 1, LARGE, 800_000), moved(1, 2, LARGE, 800_000), moved(2, 3, LARGE, 1_000_000)]


def test_a_link_is_compared_with_the_fast_half_of_its_class() -> None:
    found = links(*HEALTHY, moved(3, 0, LARGE, 1_600_000), nominal={"RDMA": 12.5})
    assert [found[pair]["bandwidth"] for pair in ((0, 1), (2, 3), (3, 0))] == [10, 8, 5]
    assert {row["reference"] for row in found.values()} == {10} and {row["peers"] for row in found.values()} == {4}
    assert found[3, 0]["ratio"] == 0.5 and found[2, 3]["ratio"] == 0.8
    assert found[3, 0]["utilisation"] == pytest.approx(0.4)


def test_other_transports_kinds_group_sizes_and_amounts_are_other_classes() -> None:
    other = [
        moved(5, 6, LARGE, 8_000_000, transport="HCCS"),
        moved(6, 7, LARGE, 8_000_000, name="y"),
        moved(7, 8, LARGE, 8_000_000, group="of two"),
        moved(8, 9, 5 * LARGE, 8_000_000),
        moved(9, 10, FEW_BYTES - 1, 8_000_000),
    ]
    groups = [{"group": "of two", "rank": rank, "index": rank} for rank in (7, 8)]
    table = LinkTables(FakeRun(transfers=[*HEALTHY, *other], groups=groups), "true").links()
    known = ~np.isnan(table.numbers["reference"])
    assert sorted(zip(table.numbers["src"][known], table.numbers["dst"][known], strict=True)) == [
        (0, 1),
        (1, 2),
        (2, 3),
    ]


def test_a_link_without_others_of_its_kind_says_nothing() -> None:
    assert all(np.isnan(row["ratio"]) for row in links(HEALTHY[0]).values())


def test_a_link_of_several_kinds_is_one_row_and_what_cannot_be_compared_counts_as_it_is() -> None:
    second = [moved(src, src + 1, LARGE, time, name="y") for src, time in ((0, 400_000), (1, 400_000), (2, 800_000))]
    alone = moved(2, 3, LARGE, 2_000_000, name="z")
    found = links(*HEALTHY, *second, alone)
    # 2 → 3 took 1.0 + 0.8 + 2.0 ms; at the reference speeds of its classes it would have been 0.8 + 0.4, and 2.0.
    row = found[2, 3]
    assert row["bytes"] == 3 * LARGE and row["time"] == pytest.approx(3.8)
    assert row["bandwidth"] == pytest.approx(3 * LARGE / 3.8e6)
    assert row["reference"] == pytest.approx(3 * LARGE / 3.2e6)
    assert row["ratio"] == pytest.approx(3.2 / 3.8) == row["bandwidth"] / row["reference"]


def test_steps_that_do_not_count_are_left_out() -> None:
    run = FakeRun(transfers=[*HEALTHY, moved(2, 3, LARGE, 9_000_000, step=2)])
    assert LinkTables(run, "step = 1").links().numbers["bytes"].tolist() == [LARGE] * 3


def test_links_inside_a_card_or_of_an_undeclared_communicator_have_no_class() -> None:
    local = [
        moved(4, 4, LARGE, 1),
        moved(0, 1, LARGE, 9_000_000, scope="group"),
        moved(5, 6, LARGE, 1, transport="LOCAL"),
    ]
    run = FakeRun(transfers=[*HEALTHY, *local])
    tables = LinkTables(run, "true")
    assert tables.counts() == (4, 1)
    assert {row: found["reference"] for row, found in links(*HEALTHY, *local).items() if row != (5, 6)} == {
        (0, 1): 10,
        (1, 2): 10,
        (2, 3): 10,
    }
    assert has_links(run) and not has_links(FakeRun(transfers=local))


def test_transports_and_pairs_of_hosts() -> None:
    ranks = [{"rank": rank, "host": "a" if rank < 2 else "b"} for rank in range(4)]
    small = moved(3, 0, 1_000, 10_000)
    tables = LinkTables(FakeRun(transfers=[*HEALTHY, small], ranks=ranks), "true")
    transport = {name: column[0] for name, column in tables.transports().numbers.items()}
    assert (transport["links"], transport["median"], transport["slowest"]) == (4, 10, 8)  # the small one is not busy
    assert transport["bandwidth"] == pytest.approx((3 * LARGE + 1_000) / 2.61e6)
    assert transport["speed"] == transport["top"] == 10 and transport["is_nominal"] == 0
    assert transport["bytes"] == 3 * LARGE + 1_000 and transport["time"] == 2.61
    assert transport["utilisation"] == pytest.approx((3 * LARGE + 1_000) / 2.61e6 / 10)


RANKS = [{"rank": rank, "host": "a" if rank < 2 else "b"} for rank in range(4)] + [{"rank": 4}]


def test_links_are_summed_by_pair_of_hosts() -> None:
    more = [
        moved(1, 3, LARGE, 1_600_000),
        moved(3, 0, 1_600_000, 200_000),
        moved(0, 4, LARGE, 1),
        moved(4, 0, LARGE, 1),
    ]
    aside = [
        moved(2, 2, LARGE, 1),
        moved(0, 1, LARGE, 1, scope="group"),
        moved(3, 1, 1_590_000, 100_000, transport="HCCS"),
    ]
    pairs = LinkTables(FakeRun(transfers=[*HEALTHY, *more, *aside], ranks=RANKS), "true", {"RDMA": 20.0}).host_links()
    rows = {
        key: place for place, key in enumerate(zip(*(pairs.texts[n] for n in ("src", "dst", "transport")), strict=True))
    }
    assert list(rows) == [
        ("a", "a", "RDMA"),
        ("a", "b", "RDMA"),
        ("b", "a", "HCCS"),
        ("b", "a", "RDMA"),
        ("b", "b", "RDMA"),
    ]
    across = {name: column[rows["a", "b", "RDMA"]] for name, column in pairs.numbers.items()}
    # 1 → 2 and 1 → 3: 16 MB in 2.4 ms; the fast half of the six of the class carries far more than either.
    assert (across["links"], across["bytes"], across["time"]) == (2, 2 * LARGE, 2.4)
    assert across["bandwidth"] == pytest.approx(20 / 3) and across["utilisation"] == pytest.approx(1 / 3)
    # 3 → 0 carries a tenth of the busiest pair, and nothing to compare it with; 3 → 1 is alone on its transport.
    few = {name: column[rows["b", "a", "RDMA"]] for name, column in pairs.numbers.items()}
    assert few["busy"] == 1 and np.isnan(few["ratio"])
    smaller = [*HEALTHY, *more[:1], moved(3, 0, 1_599_999, 200_000)]
    found = LinkTables(FakeRun(transfers=smaller, ranks=RANKS), "true").host_links().numbers
    assert found["busy"].tolist() == [1, 1, 0, 1]
    # Of 1 → 2 and 1 → 3 at the reference of 10: 1.6 of 2.4 ms; 2 → 3 needs 1.0 instead of 0.8 ms.
    assert found["ratio"] == pytest.approx([1, 1.6 / 2.4, np.nan, 0.8], nan_ok=True)


def test_a_link_is_busy_from_a_tenth_of_the_busiest_of_its_transport() -> None:
    sizes = {0: 10_000, 1: 1_000, 2: 999}
    rows = [moved(src, 9, size, 1_000) for src, size in sizes.items()]
    other = [moved(5, 6, 10, 1_000, transport="HCCS"), moved(6, 7, 10**6, 1_000, scope="group")]
    found = links(*rows, *other)
    assert {src: row["busy"] for (src, _), row in found.items()} == {0: 1, 1: 1, 2: 0, 5: 1}


def test_without_a_design_speed_the_95th_percentile_of_busy_links_stands_for_it() -> None:
    rows = [moved(src, src + 1, (src + 1) * 100_000, 100_000) for src in range(9, 30)]  # 10, 11 … 30 GB/s
    found = links(*rows, moved(0, 1, 1, 1_000, transport="HCCS"))
    assert found[9, 10]["utilisation"] == pytest.approx(10 / 29)
    known = links(*rows, moved(0, 1, 1_000, 1_000, transport="it's"), nominal={"it's": 4.0, "HCCS": 9.0})
    assert known[0, 1]["utilisation"] == 0.25 and known[9, 10]["utilisation"] == pytest.approx(10 / 29)


def test_transports_and_links_come_in_the_order_of_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [*HEALTHY, moved(5, 6, LARGE, 4_000_000, transport="HCCS"), moved(6, 5, LARGE, 4_000_000, transport="HCCS")]
    tables = LinkTables(FakeRun(transfers=rows), "true", {"HCCS": 8.0})
    transports = tables.transports()
    assert transports.texts["transport"] == ["HCCS", "RDMA"] and transports.numbers["is_nominal"].tolist() == [1, 0]
    assert transports.numbers["speed"].tolist() == [8, 10] and transports.numbers["top"].tolist() == [2, 10]
    assert [tables.links().numbers[name].tolist() for name in ("src", "time")] == [[5, 6, 2, 0, 1], [4, 4, 1, 0.8, 0.8]]
    assert MOST_LINKS == 150_000
    monkeypatch.setattr("paceline.metrics.network.links.MOST_LINKS", 2)
    assert tables.links().numbers["src"].tolist() == [5, 6]


def test_tables_can_be_stored_in_another_schema() -> None:
    run = FakeRun(transfers=[*HEALTHY, moved(0, 1, LARGE, 400_000, step=2)])
    run.connection.execute("CREATE SCHEMA kept")
    store_links(run, "step = 1", {}, schema="kept")
    assert run.sql("SELECT count(*) FROM kept.link_steps").fetchall() == [(4,)]
    assert run.sql("SELECT sum(bytes) FROM kept.link_totals").fetchall() == [(3 * LARGE,)]


PACKETS = [
    {"rank": 0, "step": step, "transport": transport, "packet_bytes": size, "count": count, "duration": count * each}
    for step, transport, size, count, each in (
        (1, "RDMA", 1024, 3, 1000),
        (1, "RDMA", 2000, 2, 1000),
        (2, "RDMA", 2048, 1, 1000),
        (2, "RDMA", 0, 5, 0),
        (2, "HCCS", 4096, 1, 2000),
    )
]


def test_packets_by_power_of_two() -> None:
    table = packet_sizes(FakeRun(packets=PACKETS), "true")
    assert table.texts["transport"] == ["HCCS", "RDMA", "RDMA"]
    expected = {
        "power": [12, 10, 11],
        "count": [1, 5, 1],
        "bytes": [4096, 3 * 1024 + 2 * 2000, 2048],
        "time": [0.002, 0.005, 0.001],
        "bandwidth": [2.048, 7.072 / 5, 2.048],
        "share": [1, 5 / 6, 1 / 6],
        "smallest": [4096, 1024, 2048],
        "largest": [4096, 2000, 2048],
        "total_bytes": [4096, 9120, 9120],
        "total_time": [0.002, 0.006, 0.006],
    }
    assert {name: column.tolist() for name, column in table.numbers.items()} == {
        name: pytest.approx(values) for name, values in expected.items()
    }
    assert packet_sizes(FakeRun(packets=PACKETS), "step = 1").numbers["count"].tolist() == [5]


def test_packets_by_size() -> None:
    run = FakeRun(packets=[*PACKETS[:3], PACKETS[0]])
    found = run.sql(f"FROM ({packets_by_size('step = 1')}) ORDER BY packet_bytes").fetchall()
    assert found == [
        ("RDMA", 1024, 6, 6144, 0.006, 0.75, pytest.approx(1.024)),
        ("RDMA", 2000, 2, 4000, 0.002, 0.25, 2.0),
    ]
