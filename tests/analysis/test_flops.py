"""FLOPs and MFU against numbers worked out by hand, and a real recording's own count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import paceline
from hand_made import HandMade
from paceline.analysis.flops import matmul_flops, operator_flops, rank_flops
from reading import FIXTURES, needs_fixtures

PRODUCT = {"type": "MatMulV2", "input_shapes": "64,128;128,32", "output_shapes": "64,32", "core": "AI_CORE"}
ONE = 2 * 64 * 128 * 32


@pytest.mark.parametrize(
    ("kind", "inputs", "output", "flops"),
    [
        ("MatMulV2", "32,9216;4096,9216;4096", "32,4096", 2 * 32 * 9216 * 4096),  # second factor transposed, bias
        ("MatMulV2", "32,1000;32,4096", "1000,4096", 2 * 1000 * 32 * 4096),  # first factor transposed
        ("MatMulV3", "576,256,16,16;64,576,16,16", "64,256,16,16", 2 * 4096 * 9216 * 1024),  # fractal
        ("BatchMatMulV2", "4,8,64,128;4,8,128,64", "4,8,64,64", 2 * 32 * 64 * 128 * 64),
        ("BatchMatMul", "4,64,128;128,32", "4,64,32", 2 * 4 * 64 * 128 * 32),  # one factor for the whole batch
        ("MatMulV2", "64,128;127,32", "64,32", None),
        ("MatMulV2", "64,128", "64,32", None),
        ("MatMulV2", "64,x;128,32", "64,32", None),
        ("MatMulV2", ";", "", None),
    ],
)
def test_the_work_of_a_matrix_product(kind: str, inputs: str, output: str, flops: float | None) -> None:
    assert matmul_flops(kind, inputs, output) == flops


@given(*[st.integers(1, 500)] * 4, st.booleans(), st.booleans())
def test_any_layout_gives_the_same_work(m: int, k: int, n: int, batch: int, first: bool, second: bool) -> None:
    a = f"{batch},{k},{m}" if first else f"{batch},{m},{k}"
    b = f"{batch},{n},{k}" if second else f"{batch},{k},{n}"
    expected = 2 * batch * m * k * n if batch > 0 else None
    assert matmul_flops("BatchMatMulV2", f"{a};{b}", f"{batch},{m},{n}") == expected


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_a_shape_or_none(inputs: str, outputs: str) -> None:
    matmul_flops("MatMul", inputs, outputs)


def test_mfu_is_the_work_of_a_step_over_what_the_card_could_do_meanwhile() -> None:
    run = HandMade(
        steps=[{"rank": 0, "step": step, "duration": 1_000_000} for step in (1, 2)],
        kernels=[{"rank": 0, "step": step, "duration": 4_000, **PRODUCT} for step in (1, 1, 2, 2)]
        + [{"rank": 0, "step": 1, "duration": 9_000, "type": "Add", "core": "AI_VECTOR_CORE"}],
    )
    table = rank_flops(run, "true", peak_rate=1e10)
    assert table.numbers["flops"].tolist() == [2 * ONE]
    assert table.numbers["rate"].tolist() == [pytest.approx(2 * ONE / 1e-3)]
    assert table.numbers["mfu"].tolist() == [pytest.approx(2 * ONE / 1e-3 / 1e10)]
    assert table.texts["basis"] == ["matrix products"]
    assert np.isnan(rank_flops(run, "true").numbers["mfu"]).all()
    assert rank_flops(run, "step = 2").numbers["flops"].tolist() == [2 * ONE]


def test_operators_run_at_their_work_over_their_time() -> None:
    run = HandMade(kernels=[{"rank": 1, "step": 1, "duration": duration, **PRODUCT} for duration in (3_000, 5_000)])
    table = operator_flops(run, "true")
    assert table.texts["type"] == ["MatMulV2"] and table.numbers["count"].tolist() == [2]
    assert table.numbers["rate"].tolist() == [pytest.approx(2 * ONE / 8e-6)]


def test_without_steps_or_work_nothing_is_said() -> None:
    assert rank_flops(HandMade(), "true").length == 0
    assert rank_flops(HandMade(kernels=[{"rank": 0, "duration": 1, **PRODUCT}]), "true").length == 0


@needs_fixtures
def test_a_recordings_own_count_comes_first(tmp_path: Path) -> None:
    source = FIXTURES / "mindinsight-tests" / "tests" / "utils" / "resource" / "cluster_propose"
    with paceline.open(source, store=tmp_path) as run:
        table = rank_flops(run, "true")
    assert table.numbers["flops"] == pytest.approx([107146.763e6, 107145.034e6, 329608.369e6, 329612.400e6])
    assert table.texts["basis"] == ["recorded"] * 4
