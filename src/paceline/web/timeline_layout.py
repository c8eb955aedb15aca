"""Layout of the timeline in lanes without overlaps, and any window of it at the detail a screen can show.

A lane is one row of one track of one rank. Its events are sorted by start and do not overlap, so a window is found by
bisection, and the events that share a pixel are summed from running totals: the work depends on the pixels asked for, not
on the millions of events. Arrays lie in files (memory-mapped); only the pages in use are in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.run.run import Run
from paceline.web.problems import ServerError

MOST_EVENTS = 1 << 25
MOST_ROWS = 32
"""Events nested deeper than this are not drawn."""
SUMMARY, RECORDED = 0, 1
"""Sources of tracks: derived from tables (steps, computing, communication), or as recorded."""
KINDS = ("step", "compute", "communication", "host", "other", "free")

Ints = NDArray[np.int64]

_INDEX_BITS = 25
_LONGEST = 1 << 38

_EVENTS = """
    WITH
    summary AS (
        SELECT rank, 0 AS source, 0 AS place, 'steps' AS track, 'step ' || step AS name, 0 AS kind, start,
               "end" - start AS duration
        FROM steps WHERE start IS NOT NULL AND "end" > start AND step IS NOT NULL
        UNION ALL
        SELECT rank, 0, 1, 'computing', name, 1, start, duration
        FROM kernels WHERE start IS NOT NULL AND core IS DISTINCT FROM 'COMMUNICATION'
        UNION ALL
        SELECT rank, 0, 2, 'communication', coalesce(name, op), 2, start, duration
        FROM collectives WHERE start IS NOT NULL
    ),
    recorded AS (
        SELECT rank, 1 AS source, 3 AS place, coalesce(track, '') AS track, name, CASE
            WHEN name ILIKE 'free%' AND track ILIKE '%overlap%' THEN 5
            WHEN name ILIKE 'hcom%' OR name ILIKE '%nccl%' OR name ILIKE 'communication%' OR track ILIKE '%hccl%'
                 OR track ILIKE '%communication%' OR name ILIKE 'gloo:%' OR name ILIKE 'c10d:%' THEN 2
            WHEN name LIKE 'ProfilerStep%' THEN 0
            WHEN track ILIKE '%hardware%' OR track ILIKE '%stream%' OR category IN ('kernel', 'gpu_memcpy', 'gpu_memset')
                 OR track ILIKE '%overlap%' THEN 1
            WHEN track ILIKE 'cann%' OR track ILIKE 'python%' OR track ILIKE '%thread%' OR category LIKE 'cpu%'
                 OR category LIKE 'cuda%' OR category = 'python_function' OR category = 'user_annotation' THEN 3
            ELSE 4 END AS kind, start, duration
        FROM events WHERE start IS NOT NULL
    )
    SELECT rank, source, place, track, name, kind::UTINYINT AS kind, start::BIGINT AS start,
           greatest(duration, 0)::BIGINT AS duration
    FROM (FROM summary UNION ALL FROM recorded) WHERE rank IS NOT NULL AND duration IS NOT NULL
