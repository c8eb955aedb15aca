"""How a step was spent, from when the device worked."""

from __future__ import annotations

import numpy as np

from paceline.formats.step_split import NO_SPANS, DeviceWork, Spans, split_step


def spans(*pairs: tuple[int, int]) -> Spans:
    return np.array(pairs, dtype=np.int64).T


def test_the_parts_of_a_step_are_those_of_the_profiler() -> None:
    work = DeviceWork(computing=spans((10, 30), (50, 60)), communication=spans((25, 45)))
    split = split_step(work, work.both, 0, 100)
    assert split == {
        "computing": 30,
        "communication": 20,
        "exposed": 15,
        "overlapped": 5,
        "free": 5,
        "preparing": 10,
    }


def test_a_step_without_device_work_has_no_parts() -> None:
    work = DeviceWork(computing=spans((10, 30)), communication=NO_SPANS)
    assert split_step(work, work.both, 40, 100) == {}
