"""Collectives one by one and links by message size, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from hand_made import HandMade
from paceline.analysis.collectives import arrivals, single_collectives
from paceline.analysis.links import link_matrix, packet_sizes

MS = 1_000_000


def stay(rank: int, start: float, duration: float, sequence: int = 0, **more: object) -> dict[str, object]:
    return {"rank": rank, "step": 1, "group": "g", "op": "all_reduce", "sequence": sequence, "name": f"ar{sequence}",
            "start": int(start * MS), "duration": int(duration * MS), **more}  # fmt: skip


def test_a_collective_is_told_by_all_its_members() -> None:
    recorded = {"transit": 2 * MS, "sync": MS, "idle": 0, "bytes": 4_000_000}
    run = HandMade(
        collectives=[stay(0, 10, 8, wait=6 * MS, **recorded), stay(1, 11, 7, wait=5 * MS, **recorded),
                     stay(2, 16, 2, wait=0, **recorded),
                     stay(0, 30, 1, 1), stay(1, 30, 1, 1), {**stay(0, 0, 99), "op": "send", "sequence": 9}]
    )  # fmt: skip
    table = single_collectives(run, "true")
    assert table.texts["name"] == ["ar0", "ar1"]
    first = {name: column[0] for name, column in table.numbers.items()}
    assert (first["members"], first["elapse"], first["transit"]) == (3, 8, 2)
    assert first["wait"] == pytest.approx(11 / 3) and first["sync"] == 1 and first["idle"] == 0
    assert (first["last_rank"], first["late"]) == (2, 5)
    assert first["bandwidth"] == pytest.approx(2.0)  # 12 MB in 6 ms of moving
    late = arrivals(run, "true").numbers
    assert late["held"].tolist() == [0, 0, 5] and late["waited"].tolist() == [6, 5, 0]


def test_without_starts_the_shortest_stay_came_last() -> None:
    rows = [{**stay(rank, 0, stayed), "start": None} for rank, stayed in enumerate((9, 3, 8))]
    table = single_collectives(HandMade(collectives=rows), "true").numbers
    assert table["last_rank"].tolist() == [1] and table["late"].tolist() == [5] and table["elapse"].tolist() == [9]


def test_links_are_compared_with_links_that_carry_messages_of_their_size() -> None:
    def moved(src: int, dst: int, size: int, duration: int, sequence: int | None = 0) -> dict[str, object]:
        return {"rank": src, "step": 1, "group": "g", "name": "x", "sequence": sequence, "src": src, "dst": dst,
                "scope": "global", "transport": "RDMA", "bytes": size, "duration": duration}  # fmt: skip

    large = [moved(0, 1, 8_000_000, 800_000), moved(0, 1, 8_000_000, 800_000), moved(1, 2, 8_000_000, 800_000),
             moved(2, 0, 8_000_000, 1_600_000)]  # fmt: skip
    small = [moved(0, 1, 1_000, 10_000), moved(1, 2, 1_000, 10_000)]
    table = link_matrix(HandMade(transfers=[*large, *small, moved(3, 4, 10, 1, None)]), "true", {"RDMA": 12.5})
    cells = {
        (src, dst, power): (bandwidth, of_class, use)
        for src, dst, power, bandwidth, of_class, use in zip(
            *(table.numbers[name] for name in ("src", "dst", "power", "bandwidth", "of_class", "utilisation")), strict=True
        )
        if not np.isnan(power)
    }  # fmt: skip
    assert cells == {
        (0, 1, 256): (0.1, 1.0, pytest.approx(0.008)), (1, 2, 256): (0.1, 1.0, pytest.approx(0.008)),
        (0, 1, 4**11): (10, 1.0, 0.8), (1, 2, 4**11): (10, 1.0, 0.8), (2, 0, 4**11): (5, 0.5, 0.4),
    }  # fmt: skip
    assert np.isnan(table.numbers["power"]).sum() == 1  # a sum of many messages has no size
    assert np.isnan(link_matrix(HandMade(transfers=large), "true").numbers["utilisation"]).all()


def test_packets_by_power_of_two() -> None:
    rows = [{"rank": 0, "step": 1, "transport": "RDMA", "packet_bytes": size, "count": count, "duration": count * 1000}
            for size, count in ((1024, 3), (2000, 2), (2048, 1))]  # fmt: skip
    table = packet_sizes(HandMade(packets=rows), "true").numbers
    assert table["power"].tolist() == [10, 11] and table["count"].tolist() == [5, 1]
    assert table["bytes"].tolist() == [3 * 1024 + 2 * 2000, 2048] and table["smallest"].tolist() == [1024, 2048]
