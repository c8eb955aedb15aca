"""FLOPs and MFU against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.metrics.flops import flops_rows, matmul_flops, operator_flops, rank_flops
from support.fake_run import FakeRun

MS = 1_000_000
NAN = float("nan")
PRODUCT = {"type": "MatMulV2", "input_shapes": "64,128;128,32", "output_shapes": "64,32", "core": "AI_CORE"}
ONE = 2 * 64 * 128 * 32


@pytest.mark.parametrize(
    ("kind", "inputs", "output", "flops"),
    [
        ("MatMulV2", "32,9216;4096,9216;4096", "32,4096", 2 * 32 * 9216 * 4096),  # second factor transposed, bias
        ("MatMulV2", "32,1000;32,4096", "1000,4096", 2 * 1000 * 32 * 4096),  # first factor transposed
        ("MatMulV3", "576,256,16,16;64,576,16,16", "64,256,16,16", 2 * 4096 * 9216 * 1024),  # fractal
        ("BatchMatMulV2", "4,8,64,128;4,8,128,64", "4,8,64,64;9", 2 * 32 * 64 * 128 * 64),
        ("BatchMatMul", "4,64,128;128,32", "4,64,32", 2 * 4 * 64 * 128 * 32),  # one factor for the whole batch
        ("BatchMatMul", "64,128;128,32", "64,32", ONE),
        ("MatMul", "4,64,128;4,128,64", "4,64,64", 2 * 2 * 4 * 64 * 128 * 64),  # not called a batch: √4 times as much
        ("MatMulV2", "64,128;127,32", "64,32", None),  # no whole root
        ("BatchMatMul", "3,1,1;2,1,1", "4,3,3", None),  # 54 / 4 is not whole
        ("MatMulV2", "64,128", "64,32", None),
        ("MatMulV2", "64,x;128,32", "64,32", None),
        ("MatMulV2", "64,128;128,32", "x", None),
        ("MatMulV2", ";", "", None),
        ("MatMulV2", '"64,128;128, 32"', '"64,32"', ONE),
        ("MatMulV2", "2,1,1,1,1,1,1,1;2", "1", 2 * 2),  # eight dimensions
        ("MatMulV2", "2,1,1,1,1,1,1,1,1;2", "1", None),  # nine
        ("MatMulV2", "100000000000000;100000000000000", "1", 2e14),  # fifteen digits
        ("MatMulV2", "1000000000000000;1000000000000000", "1", None),
    ],
)
def test_the_work_of_a_matrix_product(kind: str, inputs: str, output: str, flops: float | None) -> None:
    assert matmul_flops(kind, inputs, output) == flops


@given(*[st.integers(1, 500)] * 4, st.booleans(), st.booleans())
def test_any_layout_gives_the_same_work(m: int, k: int, n: int, batch: int, first: bool, second: bool) -> None:
    a = f"{batch},{k},{m}" if first else f"{batch},{m},{k}"
    b = f"{batch},{n},{k}" if second else f"{batch},{k},{n}"
    assert matmul_flops("BatchMatMulV2", f"{a};{b}", f"{batch},{m},{n}") == 2 * batch * m * k * n


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_a_shape_or_none(inputs: str, outputs: str) -> None:
    matmul_flops("MatMul", inputs, outputs)


def kernels(rank: int, *durations: int, step: int = 1, **more: str) -> list[dict[str, Any]]:
    return [{"rank": rank, "step": step, "duration": duration, **PRODUCT, **more} for duration in durations]


def steps(rank: int, *durations: int) -> list[dict[str, Any]]:
    return [{"rank": rank, "step": number, "duration": duration} for number, duration in enumerate(durations, 1)]


RUN = FakeRun(
    # Rank 0 runs three products in two steps of 1 and 3 ms; rank 1 recorded its own count; rank 2 nothing to count.
    steps=[*steps(0, MS, 3 * MS), *steps(1, 4 * MS), *steps(2, MS), *steps(3, 0)],
    kernels=[
        *kernels(0, 3_000, 5_000),
        *kernels(0, 4_000, step=2),
        *kernels(0, 9_000, type="Add"),
        *kernels(0, 7_000, input_shapes="64,128;127,32"),
        *kernels(1, 2_000),
        *kernels(2, 2_000, output_shapes="7,7"),
        *kernels(3, 0),
        *kernels(9, 2_000),
    ],
    flops=[
        {"rank": 1, "name": None, "unit": "cube", "flops": 5e6, "flops_per_s": 1e9, "utilisation": 0.25},
        {"rank": 1, "name": None, "unit": "vector", "flops": 3e6},
        {"rank": 1, "name": "Conv", "flops": 9e6},
        {"rank": 2, "name": None, "flops": 0},
    ],
)


def test_mfu_is_the_work_of_a_step_over_what_the_card_could_do_meanwhile() -> None:
    table = rank_flops(RUN, "true", peak_rate=1e10)
    rates = [1.5 * ONE / 2e-3, 8e6 / 4e-3]  # FLOPs per step / mean step
    assert table.numbers["rank"].tolist() == [0, 1] and table.numbers["step"].tolist() == [2, 4]
    assert table.numbers["flops"].tolist() == [1.5 * ONE, 8e6]
    assert table.numbers["rate"] == pytest.approx(rates)
    assert table.numbers["mfu"] == pytest.approx([rate / 1e10 for rate in rates])
    assert table.texts["basis"] == ["matrix products", "recorded"]
    assert np.isnan(rank_flops(RUN, "true").numbers["mfu"]).all()
    assert rank_flops(RUN, "step = 2").numbers["flops"].tolist() == [ONE]


def test_operators_run_at_their_work_over_their_time() -> None:
    table = operator_flops(RUN, "step = 1 AND rank IN (0, 3)")
    assert table.texts["type"] == ["MatMulV2"] * 2 and table.texts["shapes"] == ["64,128;128,32"] * 2
    assert table.numbers["rank"].tolist() == [0, 3] and table.numbers["count"].tolist() == [2, 1]
    assert table.numbers["flops"].tolist() == [ONE, ONE] and table.numbers["time"].tolist() == [0.008, 0]
    assert table.numbers["rate"][0] == pytest.approx(2 * ONE / 8e-6) and np.isnan(table.numbers["rate"][1])


@pytest.mark.parametrize(
    ("kind", "counts"),
    [("MatMul", 1), ("batchmatmul", 1), ("BatchMatMulV12", 1), ("mat_mul", 1), ("MatMulBias", 0), ("MatMulV", 0)],
)
def test_matrix_products_are_known_by_their_type(kind: str, counts: int) -> None:
    assert operator_flops(FakeRun(kernels=kernels(0, 1, type=kind)), "true").length == counts


def test_rows_are_as_recorded_else_ranks_and_then_their_products_per_step() -> None:
    table = flops_rows(RUN, "true", 1e10)
    rate, speed = 1.5 * ONE / 2e-3, 3 * ONE / 12e-6
    assert table.texts["name"] == ["Conv", None, None, None, None, "MatMulV2 [64,128] × [128,32]"]
    expected = {
        "rank": [1, 1, 1, 2, 0, 0],
        "flops": [9e6, 5e6, 3e6, 0, 1.5 * ONE, 1.5 * ONE],
        "flops_per_s": [NAN, 1e9, NAN, NAN, rate, speed],
        "utilisation": [NAN, 0.25, NAN, NAN, rate / 1e10, speed / 1e10],
        "mfu": [NAN, 8e6 / 4e-3 / 1e10, 8e6 / 4e-3 / 1e10, NAN, rate / 1e10, NAN],
    }
    for name, values in expected.items():
        assert table.numbers[name] == pytest.approx(values, nan_ok=True), name
    assert table.texts["basis"] == ["recorded"] * 4 + ["matrix products"] * 2
    assert table.texts["unit"] == [None, "cube", "vector", None, None, None]
    second = flops_rows(RUN, "step = 2", 1e10)
    assert second.texts["name"][-1] == "MatMulV2 [64,128] × [128,32]" and second.numbers["flops"][-1] == ONE
    unknown = flops_rows(RUN, "true", None).numbers
    assert np.isnan(unknown["utilisation"][[4, 5]]).all() and unknown["flops_per_s"][4] == pytest.approx(rate)


def test_without_steps_or_work_nothing_is_said() -> None:
    assert rank_flops(FakeRun(), "true").length == 0
    alone = FakeRun(kernels=kernels(0, 1))
    assert rank_flops(alone, "true").length == 0 and flops_rows(alone, "true", None).length == 0
