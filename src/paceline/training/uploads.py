"""Outputs on their way home: beside training, coalesced, retried; and one last time at the end, within a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

from paceline.errors import PacelineError
from paceline.training.background import Background
from paceline.training.carrying import Courier, Trip
from paceline.training.courier import Move
from paceline.training.outputs import OutputTree
from paceline.training.ranks import Ranks
from paceline.training.staging import Staging
from paceline.training.telling import Told, log

_SHOWN = 20


@dataclass(frozen=True)
class Patience:
    """How long to try; tests shorten it."""

    round: float = 15.0
    """Seconds one round keeps trying a store that does not answer; then it is said."""
    longest_round: float = 6 * 3600.0
    pause: float = 5.0
    """Before the next try after a round that failed; doubled up to `longest_pause`."""
    longest_pause: float = 60.0


@dataclass(frozen=True)
class Leftover:
    """What did not make it home."""

    path: str
    reason: str


@dataclass
class Uploader:
    """Of one process; `request` never waits, and many requests during one upload make one more upload."""

    outputs: OutputTree
    url: str
    ranks: Ranks
    keep_last: bool = False
    patience: Patience = field(default_factory=Patience)
    _background: Background = field(default_factory=lambda: Background("paceline-upload"))
    _courier: Courier = field(default_factory=Courier)
    _wanted: threading.Event = field(default_factory=threading.Event)
    _closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.told = Told(self.outputs.log(self.ranks.rank), "obs-monitor")
        self.told.fact(url=self.url)
        self._staging = Staging(self.outputs.root, self.url, self.ranks.rank, self.ranks.world_size)

    def request(self) -> None:
        if self._closing.is_set():
            return
        self._wanted.set()
        if not self._background.busy:
            self._background.start(self._rounds)

    def finish(self, until: float, more: Callable[[], Sequence[Move]] = lambda: ()) -> list[Leftover]:
        """Everything of this rank, then `more()`; tried until the clock (monotonic) says `until`."""
        self._closing.set()
        self._courier.stop()
        self._background.wait(10)
        self._background.close()
        self._courier.allow()
        left = self._until_done(lambda: self._staging.moves(keep_last=self.keep_last), until)
        left += self._until_done(lambda: list(more()), until)
        if not left:
            self._staging.clear()
        self.told.fact(leftovers=[f"{each.path}: {each.reason}" for each in left])
        return left

    # -- beside training ---------------------------------------------------------------------------------------------

    def _rounds(self) -> None:
        pause = self.patience.pause
        while self._wanted.is_set() and not self._closing.is_set():
            self._wanted.clear()
            try:
                problem = self._round()
            except (PacelineError, OSError) as error:
                problem = error if isinstance(error, PacelineError) else PacelineError(f"upload: {error}")
            if problem is None:
                pause = self.patience.pause
            elif not self._closing.is_set():
                self.told.failed(
                    problem, consequence="training goes on, files are kept here and sent when it is possible again"
                )
                self._wanted.set()
                self._closing.wait(pause)
                pause = min(pause * 2, self.patience.longest_pause)

    def _round(self) -> PacelineError | None:
        moves = self._staging.moves(keep_last=self.keep_last)
        if self.ranks.is_leader:
            moves.append(Move(str(self.outputs.root), self.url, "rest"))
        began = monotonic()
        trip = self._courier.run(moves, patience=self.patience.round, seconds=self.patience.longest_round)
        problem = _problem(trip, self.url)
        if problem is None:
            carried = sum(each.moved for each in trip.carried)
            size = sum(each.moved_bytes for each in trip.carried)
            self.told.worked(files=carried, bytes=size, seconds=round(monotonic() - began, 3))
        return problem

    # -- at the end --------------------------------------------------------------------------------------------------

    def _until_done(self, moves: Callable[[], Sequence[Move]], until: float) -> list[Leftover]:
        pause = min(self.patience.pause, 1.0)
        left: list[Leftover] = []
        while True:
            try:
                wanted = list(moves())
            except OSError as error:
                return [Leftover(str(self.outputs.root), str(error))]
            if not wanted:
                return []
            remaining = until - monotonic()
            if remaining > 0:
                trip = self._courier.run(wanted, patience=min(remaining, self.patience.round), seconds=remaining)
                if trip.complete:
                    return []
                left = _leftovers(trip)
            else:
                left = left or [Leftover(move.source, "no time was left") for move in wanted]
            if until - monotonic() <= pause:
                return left
            log.warning("not everything is at %s yet (%s); trying again", self.url, left[0].reason)
            sleep(pause)
            pause = min(pause * 2, 30.0)


def tell_leftovers(left: Sequence[Leftover], url: str) -> None:
    shown = "\n".join(f"  {each.path}: {each.reason}" for each in left[:_SHOWN])
    more = f"\n  … and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    log.error(
        "%d files did not reach %s; they are still here (paceline sync sends them):\n%s%s", len(left), url, shown, more
    )


def _problem(trip: Trip, url: str) -> PacelineError | None:
    """None too when files were only being written: they come with the next round."""
    for each in trip.carried:
        for trouble in each.troubles:
            if not trouble.again:
                where = f"{trouble.key}: " if trouble.key and trouble.key not in trouble.reason else ""
                return PacelineError(f"upload to {url} failed: {where}{trouble.reason}", hint=each.hint or None)
    if trip.open_moves:
        return PacelineError(f"upload to {url} failed: {trip.complaint}")
    return None


def _leftovers(trip: Trip) -> list[Leftover]:
    found = [
        Leftover(f"{each.source}/{trouble.key}".rstrip("/"), trouble.reason)
        for each in trip.carried
        for trouble in each.troubles
    ]
    for move in trip.open_moves:
        files = [path for path in Path(move.source).rglob("*") if path.is_file()] or [Path(move.source)]
        found += [Leftover(str(path), trip.complaint) for path in files[:100]]
    return found
