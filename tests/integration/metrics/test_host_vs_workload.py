"""Slow cards or more work: told by kernels alone."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pytest

from paceline.metrics.host_vs_workload import compare_kernel_speed

LAYER = [("gemm", 400), ("gemm", 300), ("softmax", 50), ("add", 10)]


class Kernels:
    """A table of kernels: for each rank how many layers, how slow, with shapes or without."""

    def __init__(self, ranks: list[tuple[int, float]], *, shapes: str | None = None) -> None:
        self.connection = duckdb.connect()
        self.connection.sql(
            "CREATE TABLE kernels (rank INT, step INT, name TEXT, type TEXT, core TEXT, input_shapes TEXT, duration BIGINT)"
        )
        rows = [
            (rank, step, name, name, "GPU", shapes and shapes.format(time=time), int(1000 * time * slower))
            for rank, (layers, slower) in enumerate(ranks)
            for step in (1, 2)
            for _ in range(layers)
            for name, time in LAYER
        ]
        self.connection.executemany("INSERT INTO kernels VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def sql(self, query: str, /, params: Mapping[str, object] | None = None) -> duckdb.DuckDBPyRelation:
        return self.connection.sql(query, params=params)


@pytest.mark.parametrize(("shapes", "known"), [(None, False), ("8,8", False), ("{time},8", True)])
def test_a_slow_host_runs_the_same_kernels_longer(shapes: str | None, known: bool) -> None:
    found = compare_kernel_speed(Kernels([(4, 1.0), (4, 1.0), (4, 1.3), (4, 1.3)], shapes=shapes), [2, 3], [0, 1])
    assert found is not None
    assert (found.time_ratio, found.work_ratio, found.same_shapes) == (pytest.approx(1.3), pytest.approx(1.0), known)


def test_a_stage_with_more_layers_runs_more_kernels() -> None:
    found = compare_kernel_speed(Kernels([(4, 1.0), (4, 1.0), (6, 1.0), (6, 1.0)]), [2, 3], [0, 1])
    assert found is not None
    assert (found.time_ratio, found.work_ratio) == (pytest.approx(1.0), pytest.approx(1.5))


def test_without_kernels_of_both_nothing_is_said() -> None:
    assert compare_kernel_speed(Kernels([(4, 1.0)]), [1], [0]) is None
