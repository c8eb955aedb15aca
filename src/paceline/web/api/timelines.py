"""Endpoints of the timeline: lanes, slices of a window, search, sums, the critical path, and a Chrome trace export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, TypeVar

import msgspec
import numpy as np
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paceline.web.api.runs import Progress
from paceline.web.binary_columns import BinaryColumn, encode
from paceline.web.critical_path import critical_path_columns
from paceline.web.problems import BadRequestError
from paceline.web.run_cache import CachedRun
from paceline.web.service import (
    BINARY,
    JSON_OBJECT,
    PROBLEMS,
    Answer,
    RunDependency,
    RunId,
    ServiceDependency,
    binary,
    get_service,
)
from paceline.web.timeline_layout import KINDS, Lanes

router = APIRouter(tags=["timeline"])

MOST_LANES = 1200
MOST_EXPORTED = 300_000
MOST_SUMS = 200
_PIECE = 1 << 20

Result = TypeVar("Result")

Begin = Annotated[int, Query(ge=0, le=2**60, description="ns since the beginning of the timeline.")]
End = Annotated[int, Query(ge=1, le=2**60, description="ns since the beginning of the timeline.")]
LaneList = Annotated[
    str,
    Query(max_length=6000, pattern=r"^\d{1,7}(-\d{1,7})?(,\d{1,7}(-\d{1,7})?)*$", description='Lanes, e.g. "0-9,12".'),
]


class Hit(Answer):
    lane: int
    rank: int
    name: str
    start: float
    duration: float


class Hits(Answer):
    """ns; the longest first."""

    total: int
    time: float
    hits: list[Hit]


class NameSum(Answer):
    name: str
    count: int
    time: float


class Sums(Answer):
    """By name, ns inside the window, the longest first; `more` names are left out."""

    events: int
    time: float
    names: list[NameSum]
    more: int


@router.post("/runs/{run_id}/timeline/open", status_code=202, responses=PROBLEMS)
async def open_timeline(run: RunDependency, service: ServiceDependency) -> Progress:
    """Start reading the timeline unless it is read; call again for its state."""
    run.report("en")
    service.runs.open_timeline(run)
    state = run.timeline_state
    return Progress(phase=state.phase, done=state.done, total=state.total, message=state.message, hint=state.hint)


@router.get("/runs/{run_id}/timeline", responses=PROBLEMS | BINARY, response_class=Response)
async def timeline_lanes(run: RunDependency) -> Response:
    """Every lane: rank, track, row inside the track, events; source 0 = derived from tables, 1 = as recorded."""
    lanes = run.lanes
    columns: dict[str, BinaryColumn] = {
        "rank": lanes.rank,
        "source": lanes.source,
        "row": lanes.row,
        "events": lanes.counts(),
        "track": lanes.track,
    }
    about = {
        "begin": lanes.begin,
        "length": lanes.end - lanes.begin,
        "events": lanes.events,
        "hidden": lanes.hidden,
        "kinds": KINDS,
    }
    return binary(encode(columns, **about))


@router.get("/runs/{run_id}/timeline/slices", responses=PROBLEMS | BINARY, response_class=Response)
async def timeline_slices(
    request: Request,
    run: RunDependency,
    begin: Begin,
    end: End,
    lanes: LaneList,
    width: Annotated[int, Query(ge=16, le=4096, description="Pixels.")] = 1200,
) -> Response:
    """What a window shows: lane (place in the list), start, duration, busy (ns), name, kind, count of events merged."""
    return binary(await _with_lanes(request, run, lambda all_lanes: _slices(all_lanes, (begin, end), lanes, width)))


@router.get("/runs/{run_id}/timeline/search", responses=PROBLEMS)
async def timeline_search(
    request: Request,
    run: RunDependency,
    q: Annotated[str, Query(min_length=1, max_length=200)],
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Hits:
    """Events whose name contains a text, the longest first."""
    return await _with_lanes(request, run, lambda lanes: _search(lanes, q, limit))


@router.get("/runs/{run_id}/timeline/sums", responses=PROBLEMS)
async def timeline_sums(request: Request, run: RunDependency, begin: Begin, end: End, lanes: LaneList) -> Sums:
    """The events of a selection summed by name."""
    return await _with_lanes(request, run, lambda all_lanes: _sums(all_lanes, (begin, end), lanes))


@router.get("/runs/{run_id}/timeline/path", responses=PROBLEMS | BINARY, response_class=Response)
async def timeline_path(request: Request, run: RunDependency) -> Response:
    """The critical path across ranks: rank, start, duration (ns), kind (work, transfer, wait), op, last rank."""
    lanes = run.lanes
    return binary(
        await get_service(request).limiter.run(
            request, lambda: run.cached_result(("path",), lambda: critical_path_columns(run.context, lanes.begin))
        )
    )


@router.get(
    "/runs/{run_id}/timeline/export",
    responses=PROBLEMS | {200: JSON_OBJECT},
    response_class=Response,
)
async def timeline_export(run_id: RunId, run: RunDependency, begin: Begin, end: End, lanes: LaneList) -> Response:
    """The visible part as a Chrome trace, which Perfetto opens."""
    chosen = _parse_lanes(run.lanes, lanes)
    _check_window((begin, end))
    windows = [(lane, *run.lanes.window(lane, begin, end)) for lane in chosen]
    count = sum(high - low for _, low, high in windows)
    if count > MOST_EXPORTED:
        raise BadRequestError("too_many_events_to_export", count=f"{count:,}", most=f"{MOST_EXPORTED:,}")
    return StreamingResponse(
        _in_pieces(_chrome_trace(run.lanes, windows)),
        media_type="application/json",
        headers={"content-disposition": f'attachment; filename="{run_id}-trace.json"'},
    )


async def _with_lanes(request: Request, run: CachedRun, work: Callable[[Lanes], Result]) -> Result:
    lanes = run.lanes
    return await get_service(request).limiter.run(request, lambda: work(lanes))


def _slices(all_lanes: Lanes, span: tuple[int, int], lanes: str, width: int) -> bytes:
    chosen = _parse_lanes(all_lanes, lanes)
    _check_window(span)
    slices = all_lanes.slices(chosen, *span, width)
    used, name = np.unique(slices.name, return_inverse=True)
    columns: dict[str, BinaryColumn] = {
        "lane": slices.lane,
        "start": slices.start,
        "duration": slices.duration,
        "busy": slices.busy,
        "name": name.astype("<i4"),
        "kind": slices.kind,
        "count": slices.count,
    }
    return encode(columns, names=[all_lanes.names[code] for code in used.tolist()])


def _search(lanes: Lanes, text: str, limit: int) -> Hits:
    total, time, rows = lanes.search(text, limit)
    places = lanes.lane_of(rows)
    hits = [
        Hit(
            lane=lane,
            rank=int(lanes.rank[lane]),
            name=lanes.names[int(lanes.name[row])],
            start=float(lanes.start[row]),
            duration=float(lanes.duration[row]),
        )
        for row, lane in zip(rows.tolist(), places.tolist(), strict=True)
    ]
    return Hits(total=total, time=time, hits=hits)


def _sums(all_lanes: Lanes, span: tuple[int, int], lanes: str) -> Sums:
    _check_window(span)
    found = all_lanes.sums(_parse_lanes(all_lanes, lanes), *span)
    rows = zip(found["name"].tolist(), found["count"].tolist(), found["time"].tolist(), strict=True)
    names = [NameSum(name=all_lanes.names[code], count=count, time=time) for code, count, time in rows]
    return Sums(
        events=int(found["count"].sum()),
        time=float(found["time"].sum()),
        names=names[:MOST_SUMS],
        more=max(0, len(names) - MOST_SUMS),
    )


def _parse_lanes(all_lanes: Lanes, text: str) -> list[int]:
    """ "0-2,7" → [0, 1, 2, 7]"""
    chosen: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        last = int(high or low)
        if last >= len(all_lanes.rank) or last < int(low):
            raise BadRequestError("unknown_lanes", lanes=part, count=len(all_lanes.rank))
        if len(chosen) + last - int(low) >= MOST_LANES:
            raise BadRequestError("too_many_lanes", most=MOST_LANES)
        chosen += range(int(low), last + 1)
    return chosen


def _check_window(span: tuple[int, int]) -> None:
    if span[0] >= span[1]:
        raise BadRequestError("empty_window", begin=span[0], end=span[1])


def _in_pieces(texts: Iterator[str]) -> Iterator[str]:
    """Each piece costs a switch to a thread: few large pieces are faster."""
    held: list[str] = []
    size = 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= _PIECE:
            yield "".join(held)
            held, size = [], 0
    yield "".join(held)


def _chrome_trace(lanes: Lanes, windows: list[tuple[int, int, int]]) -> Iterator[str]:
    """pid = rank, tid = lane; times in µs from the beginning of the timeline."""
    yield '{"displayTimeUnit":"ns","traceEvents":[\n'
    first = True

    @cache
    def texts(name: int) -> str:
        return msgspec.json.encode(lanes.names[name]).decode()

    for lane, low, high in windows:
        rank = int(lanes.rank[lane])
        row = f" ({int(lanes.row[lane])})" if lanes.row[lane] else ""
        metadata: list[dict[str, object]] = [
            {"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}},
            {"ph": "M", "pid": rank, "tid": lane, "name": "thread_name", "args": {"name": lanes.track[lane] + row}},
        ]
        # Columns at once, lines joined from strings: an export may have many thousand events.
        head = f'{{"ph":"X","pid":{rank},"tid":{lane},"name":'
        rows = zip(
            lanes.name[low:high].tolist(),
            lanes.kind[low:high].tolist(),
            (lanes.start[low:high] / 1e3).tolist(),
            (lanes.duration[low:high] / 1e3).tolist(),
            strict=True,
        )
        lines = [msgspec.json.encode(each).decode() for each in metadata]
        lines += [
            f'{head}{texts(name)},"cat":"{KINDS[kind]}","ts":{start!r},"dur":{duration!r}}}'
            for name, kind, start, duration in rows
        ]
        yield ("" if first else ",\n") + ",\n".join(lines)
        first = False
    yield "\n]}\n"
