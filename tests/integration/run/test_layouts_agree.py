"""One simulated run, written in every layout, gives the same tables wherever the layout holds the information."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import paceline
from paceline.run.run import Run
from paceline.simulate import LAYOUTS, ClusterSpec, simulate

SHAPES = (
    {"hosts": 2, "devices": 2, "dp": 1, "tp": 2, "pp": 2},
    {"hosts": 1, "devices": 4, "dp": 4, "tp": 1, "pp": 1},
    {"hosts": 2, "devices": 4, "dp": 2, "tp": 2, "pp": 2},
)
FAULTS = ((), ("slow-rank:1:1.3",), ("slow-link",), ("one-off-stall",))

STEPS = "SELECT rank, step, {columns} FROM steps WHERE step >= {first} ORDER BY rank, step"
COLLECTIVES = """
    SELECT rank, step, op, count(*), sum(duration)::BIGINT AS duration, {columns}
    FROM collectives WHERE op IN ({ops}) GROUP BY rank, step, op ORDER BY ALL
"""
# Old formats call HCCS and PCIe both SDMA, and number ranks inside the communicator.
LINKS = """
    SELECT rank, step, replace(transport, 'HCCS', 'SDMA') AS kind, sum(bytes)::BIGINT, sum(duration)::BIGINT
    FROM transfers WHERE transport <> 'LOCAL' AND name {names} GROUP BY ALL ORDER BY ALL
"""
EVERY_OP = "'all_reduce', 'all_gather', 'reduce_scatter', 'send', 'receive'"
WAITS = "coalesce(sum(bytes), 0)::BIGINT, sum(wait)::BIGINT, sum(transit)::BIGINT"


def written(root: Path, layout: str, spec: ClusterSpec, faults: tuple[str, ...]) -> Run:
    simulate(root / layout, spec, faults, layout)
    return paceline.open(root / layout, store=root / f"{layout}-store")


def rows(run: Run, query: str, **parts: object) -> list[tuple[Any, ...]]:
    return run.sql(query.format(**parts)).fetchall()


@given(shape=st.sampled_from(SHAPES), faults=st.sampled_from(FAULTS), seed=st.integers(0, 10_000))
@settings(max_examples=4, deadline=None, derandomize=True, phases=[Phase.generate])  # shrinking would take minutes
def test_every_layout_gives_the_same_tables(
    tmp_path_factory: pytest.TempPathFactory, shape: dict[str, int], faults: tuple[str, ...], seed: int
) -> None:
    root = tmp_path_factory.mktemp("layouts")
    spec = ClusterSpec(**shape, steps=3, layers=4, micro_batches=2, seed=seed)
    if "slow-link" in faults and spec.world == 4 and spec.tp == 1:
        faults = ()
    with written(root, "ascend-text", spec, faults) as reference:
        split = rows(reference, STEPS, columns="duration, computing, exposed, overlapped, free, bubble", first=1)
        waits = rows(reference, COLLECTIVES, columns=WAITS, ops=EVERY_OP)
        links = rows(reference, LINKS, names="IS NOT NULL")
        for layout in ("ascend-text-ms", "ascend-db"):
            with written(root, layout, spec, faults) as run:
                assert (
                    rows(run, STEPS, columns="duration, computing, exposed, overlapped, free, bubble", first=1) == split
                )
                assert rows(run, COLLECTIVES, columns=WAITS, ops=EVERY_OP) == waits
                assert rows(run, LINKS, names="IS NOT NULL") == links
        with written(root, "kineto", spec, faults) as run:
            whole = "duration, computing, exposed, overlapped, free"
            assert rows(run, STEPS, columns=whole, first=1) == rows(reference, STEPS, columns=whole, first=1)
            assert rows(run, COLLECTIVES, columns="0", ops=EVERY_OP) == rows(
                reference, COLLECTIVES, columns="0", ops=EVERY_OP
            )
        for layout in ("mindinsight", "mindinsight-r13", "mindinsight-r21", "msadvisor"):
            with written(root, layout, spec, faults) as run:
                assert rows(run, STEPS, columns="duration", first=1) == rows(
                    reference, STEPS, columns="duration", first=1
                )
                assert rows(run, COLLECTIVES, columns=WAITS, ops=EVERY_OP) == waits
                assert rows(run, LINKS, names="IS NOT NULL") == links
        with written(root, "msprof", spec, faults) as run:
            # The first iteration has no end before it to begin from.
            split = "duration, computing, exposed, free"
            assert rows(run, STEPS, columns=split, first=2) == rows(reference, STEPS, columns=split, first=2)
            assert rows(run, COLLECTIVES, columns="0", ops=EVERY_OP) == rows(
                reference, COLLECTIVES, columns="0", ops=EVERY_OP
            )
            if spec.tp == 1 or spec.dp == 1:  # otherwise two groups run at once, and tasks cannot be assigned to one
                reduced = [row for row in waits if row[2] == "all_reduce"]
                assert rows(run, COLLECTIVES, columns=WAITS, ops="'all_reduce'") == reduced


def test_every_layout_is_covered_above() -> None:
    covered = {
        "ascend-text",
        "ascend-text-ms",
        "ascend-db",
        "kineto",
        "mindinsight",
        "mindinsight-r13",
        "mindinsight-r21",
        "msadvisor",
        "msprof",
    }
    assert set(LAYOUTS) == covered


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_clock_offsets_of_two_hosts_are_found_in_every_layout(tmp_path: Path, layout: str) -> None:
    spec = ClusterSpec(hosts=2, devices=2, dp=2, tp=2, pp=1, steps=3, layers=4, micro_batches=2)
    truth = simulate(tmp_path / layout, spec, (), layout)
    with paceline.open(tmp_path / layout, store=tmp_path / "store") as run:
        found = dict(run.sql("SELECT rank, clock_offset FROM ranks").fetchall())
    for rank, offset in enumerate(truth.clock_offsets):
        assert abs(found[rank] - (offset - truth.clock_offsets[0])) <= 3_000


@pytest.mark.parametrize("layout", ["mindinsight", "mindinsight-r13", "msadvisor"])
def test_undeclared_groups_are_inferred(tmp_path: Path, layout: str) -> None:
    spec = ClusterSpec(hosts=2, devices=4, dp=4, tp=2, pp=1, steps=3, layers=4, micro_batches=2)
    truth = simulate(tmp_path / layout, spec, ("slow-rank:5:1.2",), layout)
    with paceline.open(tmp_path / layout, store=tmp_path / "store") as run:
        found = run.sql(
            'SELECT list(rank ORDER BY rank) FROM groups JOIN (SELECT DISTINCT "group" FROM collectives) USING ("group") '
            'GROUP BY "group"'
        ).fetchall()
    used = {group.ranks for group in truth.groups if group.kind in ("tp", "dp")}
    assert used <= {tuple(ranks) for (ranks,) in found}
