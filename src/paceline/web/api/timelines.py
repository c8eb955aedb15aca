"""The timeline: its lanes, what a window of them shows, search, sums, the critical path, and a part of it to take away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, TypeVar

import msgspec
import numpy as np
from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paceline.errors import UsageError
from paceline.web.api.runs import Progress
from paceline.web.columns import Column, encode
from paceline.web.lanes import KINDS, Lanes
from paceline.web.opened import OpenRun
from paceline.web.path import placed_path
from paceline.web.service import BINARY, JSON_OBJECT, PROBLEMS, Opened, RunId, ServiceNow, binary, the_service

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


class Hit(BaseModel):
    lane: int
    rank: int
    name: str
    start: float
    duration: float


class Hits(BaseModel):
    """ns; the longest first."""

    total: int
    time: float
    hits: list[Hit]


class NameSum(BaseModel):
    name: str
    count: int
    time: float


class Sums(BaseModel):
    """By name, ns inside the window, the longest first; `more` names are left out."""

    events: int
    time: float
    names: list[NameSum]
    more: int


@router.post("/runs/{run_id}/timeline/open", status_code=202, responses=PROBLEMS)
async def open_timeline(opened: Opened, service: ServiceNow) -> Progress:
    """Start reading the timeline, if nobody has; ask again for its state."""
    opened.report("en")
    service.runs.open_timeline(opened)
    state = opened.timeline_state
    return Progress(phase=state.phase, done=state.done, total=state.total, message=state.message, hint=state.hint)


@router.get("/runs/{run_id}/timeline", responses=PROBLEMS | BINARY, response_class=Response)
async def timeline_lanes(opened: Opened) -> Response:
    """Every lane: rank, track, row inside the track, events; source 0 = worked out, 1 = as recorded."""
    lanes = opened.lanes
    columns: dict[str, Column] = {
        "rank": lanes.rank, "source": lanes.source, "row": lanes.row, "events": lanes.counts(), "track": lanes.track,
    }  # fmt: skip
    about = {"begin": lanes.begin, "length": lanes.end - lanes.begin, "events": lanes.events, "hidden": lanes.hidden,
             "kinds": KINDS}  # fmt: skip
    return binary(encode(columns, **about))


@router.get("/runs/{run_id}/timeline/slices", responses=PROBLEMS | BINARY, response_class=Response)
async def timeline_slices(
    request: Request,
    opened: Opened,
    begin: Begin,
    end: End,
    lanes: LaneList,
    width: Annotated[int, Query(ge=16, le=4096, description="Pixels.")] = 1200,
) -> Response:
    """What a window shows: lane (place in the list), start, duration, busy (ns), name, kind, count of events merged."""
    return binary(await _work(request, opened, lambda all_lanes: _slices(all_lanes, (begin, end), lanes, width)))


@router.get("/runs/{run_id}/timeline/search", responses=PROBLEMS)
async def timeline_search(
    request: Request,
    opened: Opened,
    q: Annotated[str, Query(min_length=1, max_length=200)],
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Hits:
    """Events whose name contains a text, the longest first."""
    return await _work(request, opened, lambda lanes: _search(lanes, q, limit))


@router.get("/runs/{run_id}/timeline/sums", responses=PROBLEMS)
async def timeline_sums(request: Request, opened: Opened, begin: Begin, end: End, lanes: LaneList) -> Sums:
    """What a selection adds up to, by name."""
    return await _work(request, opened, lambda all_lanes: _sums(all_lanes, (begin, end), lanes))


@router.get("/runs/{run_id}/timeline/path", responses=PROBLEMS | BINARY, response_class=Response)
async def timeline_path(request: Request, opened: Opened) -> Response:
    """The critical path across ranks: rank, start, duration (ns), kind (work, transfer, wait), op, last rank."""
    lanes = opened.lanes
    return binary(
        await the_service(request).work.do(
            request, lambda: opened.remembered(("path",), lambda: placed_path(opened.case, lanes.begin))
        )
    )


@router.get(
    "/runs/{run_id}/timeline/export",
    responses=PROBLEMS | {200: JSON_OBJECT},
    response_class=Response,
)
async def timeline_export(run_id: RunId, opened: Opened, begin: Begin, end: End, lanes: LaneList) -> Response:
    """The visible part as a Chrome trace, which Perfetto opens."""
    chosen = _chosen(opened.lanes, lanes)
    _checked((begin, end))
    windows = [(lane, *opened.lanes.window(lane, begin, end)) for lane in chosen]
    count = sum(high - low for _, low, high in windows)
    if count > MOST_EXPORTED:
        raise UsageError(
            f"{count:,} events are in sight, and {MOST_EXPORTED:,} can be exported at once",
            hint="zoom in, or fold ranks",
        )
    return StreamingResponse(
        _in_pieces(_chrome_trace(opened.lanes, windows)), media_type="application/json",
        headers={"content-disposition": f'attachment; filename="{run_id}-trace.json"'},
    )  # fmt: skip


async def _work(request: Request, opened: OpenRun, work: Callable[[Lanes], Result]) -> Result:
    lanes = opened.lanes
    return await the_service(request).work.do(request, lambda: work(lanes))


def _slices(all_lanes: Lanes, span: tuple[int, int], lanes: str, width: int) -> bytes:
    chosen = _chosen(all_lanes, lanes)
    _checked(span)
    slices = all_lanes.slices(chosen, *span, width)
    used, name = np.unique(slices.name, return_inverse=True)
    columns: dict[str, Column] = {
        "lane": slices.lane, "start": slices.start, "duration": slices.duration, "busy": slices.busy,
        "name": name.astype("<i4"), "kind": slices.kind, "count": slices.count,
    }  # fmt: skip
    return encode(columns, names=[all_lanes.names[code] for code in used.tolist()])


def _search(lanes: Lanes, text: str, limit: int) -> Hits:
    total, time, rows = lanes.search(text, limit)
    places = lanes.lane_of(rows)
    hits = [
        Hit(lane=lane, rank=int(lanes.rank[lane]), name=lanes.names[int(lanes.name[row])], start=float(lanes.start[row]),
            duration=float(lanes.duration[row]))
        for row, lane in zip(rows.tolist(), places.tolist(), strict=True)
    ]  # fmt: skip
    return Hits(total=total, time=time, hits=hits)


def _sums(all_lanes: Lanes, span: tuple[int, int], lanes: str) -> Sums:
    _checked(span)
    found = all_lanes.sums(_chosen(all_lanes, lanes), *span)
    rows = zip(found["name"].tolist(), found["count"].tolist(), found["time"].tolist(), strict=True)
    names = [NameSum(name=all_lanes.names[code], count=count, time=time) for code, count, time in rows]
    return Sums(
        events=int(found["count"].sum()), time=float(found["time"].sum()), names=names[:MOST_SUMS],
        more=max(0, len(names) - MOST_SUMS),
    )  # fmt: skip


def _chosen(all_lanes: Lanes, text: str) -> list[int]:
    """ "0-2,7" → [0, 1, 2, 7]"""
    chosen: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        last = int(high or low)
        if last >= len(all_lanes.rank) or last < int(low):
            raise UsageError(f"lanes {part}: there are {len(all_lanes.rank)} lanes, from 0")
        if len(chosen) + last - int(low) >= MOST_LANES:
            raise UsageError(f"more than {MOST_LANES} lanes at once")
        chosen += range(int(low), last + 1)
    return chosen


def _checked(span: tuple[int, int]) -> None:
    if span[0] >= span[1]:
        raise UsageError(f"the window from {span[0]} to {span[1]} ns is empty")


def _in_pieces(texts: Iterator[str]) -> Iterator[str]:
    """Each piece is a trip through a thread: few large ones."""
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
        told: list[dict[str, object]] = [
            {"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}},
            {"ph": "M", "pid": rank, "tid": lane, "name": "thread_name", "args": {"name": lanes.track[lane] + row}},
        ]
        # Whole columns at once, and lines put together from texts: an export may have a million events.
        head = f'{{"ph":"X","pid":{rank},"tid":{lane},"name":'
        rows = zip(
            lanes.name[low:high].tolist(), lanes.kind[low:high].tolist(), (lanes.start[low:high] / 1e3).tolist(),
            (lanes.duration[low:high] / 1e3).tolist(), strict=True,
        )  # fmt: skip
        lines = [msgspec.json.encode(each).decode() for each in told]
        lines += [
            f'{head}{texts(name)},"cat":"{KINDS[kind]}","ts":{start!r},"dur":{duration!r}}}'
            for name, kind, start, duration in rows
        ]
        yield ("" if first else ",\n") + ",\n".join(lines)
        first = False
    yield "\n]}\n"