"""


@dataclass(frozen=True)
class Slices:
    """What one window shows: `lane` are places in the list asked for; `count` > 1 are events that share a pixel."""

    lane: NDArray[np.int32]
    start: NDArray[np.float64]
    """ns since the beginning of the timeline."""
    duration: NDArray[np.float64]
    busy: NDArray[np.float64]
    """ns of it that are events: less than the duration where gaps were merged too."""
    name: NDArray[np.int32]
    kind: NDArray[np.uint8]
    count: NDArray[np.int32]


@dataclass(frozen=True)
class Lanes:
    """All events by lane: rows `offset[i]` to `offset[i + 1]` are lane i."""

    begin: int
    """ns on the cluster clock that all starts count from."""
    end: int
    names: list[str]
    offset: Ints
    rank: Ints
    source: Ints
    row: Ints
    track: list[str]
    start: Ints
    duration: Ints
    name: NDArray[np.int32]
    kind: NDArray[np.uint8]
    total: Ints
    """Running sum of durations, one longer than the events."""
    longest: Ints
    """duration and place in one number: the maximum over a range tells the longest event and where it is."""
    hidden: int
    """Events left out because they are nested too deep."""

    @property
    def events(self) -> int:
        return len(self.start)

    def counts(self) -> Ints:
        counted: Ints = np.diff(self.offset)
        return counted

    def window(self, lane: int, begin: int, end: int) -> tuple[int, int]:
        """Rows of a lane that touch [begin, end)."""
        first, last = int(self.offset[lane]), int(self.offset[lane + 1])
        starts = self.start[first:last]
        low = int(np.searchsorted(starts, begin, "right"))
        if low and starts[low - 1] + self.duration[first + low - 1] > begin:
            low -= 1
        return first + low, first + int(np.searchsorted(starts, end, "left"))

    def slices(self, lanes: list[int], begin: int, end: int, width: int) -> Slices:
        """What `width` pixels of these lanes show between two times."""
        edges = begin + (np.arange(1, width) * ((end - begin) / width)).astype(np.int64)
        parts = [self._lane(place, lane, edges, (begin, end)) for place, lane in enumerate(lanes)]
        first = np.concatenate([first for _, first, _ in parts] or [np.zeros(0, np.int64)])
        last = np.concatenate([last for _, _, last in parts] or [np.zeros(0, np.int64)])
        place = np.concatenate([np.full(len(some), at, np.int32) for at, some, _ in parts] or [np.zeros(0, np.int32)])
        if not len(first):
            nothing = np.zeros(0)
            return Slices(place, nothing, nothing, nothing, place, place.astype(np.uint8), place)
        # The longest event of a range, with one reduction for all ranges.
        pairs = np.empty(2 * len(first), dtype=np.int64)
        pairs[0::2], pairs[1::2] = first, last
        # The last range ends where the array does.
        end = int(pairs.max())
        main = np.maximum.reduceat(self.longest[:end], np.minimum(pairs, end - 1))[0::2] & ((1 << _INDEX_BITS) - 1)
        start = self.start[first]
        return Slices(
            lane=place,
            start=start.astype(np.float64),
            duration=(self.start[last - 1] + self.duration[last - 1] - start).astype(np.float64),
            busy=(self.total[last] - self.total[first]).astype(np.float64),
            name=self.name[main],
            kind=self.kind[main],
            count=(last - first).astype(np.int32),
        )

    def _lane(self, place: int, lane: int, edges: Ints, span: tuple[int, int]) -> tuple[int, Ints, Ints]:
        """Ranges of rows that share a pixel: (place, first rows, rows after the last)."""
        low, high = self.window(lane, *span)
        if high - low <= len(edges) // 4:
            rows = np.arange(low, high, dtype=np.int64)
            return place, rows, rows + 1
        bounds = np.empty(len(edges) + 2, dtype=np.int64)
        bounds[0], bounds[-1] = low, high
        bounds[1:-1] = low + self.start[low:high].searchsorted(edges, "left")
        filled = bounds[1:] > bounds[:-1]
        return place, bounds[:-1][filled], bounds[1:][filled]

    def sums(self, lanes: list[int], begin: int, end: int) -> dict[str, NDArray[Any]]:
        """By name: how many events touch the window, and ns of them inside it; the longest first."""
        windows = [self.window(lane, begin, end) for lane in lanes]
        rows = np.concatenate([np.arange(low, high) for low, high in windows] or [np.zeros(0, np.int64)])
        start, name = self.start[rows], self.name[rows]
        inside = np.minimum(start + self.duration[rows], end) - np.maximum(start, begin)
        count = np.bincount(name, minlength=len(self.names))
        time = np.bincount(name, weights=np.maximum(inside, 0), minlength=len(self.names))
        order = np.argsort(-time, kind="stable")
        order = order[count[order] > 0]
        return {"name": order, "count": count[order], "time": time[order]}

    def search(self, text: str, most: int) -> tuple[int, float, Ints]:
        """Events whose name contains a text: how many, ns of them, and the rows of the longest."""
        wanted = text.lower()
        hits = np.array([wanted in name.lower() for name in self.names], dtype=bool)
        rows = np.flatnonzero(hits[self.name]) if hits.any() else np.zeros(0, dtype=np.int64)
        rows = self._once(rows)
        duration = self.duration[rows]
        order = np.argsort(-duration, kind="stable")[:most]
        return len(rows), float(duration.sum()), rows[order]

    def _once(self, rows: Ints) -> Ints:
        """Without the recorded copies of kernels and collectives that the summary shows too."""
        summary = self.source[self.lane_of(rows)] == SUMMARY
        shown = np.zeros(len(self.names), dtype=bool)
        shown[self.name[rows[summary]]] = True
        kept: Ints = rows[summary | ~shown[self.name[rows]]]
        return kept

    def lane_of(self, rows: Ints) -> Ints:
        found: Ints = np.searchsorted(self.offset, rows, "right") - 1
        return found


def build_lanes(run: Run, scratch: Path) -> Lanes:
    """Lay out everything with a time: steps, kernels and collectives of all ranks, and the recorded tracks."""
    run.load(["steps", "kernels", "collectives", "events"])
    counted = run.sql(f"SELECT count(*) FROM ({_EVENTS})").fetchall()[0][0]
    if counted > MOST_EVENTS:
        raise ServerError("too_many_events", count=f"{counted:,}", most=f"{MOST_EVENTS:,}")
    columns = run.sql(f"{_EVENTS} ORDER BY rank, place, track, start, duration DESC").fetchnumpy()
    start = np.asarray(columns["start"], dtype=np.int64)
    duration = np.asarray(columns["duration"], dtype=np.int64)
    if not len(start):
        raise ServerError("no_timeline")
    begin = int(start.min())
    tracks, track = _tracks(columns)
    row = _rows(start - begin, duration, track)
    names, name = _coded(columns["name"])
    order = np.lexsort((start, row, track))
    order = order[row[order] < MOST_ROWS]
    lane_key = track[order] * MOST_ROWS + row[order]
    firsts = np.flatnonzero(np.concatenate([[True], lane_key[1:] != lane_key[:-1]]))
    head = order[firsts]
    length = duration[order]
    return Lanes(
        begin=begin,
        end=int((start + duration).max()),
        names=names,
        offset=np.append(firsts, len(order)).astype(np.int64),
        rank=np.asarray(columns["rank"], dtype=np.int64)[head],
        source=np.asarray(columns["source"], dtype=np.int64)[head],
        row=row[head],
        track=[tracks[place] for place in track[head].tolist()],
        start=_mapped(scratch, "start", start[order] - begin),
        duration=_mapped(scratch, "duration", length),
        name=_mapped(scratch, "name", name[order]),
        kind=_mapped(scratch, "kind", np.asarray(columns["kind"], dtype=np.uint8)[order]),
        total=_mapped(scratch, "total", np.concatenate([[0], np.cumsum(length)])),
        longest=_mapped(
            scratch,
            "longest",
            (np.minimum(length, _LONGEST - 1) << _INDEX_BITS) | np.arange(len(order), dtype=np.int64),
        ),
        hidden=len(start) - len(order),
    )


def _tracks(columns: dict[str, NDArray[Any]]) -> tuple[list[str], Ints]:
    """Names of tracks, and the track of each event; events come sorted by rank, place and track."""
    names, track = _coded(columns["track"])
    rank, place = np.asarray(columns["rank"], dtype=np.int64), np.asarray(columns["place"], dtype=np.int64)
    new = (rank[1:] != rank[:-1]) | (place[1:] != place[:-1]) | (track[1:] != track[:-1])
    number = np.concatenate([[0], np.cumsum(new)]).astype(np.int64)
    firsts = np.flatnonzero(np.concatenate([[True], new]))
    return [names[code] for code in track[firsts].tolist()], number


def _coded(values: NDArray[Any]) -> tuple[list[str], NDArray[np.int32]]:
    places: dict[str, int] = {}
    texts = ("" if value is None or value is np.ma.masked else str(value) for value in np.ma.asarray(values).tolist())
    codes = np.fromiter((places.setdefault(text, len(places)) for text in texts), dtype=np.int32, count=len(values))
    return list(places), codes


def _rows(start: Ints, duration: Ints, track: Ints) -> Ints:
    """The row of each event inside its track: how many events it lies inside.

    An event that starts after everything before it has ended is in row 0; without these the same holds for row 1, and
    so on. Running maxima of all tracks are taken at once: tracks lie behind each other, a timeline's length apart.
    """
    row = np.full(len(start), MOST_ROWS, dtype=np.int64)
    length = int((start + duration).max()) + 1
    begin = start + track * length
    end = begin + duration
    left = np.arange(len(start))
    for level in range(MOST_ROWS):
        if not len(left):
            break
        before = np.maximum.accumulate(end[left])
        free = np.concatenate([[True], begin[left][1:] >= before[:-1]])
        row[left[free]] = level
        left = left[~free]
    return row


def _mapped(scratch: Path, name: str, values: NDArray[Any]) -> Any:
    """The array in a memory-mapped scratch file."""
    file = scratch / f"lanes-{name}.npy"
    np.save(file, values)
    return np.load(file, mmap_mode="r")
