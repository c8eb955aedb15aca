"""Slow host or more work, from kernels whose ratios are worked out by hand."""

from __future__ import annotations

import pytest

from paceline.metrics.host_vs_workload import KernelSpeed, compare_kernel_speed, work_differs
from support.fake_run import FakeRun

Kernel = dict[str, object]


def kernels(rank: int, kind: str, shapes: str | None, *durations: int, **more: object) -> list[Kernel]:
    row = {"rank": rank, "step": 1, "name": kind, "type": kind, "core": "AI_CORE", "input_shapes": shapes}
    return [{**row, "duration": duration, **more} for duration in durations]


def compared(*rows: list[Kernel], here: tuple[int, ...] = (0,), there: tuple[int, ...] = (1,)) -> KernelSpeed | None:
    return compare_kernel_speed(FakeRun(kernels=[kernel for some in rows for kernel in some]), here, there)


ELSEWHERE = [*kernels(1, "MatMul", "8,8", 10), *kernels(1, "Add", "8", 10)]


def test_more_layers_are_more_kernels_and_no_longer_ones() -> None:
    here = [*kernels(0, "MatMul", "8,8", 10, 10), *kernels(0, "Add", "8", 10, 10)]
    assert compared(here, ELSEWHERE) == KernelSpeed(time_ratio=1, work_ratio=2, same_shapes=True)


def test_a_slow_card_runs_as_many_kernels_each_longer() -> None:
    here = [*kernels(0, "MatMul", "8,8", 15), *kernels(0, "Add", "8", 15)]
    assert compared(here, ELSEWHERE) == KernelSpeed(time_ratio=1.5, work_ratio=1, same_shapes=True)


def test_kinds_that_only_one_side_runs_are_work_at_their_own_duration() -> None:
    here = [*kernels(0, "MatMul", "8,8", 15), *kernels(0, "Add", "8", 15), *kernels(0, "Softmax", "9", 40)]
    assert compared(here, ELSEWHERE).work_ratio == (10 + 10 + 40) / 20  # type: ignore[union-attr]
    found = compared(ELSEWHERE, kernels(0, "MatMul", "8,8", 10), here=(1,), there=(0,))
    assert found.work_ratio == 20 / 10  # type: ignore[union-attr]


def test_executions_are_per_step_of_the_rank() -> None:
    here = [*kernels(0, "MatMul", None, 10, 10), *kernels(0, "MatMul", None, 10, 10, step=2)]
    found = compared(here, kernels(1, "MatMul", None, 10))
    assert found == KernelSpeed(time_ratio=1, work_ratio=2, same_shapes=False)
    unnumbered = kernels(0, "MatMul", None, 10, 10, 10, step=None)
    assert compared(unnumbered, kernels(1, "MatMul", None, 10)).work_ratio == 3  # type: ignore[union-attr]


def test_others_show_their_fast_half_and_these_ranks_their_median() -> None:
    each = ((0, 20), (1, 24), (2, 80), (3, 10), (4, 12), (5, 40))
    rows = [kernels(rank, "MatMul", None, duration) for rank, duration in each]
    # Here 24 of (20, 24, 80), there 11 of (10, 12), the fast half of three.
    assert compared(*rows, here=(0, 1, 2), there=(3, 4, 5)).time_ratio == pytest.approx(24 / 11)  # type: ignore[union-attr]
    assert compared(*rows, here=(0, 1), there=(3, 5)).time_ratio == pytest.approx(22 / 10)  # type: ignore[union-attr]


def test_a_kind_takes_the_median_of_its_executions() -> None:
    found = compared(kernels(0, "MatMul", None, 10, 12, 90), kernels(1, "MatMul", None, 10, 10, 10))
    assert found == KernelSpeed(time_ratio=1.2, work_ratio=1, same_shapes=False)


def test_work_is_the_mean_over_all_ranks_also_those_that_do_not_run_a_kind() -> None:
    here = [kernels(0, "MatMul", "8,8", 10), kernels(1, "MatMul", "8,8", 10), kernels(1, "Softmax", "9", 30, 30)]
    found = compared(*here, kernels(2, "MatMul", "8,8", 10), here=(0, 1), there=(2,))
    assert found.work_ratio == (10 + 60 / 2) / 10  # type: ignore[union-attr]


@pytest.mark.parametrize(("adds", "ratio"), [(1, 1.5), (3, 2)])
def test_the_time_ratio_is_weighted_by_time(adds: int, ratio: float) -> None:
    # MatMul is 1.5 times as slow and takes 45, Add twice as slow and takes 20 each time: above 45 it is more than half.
    here = [*kernels(0, "MatMul", "8,8", 45), *kernels(0, "Add", "8", *[20] * adds)]
    there = [*kernels(1, "MatMul", "8,8", 30), *kernels(1, "Add", "8", 10)]
    assert compared(here, there).time_ratio == ratio  # type: ignore[union-attr]


