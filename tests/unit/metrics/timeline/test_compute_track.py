"""Computing along a rank, kernel by kernel, on a few kernels."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.metrics.timeline.compute_track import ROUNDED_NS, ComputeTrack, compute_track, compute_tracks
from support.fake_run import FakeRun

US = 1_000


def track(*spans: tuple[int, int]) -> ComputeTrack:
    start, end = (np.array(times, dtype=np.int64) * US for times in zip(*spans, strict=True))
    return compute_track(start, end)


KERNELS = track((10, 30), (40, 60), (50, 80))
"""Two of them overlap."""


@pytest.mark.parametrize(
    ("begin", "end", "covered"),
    [(0, 10, 0), (0, 100, 60), (10, 30, 20), (20, 45, 15), (30, 40, 0), (55, 70, 15), (80, 90, 0)],
)
def test_computing_in_an_interval(begin: int, end: int, covered: int) -> None:
    found = KERNELS.covered(np.array([begin * US]), np.array([end * US]))
    assert found.tolist() == [covered * US]


@pytest.mark.parametrize(("at", "kernels"), [(0, 0), (27, 0), (28, 1), (30, 1), (59, 2), (200, 3)])
def test_progress_is_how_many_kernels_had_ended(at: int, kernels: int) -> None:
    assert ROUNDED_NS == 2 * US
    assert KERNELS.progress(np.array([at * US])).tolist() == [kernels]


@pytest.mark.parametrize(("progress", "at"), [(0, 30), (1, 30), (2, 60), (3, 80), (9, 80)])
def test_when_so_many_kernels_had_ended(progress: int, at: int) -> None:
    assert KERNELS.reached(np.array([progress])).tolist() == [at * US]


def test_kernels_are_those_that_compute() -> None:
    rows = [
        {"rank": 4, "start": 40, "duration": 10, "core": "AI_CORE"},
        {"rank": 4, "start": 10, "duration": 20, "core": None},
        {"rank": 4, "start": 0, "duration": 99, "core": "COMMUNICATION"},
        {"rank": 4, "start": None, "duration": 5, "core": "GPU"},
        {"rank": 7, "start": 1, "duration": 1, "core": "COMMUNICATION"},
        {"rank": 9, "start": 5, "duration": 7, "core": "GPU"},
    ]
    found = compute_tracks(FakeRun(kernels=rows), np.array([4, 7, 9]))
    assert sorted(found) == [0, 2]
    assert found[0].ends.tolist() == [30, 50] and found[0].edges.tolist() == [10, 30, 40, 50]
    assert found[0].busy.tolist() == [0, 20, 20, 30] and found[2].ends.tolist() == [12]
