"""Render the view of a running job for people and programs: a table, one line, or JSON ("paceline.watch/1")."""

from __future__ import annotations

import math

import msgspec
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from paceline.watch.ranks import Event
from paceline.watch.straggler import JobView, RankView

SCHEMA = "paceline.watch/1"


class WatchedStep(msgspec.Struct, frozen=True):
    """Step time in ms: over the window, and of the last step."""

    median: float | None
    last: float | None


class WatchedRank(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over the window, ms."""

    rank: int
    host: str
    step: int
    """The last one it finished."""
    step_ms: float | None
    self_time_ms: float | None
    """Self time: step time without waiting in collectives."""
    reference_ms: float | None
    """Reference: self time of its healthy peers."""
    data_ms: float | None
    """Waiting for input."""
    excess: float | None
    """Self time / reference - 1."""
    chronic: bool
    """Persistently slow."""
    silent_s: float | None
    """Seconds since its last write if that is too long, else 0."""


class WatchDocument(msgspec.Struct, frozen=True, kw_only=True, tag=SCHEMA, tag_field="schema"):
    """A running job: one line of `paceline watch --json`."""

    job: str
    world_size: int
    step: int
    step_ms: WatchedStep
    trend: float | None
    """Newer half of the known steps compared with the older half: 0.02 is 2 % longer."""
    window: int
    """Steps that are compared."""
    threshold: float | None
    """Excess from which a rank is slow, given the noise of this job."""
    missing_ranks: tuple[int, ...]
    finished: bool
    alerts: tuple[int, ...]
    """Ranks that are persistently slow."""
    notices: tuple[str, ...]
    ranks: tuple[WatchedRank, ...]
    """Slowest first."""


_REPORTED_EVENTS = ("stall", "exception", "sigterm", "lost")
_MAX_LISTED = 8


def headline(view: JobView) -> str:
    """step 412 · 51.3 ms per step, 2 % longer than before · slowest rank 2 (vm): self time 30.4 ms, peers 18.8 ms, +61 %."""
    text = f"step {view.step} · {view.step_ms:.1f} ms per step"
    if abs(view.trend) >= 0.01:
        text += f", {abs(view.trend) * 100:.0f} % {'longer' if view.trend > 0 else 'shorter'} than before"
    slowest = view.ranks[0]
    if len(view.ranks) > 1 and not math.isnan(slowest.excess):
        noise = "" if slowest.is_persistent else ", within noise"
        text += f" · slowest {rank_name(slowest)}: {_compared(slowest)}{noise}"
    return text


def notices(view: JobView) -> list[str]:
    """Problems other than slow ranks: ranks that are missing, silent, or ended with an error."""
    lines = []
    if view.missing:
        lines.append(f"no recording yet of {_rank_list(view.missing)} (of {view.world_size})")
    silent = sorted((rank for rank in view.ranks if rank.silent_s), key=lambda rank: (rank.step, -rank.silent_s))
    if silent and len(silent) == len(view.ranks):
        behind = tuple(rank.rank for rank in silent if rank.step == silent[0].step)
        least = f"; {_rank_list(behind)} stopped first (step {silent[0].step})" if len(behind) < len(silent) else ""
        lines.append(f"no rank has written for {min(rank.silent_s for rank in silent):.0f} s{least}")
    elif silent:
        lines += [
            f"{rank_name(rank)} stopped writing {rank.silent_s:.0f} s ago, after step {rank.step}" for rank in silent
        ]
    for rank in sorted(view.ranks, key=lambda rank: rank.rank):
        events = (event for event in rank.events if event.kind in _REPORTED_EVENTS)
        lines += [f"{rank_name(rank)}: {_event_text(event)}" for event in events]
    return lines


def alert(rank: RankView) -> str:
    return f"{rank_name(rank)} is persistently slow: {_compared(rank)}"


def as_table(view: JobView, *, top: int) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rank", "step", "step ms", "self ms", "reference ms", "data ms", "excess"):
        table.add_column(name, justify="right")
    table.add_column("host")
    for rank in view.ranks[:top]:
        table.add_row(
            str(rank.rank),
            str(rank.step),
            _ms(rank.step_ms),
            _ms(rank.self_ms),
            _ms(rank.reference_ms),
            _ms(rank.data_ms),
            _percent(rank.excess),
            escape(rank.host),
            style="bold red" if rank.is_persistent else "dim" if rank.silent_s else "",
        )
    rest = len(view.ranks) - top
    lines = [Text(headline(view), style="bold"), Text(_title(view), style="dim"), Text("")]
    more = [Text(f"… and {rest} faster ranks", style="dim")] if rest > 0 else []
    return Group(*lines, table, *more, Text(""), *(Text(f"! {notice}", style="yellow") for notice in notices(view)))


def watch_document(view: JobView) -> WatchDocument:
    return WatchDocument(
        job=view.job,
        world_size=view.world_size,
        step=view.step,
        step_ms=WatchedStep(_number(view.step_ms), _number(view.last_ms)),
        trend=_number(view.trend),
        window=view.window,
        threshold=_number(view.threshold),
        missing_ranks=view.missing,
        finished=view.finished,
        alerts=tuple(rank.rank for rank in view.alerts),
        notices=tuple(notices(view)),
        ranks=tuple(_watched_rank(rank) for rank in view.ranks),
    )


def _watched_rank(rank: RankView) -> WatchedRank:
    return WatchedRank(
        rank=rank.rank,
        host=rank.host,
        step=rank.step,
        step_ms=_number(rank.step_ms),
        self_time_ms=_number(rank.self_ms),
        reference_ms=_number(rank.reference_ms),
        data_ms=_number(rank.data_ms),
        excess=_number(rank.excess),
        chronic=rank.is_persistent,
        silent_s=_number(rank.silent_s),
    )


def rank_name(rank: RankView) -> str:
    return f"rank {rank.rank} ({rank.host})" if rank.host else f"rank {rank.rank}"


def _event_text(event: Event) -> str:
    return f"{event.kind} in step {event.step}{': ' if event.text else ''}{event.text}"


def _title(view: JobView) -> str:
    job = f"job {view.job} · " if view.job else ""
    return f"{job}{len(view.ranks)} of {view.world_size} ranks · medians of the last {view.window} steps, slowest first"


def _compared(rank: RankView) -> str:
    return f"self time {rank.self_ms:.1f} ms per step, peers {rank.reference_ms:.1f} ms, {_percent(rank.excess)}"


def _ms(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:,.1f}"


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{round(100 * value):+d} %"


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def _rank_list(ranks: tuple[int, ...]) -> str:
    names = ", ".join(map(str, ranks[:_MAX_LISTED])) + (" …" if len(ranks) > _MAX_LISTED else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {names}"
