"""Lanes never overlap, and a window adds up to what it holds at any detail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from paceline.run.run import Run
from paceline.web.binary_columns import encode
from paceline.web.timeline_layout import SUMMARY, Lanes, _rows, build_lanes


@pytest.fixture(scope="module")
def lanes(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lanes]:
    root = tmp_path_factory.mktemp("lanes")
    with Run(base / "llama-16", store=root / "store") as run:
        yield build_lanes(run, root)


def test_nested_events_get_rows_of_their_own() -> None:
    #            outer      inner     innermost  next       other track
    start = np.array([0, 10, 12, 100, 0])
    duration = np.array([50, 20, 5, 10, 500])
    track = np.array([0, 0, 0, 0, 1])
    assert _rows(start, duration, track).tolist() == [0, 1, 2, 0, 0]


def test_events_of_a_lane_do_not_overlap(lanes: Lanes) -> None:
    for lane in range(len(lanes.rank)):
        first, last = lanes.offset[lane], lanes.offset[lane + 1]
        ends = lanes.start[first:last] + lanes.duration[first:last]
        assert (lanes.start[first + 1 : last] >= ends[:-1]).all(), lanes.track[lane]


@pytest.mark.parametrize("width", [16, 300, 4096])
def test_a_window_adds_up_at_any_detail(lanes: Lanes, width: int) -> None:
    chosen = list(range(len(lanes.rank)))
    slices = lanes.slices(chosen, 0, lanes.end - lanes.begin, width)
    assert slices.count.sum() == lanes.events
    assert slices.busy.sum() == lanes.duration.sum()
    counts = np.bincount(slices.lane, weights=slices.count, minlength=len(chosen))
    assert counts.tolist() == lanes.counts().tolist()
    assert np.bincount(slices.lane).max() <= max(width, 1) * 1.01 + width // 4


def test_what_shares_a_pixel_is_named_after_its_longest_event(lanes: Lanes) -> None:
    lane = int(np.argmax(lanes.counts()))
    slices = lanes.slices([lane], 0, lanes.end - lanes.begin, 16)
    first = lanes.offset[lane]
    count = int(slices.count[0])
    longest = first + int(np.argmax(lanes.duration[first : first + count]))
    assert lanes.duration[longest] == lanes.duration[first : first + count].max()
    assert (
        lanes.duration[first : first + count][lanes.name[first : first + count] == slices.name[0]].max()
        == lanes.duration[longest]
    )


def test_a_window_in_the_middle_holds_what_touches_it(lanes: Lanes) -> None:
    lane = int(np.argmax(lanes.counts()))
    first, last = int(lanes.offset[lane]), int(lanes.offset[lane + 1])
    begin, end = int(lanes.start[(first + last) // 2]) + 1, int(lanes.start[(first + last) // 2 + 5])
    touching = [
        row for row in range(first, last) if lanes.start[row] < end and lanes.start[row] + lanes.duration[row] > begin
    ]
    assert list(range(*lanes.window(lane, begin, end))) == touching


def test_sums_count_only_what_is_inside(lanes: Lanes) -> None:
    lane = next(i for i in range(len(lanes.rank)) if lanes.track[i] == "steps")
    length = int(lanes.duration[lanes.offset[lane]])
    begin = int(lanes.start[lanes.offset[lane]])
    found = lanes.sums([lane], begin + length // 4, begin + length // 2)
    assert [lanes.names[name] for name in found["name"]] == ["step 1"]
    assert found["time"][0] == length // 2 - length // 4


def test_kernels_that_are_shown_twice_are_found_once(lanes: Lanes) -> None:
    total, _, rows = lanes.search("matmul", 500)
    assert (lanes.source[lanes.lane_of(rows)] == SUMMARY).all()
    everywhere = sum("matmul" in lanes.names[name].lower() for name in lanes.name)
    assert 0 < total < everywhere


def test_columns_are_aligned_and_keep_their_numbers() -> None:
    data = encode({"a": np.array([1.5, 2.5], dtype="<f8"), "b": ["x", None], "c": np.array([7, 70_000])}, more=3)
    length = int.from_bytes(data[4:8], "little")
    import json

    header = json.loads(data[8 : 8 + length])
    start = -(-(8 + length) // 8) * 8
    assert header["rows"] == 2 and header["more"] == 3
    at = {column["name"]: column for column in header["columns"]}
    assert np.frombuffer(data, "<f8", 2, start + at["a"]["at"]).tolist() == [1.5, 2.5]
    assert np.frombuffer(data, "<i4", 2, start + at["c"]["at"]).tolist() == [7, 70_000]
    assert [at["b"]["texts"][code] for code in np.frombuffer(data, "u1", 2, start + at["b"]["at"])] == ["x", None]
    assert all((start + column["at"]) % 8 == 0 for column in header["columns"])
