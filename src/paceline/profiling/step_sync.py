"""Let all ranks of a job begin a recording on the same step, through files next to the configuration, without collectives.

Each rank publishes which request it has seen, and before which step (`before`). Whether steps a to b are recorded is
decided once, by the first rank that creates the decision file: yes if every active rank had seen the request before its
step a, else no rank records. A rank that starts later reads the configuration before its first step and can follow either.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from paceline.profiling.dynamic_config import RecordRequest
from paceline.profiling.output_files import part_path, write_json

DIRECTORY = ".paceline"
MIN_SILENCE = 10.0
"""Seconds; a rank that publishes nothing for this long, or for ten of its intervals, is regarded as killed."""
WRITES_PER_SECOND = 50


@dataclass(frozen=True)
class RankStatus:
    """Published by one rank."""

    rank: int
    world_size: int
    host: str
    pid: int
    interval: float
    """Seconds between two polls of the configuration."""
    step: int = 0
    step_seconds: float = 0.0
    seen: str = ""
    before: int = 0
    """The first step this rank could still record when it saw the request."""
    state: str = "idle"
    """idle, waiting, recording, recorded, skipped, missed."""
    ended: bool = False
    start: int = -1
    stop: int = -1
    output: str = ""
    note: str = ""
    mtime: float = 0.0


@dataclass(frozen=True)
class Decision:
    go: bool
    by: int
    reason: str = ""


class StepSync:
    """The status and decision files of a job."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def publish(self, state: RankStatus) -> None:
        content = {name: value for name, value in asdict(state).items() if name != "mtime"}
        write_json(self._rank_file(state.rank), content, durable=False)

    def clear_old_decisions(self, rank: int) -> None:
        """Rank 0 removes decisions of an earlier run of the same name; each rank overwrites its own status file."""
        if rank == 0:
            for path in self.directory.glob("decision-*.json"):
                path.unlink(missing_ok=True)

    def active_ranks(self) -> list[RankStatus]:
        """Ranks that still publish, judged by the time of the latest status of any rank."""
        states = read_statuses(self.directory)
        latest = max((state.mtime for state in states), default=0.0)
        return [state for state in states if not state.ended and latest - state.mtime < _max_silence(state)]

    def decide(self, request: RecordRequest, rank: int, *, now: bool) -> Decision | None:
        """The decision; None while it is open. `now`: the step begins, so ranks that have not seen the request veto it."""
        path = self.directory / f"decision-{request.version}-{request.start}.json"
        known = _read_decision(path)
        if known or (rank and not now):  # rank 0 reads all statuses; the others wait for its decision
            return known
        late = [state for state in self.active_ranks() if state.seen != request.version or state.before > request.start]
        if late and not now:
            return None
        reason = f"{_rank_names(late)} had not seen it before step {request.start}" if late else ""
        return _create_decision(path, Decision(not late, rank, reason))

    def _rank_file(self, rank: int) -> Path:
        return self.directory / f"rank{rank}.json"


def heartbeat(interval: float, world_size: int) -> float:
    """Seconds between two statuses of a rank, limited so that thousands of ranks do not overload a shared file system."""
    return max(interval, world_size / WRITES_PER_SECOND)


def read_statuses(directory: Path) -> list[RankStatus]:
    found = (_read_status(path) for path in directory.glob("rank*.json"))
    return sorted((state for state in found if state is not None), key=lambda state: state.rank)


def _max_silence(state: RankStatus) -> float:
    return max(MIN_SILENCE, 10 * heartbeat(state.interval, state.world_size))


def _read_status(path: Path) -> RankStatus | None:
    known = {field.name for field in fields(RankStatus)}
    try:
        content = json.loads(path.read_bytes())
        return RankStatus(**{**{k: v for k, v in content.items() if k in known}, "mtime": path.stat().st_mtime})
    except (OSError, ValueError, TypeError, AttributeError):
        return None  # removed, or not a status file


def _read_decision(path: Path) -> Decision | None:
    for _ in range(50):
        try:
            return Decision(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            time.sleep(0.002)  # just created on a file system without hard links, and not written yet
    return None


def _create_decision(path: Path, decision: Decision) -> Decision:
    """Create the decision file, or read the one another rank created first: a hard link is atomic."""
    part = part_path(path)
    part.write_text(json.dumps(asdict(decision)))
    try:
        os.link(part, path)
    except FileExistsError:
        return _read_decision(path) or decision
    except OSError:  # a file system without hard links: exclusive creation, then the content
        return _create_exclusively(path, decision)
    finally:
        part.unlink(missing_ok=True)
    return decision


def _create_exclusively(path: Path, decision: Decision) -> Decision:
    try:
        with path.open("x") as file:
            file.write(json.dumps(asdict(decision)))
    except FileExistsError:
        return _read_decision(path) or decision
    return decision


def _rank_names(states: list[RankStatus]) -> str:
    ranks = ", ".join(str(state.rank) for state in states[:8]) + (" …" if len(states) > 8 else "")
    return f"rank{'s' if len(states) > 1 else ''} {ranks}"
