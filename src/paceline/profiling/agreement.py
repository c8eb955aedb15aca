"""How the ranks of a job begin a recording on the same step: through files beside the configuration, without a collective.

Each rank says in its own file which request it has seen, and before which step (`before`). A request for steps a to b is
settled once, by whoever creates the file of its decision: go, if every rank that is there had seen it before its step
a; else nobody records. A rank that comes later reads the configuration before its first step, so it can follow either way.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from paceline.profiling.dynamic_config import Request
from paceline.profiling.output import part_of, write_json

DIRECTORY = ".paceline"
FEWEST_SECONDS = 10.0
"""A rank that says nothing for this long, or ten of its intervals, is taken for gone (killed, say)."""
WRITES_PER_SECOND = 50


@dataclass(frozen=True)
class RankState:
    """What one rank says of itself."""

    rank: int
    world_size: int
    host: str
    pid: int
    interval: float
    """Seconds between two looks at the configuration."""
    step: int = 0
    step_seconds: float = 0.0
    seen: str = ""
    before: int = 0
    """The first step this rank could still record when it saw the request."""
    state: str = "idle"
    """idle, waiting, recording, recorded, passed over, missed."""
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


class Agreement:
    """One rank's view of the job's directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def publish(self, state: RankState) -> None:
        content = {name: value for name, value in asdict(state).items() if name != "mtime"}
        write_json(self._of_rank(state.rank), content, durable=False)

    def forget_earlier_runs(self, rank: int) -> None:
        """Rank 0 clears decisions of a run that had the same name; ranks' files are written anew by their owners."""
        if rank == 0:
            for path in self.directory.glob("decision-*.json"):
                path.unlink(missing_ok=True)

    def present(self) -> list[RankState]:
        """Ranks that are there: the silent ones are left out, measured against the latest word of any of them."""
        states = read_states(self.directory)
        latest = max((state.mtime for state in states), default=0.0)
        return [state for state in states if not state.ended and latest - state.mtime < _patience(state)]

    def settle(self, request: Request, rank: int, *, now: bool) -> Decision | None:
        """The decision; None while it is still open. With `now`, the step has come: those who have not seen it decide."""
        path = self.directory / f"decision-{request.version}-{request.start}.json"
        known = _read_decision(path)
        if known or (rank and not now):  # one rank reads what all have written; the others wait for its word
            return known
        late = [state for state in self.present() if state.seen != request.version or state.before > request.start]
        if late and not now:
            return None
        reason = f"{_names(late)} had not seen it before step {request.start}" if late else ""
        return _created(path, Decision(not late, rank, reason))

    def _of_rank(self, rank: int) -> Path:
        return self.directory / f"rank{rank}.json"


def heartbeat(interval: float, world_size: int) -> float:
    """Seconds between two words of a rank: thousands of them must not wear out a shared file system."""
    return max(interval, world_size / WRITES_PER_SECOND)


def read_states(directory: Path) -> list[RankState]:
    found = (_read_state(path) for path in directory.glob("rank*.json"))
    return sorted((state for state in found if state is not None), key=lambda state: state.rank)


def _patience(state: RankState) -> float:
    return max(FEWEST_SECONDS, 10 * heartbeat(state.interval, state.world_size))


def _read_state(path: Path) -> RankState | None:
    known = {field.name for field in fields(RankState)}
    try:
        content = json.loads(path.read_bytes())
        return RankState(**{**{k: v for k, v in content.items() if k in known}, "mtime": path.stat().st_mtime})
    except (OSError, ValueError, TypeError, AttributeError):
        return None  # gone, or not ours


def _read_decision(path: Path) -> Decision | None:
    for _ in range(50):
        try:
            return Decision(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            time.sleep(0.002)  # created a moment ago where hard links are unknown, and not yet written
    return None


def _created(path: Path, decision: Decision) -> Decision:
    """Ours, or that of whoever was faster: a hard link appears whole and only once."""
    beside = part_of(path)
    beside.write_text(json.dumps(asdict(decision)))
    try:
        os.link(beside, path)
    except FileExistsError:
        return _read_decision(path) or decision
    except OSError:  # a file system without hard links: exclusive creation, then the content
        return _created_exclusively(path, decision)
    finally:
        beside.unlink(missing_ok=True)
    return decision


def _created_exclusively(path: Path, decision: Decision) -> Decision:
    try:
        with path.open("x") as file:
            file.write(json.dumps(asdict(decision)))
    except FileExistsError:
        return _read_decision(path) or decision
    return decision


def _names(states: list[RankState]) -> str:
    ranks = ", ".join(str(state.rank) for state in states[:8]) + (" …" if len(states) > 8 else "")
    return f"rank{'s' if len(states) > 1 else ''} {ranks}"