def test_half_of_the_time_is_enough_for_the_lower_ratio() -> None:
    here = [*kernels(0, "MatMul", "8,8", 30), *kernels(0, "Add", "8", 10, 10, 10)]
    there = [*kernels(1, "MatMul", "8,8", 20), *kernels(1, "Add", "8", 5)]
    assert compared(here, there).time_ratio == 1.5  # type: ignore[union-attr]


def test_kernels_with_shapes_are_compared_and_others_only_where_there_are_none() -> None:
    here = [*kernels(0, "MatMul", "8,8", 15), *kernels(0, "Add", None, 800)]
    there = [*kernels(1, "MatMul", "8,8", 10), *kernels(1, "Add", None, 100)]
    found = compared(here, there)
    assert (found.time_ratio, found.same_shapes) == (1.5, True)  # type: ignore[union-attr]
    assert found.work_ratio == 1  # type: ignore[union-attr]


def test_one_shape_for_everything_says_nothing_about_sizes() -> None:
    here = [*kernels(0, "MatMul", "8", 15), *kernels(0, "Add", "8", 80)]
    there = [*kernels(1, "MatMul", "8", 10), *kernels(1, "Add", "8", 40)]
    found = compared(here, there)
    assert (found.time_ratio, found.same_shapes) == (2, False)  # type: ignore[union-attr]


def test_other_shapes_are_other_kinds() -> None:
    here = [*kernels(0, "MatMul", "8,8", 10), *kernels(0, "MatMul", "9,9", 30), *kernels(0, "Add", "8", 1)]
    there = [*kernels(1, "MatMul", "8,8", 10), *kernels(1, "Add", "8", 1)]
    assert compared(here, there).time_ratio == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("core", "shapes", "alike"), [("GPU", None, False), ("GPU", "8,8", True), ("AI_CORE", None, True)]
)
def test_kernels_of_a_gpu_without_shapes_are_alike_when_their_names_are(
    core: str, shapes: str | None, alike: bool
) -> None:
    rows = [kernels(rank, "kernel", shapes, 10, core=core, name=f"gemm_{rank}") for rank in (0, 1)]
    assert (compared(*rows) is not None) is alike


@pytest.mark.parametrize("ignored", [{"core": "COMMUNICATION"}, {"type": None}, {"duration": 0}])
def test_communication_and_kernels_without_kind_or_duration_do_not_count(ignored: Kernel) -> None:
    rows = [kernels(rank, "hcom", "8,8", 10, **ignored) for rank in (0, 1)]
    assert compared(*rows) is None
    found = compared(*rows, kernels(0, "MatMul", None, 10, core=None), kernels(1, "MatMul", None, 10))
    assert found == KernelSpeed(time_ratio=1, work_ratio=1, same_shapes=False)


def test_without_ranks_there_is_nothing_to_compare() -> None:
    assert compared(ELSEWHERE, here=(), there=(1,)) is None


def program(rank: int, step: int, tokens: int, *, number: int = 1, kind: str = "MatMul") -> list[Kernel]:
    """Kernels on so many tokens, and one whose shape never changes."""
    return [
        *kernels(rank, kind, f"{tokens},64", *[10 * rank + step] * number, step=step),
        *kernels(rank, "Add", "64,64", 5 + rank, step=step),
        *kernels(rank, "hcom_allReduce_", f"{rank}", 7, step=step, core="COMMUNICATION"),
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(0, 1, 100), (1, 1, 100), (0, 2, 90), (1, 2, 90)], False),  # other shapes in another step, the same on all
        ([(0, 1, 100), (1, 1, 90)], True),
        ([(0, 1, 100), (1, 1, 90), (0, 2, 100), (1, 2, 100)], True),  # in half of the steps
        ([(0, 1, 100), (1, 1, 90), (0, 2, 8), (1, 2, 8), (0, 3, 8), (1, 3, 8)], False),
        ([(0, 1, 100), (1, 2, 90)], None),  # no step of two ranks
        ([(0, 1, 64), (1, 1, 64)], None),  # one shape for everything tells nothing: 64,64
    ],
)
def test_work_differs_if_peers_run_other_shapes(rows: list[tuple[int, int, int]], expected: bool | None) -> None:
    made = [kernel for row in rows for kernel in program(*row)]
    assert work_differs(FakeRun(kernels=made), [(0, 1)], "true") is expected


def test_work_differs_if_peers_run_more_kernels_and_is_not_asked_of_others() -> None:
    more = FakeRun(kernels=[*program(0, 1, 100), *program(1, 1, 100, number=2), *program(2, 1, 100)])
    assert work_differs(more, [(0, 1)], "true") is True
    assert work_differs(more, [(0, 2), (1,)], "true") is False
    assert work_differs(more, [(0, 1)], "step = 2") is None
    assert (
        work_differs(FakeRun(kernels=kernels(0, "MatMul", None, 1) + kernels(1, "MatMul", None, 1)), [(0, 1)], "true")
        is None
    )
