"""The processes of one host agree on work that one of them does: bounded, noticing at once when that one dies.

Files below the temporary directory. The leader locks leader-TOKEN.lock for as long as it lives, then writes state.json
with its token; a state whose lock nobody holds is left over from an earlier run. Followers lock rank_N-TOKEN.lock in
the same way, so that the leader can see at the end who is still at work. The kernel drops locks of the dead.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from paceline.errors import PacelineError
from paceline.training.ranks import Ranks

_POLL = 0.05
_LONGEST_POLL = 0.5
_JOIN = 30.0
_JOB = (
    "PACELINE_RUN_ID", "MA_VJ_NAME", "TORCHELASTIC_RUN_ID", "JOB_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "MASTER_ADDR",
    "MASTER_PORT", "MS_SCHED_HOST", "MS_SCHED_PORT", "RANK_TABLE_FILE",
)  # fmt: skip
"""What tells two jobs on one host apart."""


class State(msgspec.Struct, frozen=True):
    token: str
    rank: int
    pid: int
    phase: str
    """working, done, failed"""
    what: str = ""
    results: dict[str, str] = {}
    error: str = ""
    hint: str = ""


@dataclass
class Meeting:
    """Of one session in one process."""

    subject: str
    """The same text in all processes of a job: what the session is about."""
    ranks: Ranks
    place: Path | None = None
    _locks: list[int] = field(default_factory=list)
    _token: str = ""
    _finished: bool = False

    def __post_init__(self) -> None:
        job = "\n".join([*(f"{name}={os.environ.get(name, '')}" for name in _JOB), self.subject, str(self.ranks.local)])
        name = hashlib.sha256(job.encode(errors="surrogateescape")).hexdigest()[:16]
        base = self.place or Path(tempfile.gettempdir()) / f"paceline-{os.getuid()}"
        self._directory = base / name
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._directory.stat().st_uid != os.getuid():
            raise PacelineError(
                f"{self._directory}: belongs to somebody else", hint="set TMPDIR to a directory of yours"
            )

    # -- the work ----------------------------------------------------------------------------------------------------

    def share(self, work: Callable[[Callable[[str], None]], Mapping[str, str]], timeout: float) -> dict[str, str]:
        """The leader does the work (telling what it is at); all get its results, or its error."""
        return self._lead(work) if self.ranks.is_leader else self._follow(timeout)

    def _lead(self, work: Callable[[Callable[[str], None]], Mapping[str, str]]) -> dict[str, str]:
        self._clean()
        self._token = secrets.token_hex(8)
        self._hold(f"leader-{self._token}.lock")
        self._tell("working")
        try:
            results = dict(work(lambda what: self._tell("working", what=what)))
        except PacelineError as error:
            self._tell("failed", error=str(error), hint=error.hint or "")
            raise
        except BaseException as error:
            self._tell("failed", error=f"{type(error).__name__}: {error}")
            raise
        self._tell("done", results=results)
        self._finished = True
        return results

    def _follow(self, timeout: float) -> dict[str, str]:
        until, pause, seen = time.monotonic() + timeout, _POLL, ""
        leader = f"rank {self.ranks.local[0]}, which fetches for this host,"
        state: State | None = None
        while True:
            state = self._state() or state
            alive = state is not None and self._is_held(f"leader-{state.token}.lock")
            if state is not None and alive:
                seen = state.token
                if state.phase != "working":
                    return self._joined(state, leader)
            elif state is not None and state.token == seen:
                # Looked at again: it may have finished, and ended, between our two looks.
                last = self._state()
                if last is not None and last.token == seen and last.phase != "working":
                    return self._joined(last, leader)
                raise PacelineError(
                    f"{leader} ended while it was at work ({state.what or 'starting'})",
                    hint=f"its log says why (pid {state.pid}); start the job again",
                )
            if time.monotonic() > until:
                if not seen:
                    raise PacelineError(f"{leader} did not begin within {timeout:.0f} s", hint="did it start at all?")
                what = state.what if state else ""
                raise PacelineError(
                    f"{leader} is not done after {timeout:.0f} s ({what})",
                    hint="raise input_timeout if it only is slow",
                )
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_POLL)

    def _joined(self, state: State, leader: str) -> dict[str, str]:
        self._token = state.token
        self._hold(f"rank_{self.ranks.rank}-{state.token}.lock")
        if state.phase == "failed":
            raise PacelineError(f"{leader} failed: {state.error}", hint=state.hint or None)
        return state.results

    # -- who is still there ------------------------------------------------------------------------------------------

    def wait_for_others(self, seconds: float) -> set[int]:
        """Until the other ranks of this host have ended, or time is up; those that are still at work."""
        until = time.monotonic() + seconds
        while (alive := self.alive()) and time.monotonic() < until:
            time.sleep(_POLL)
        return alive

    def alive(self) -> set[int]:
        """Other ranks of this host that joined and have not ended."""
        return {rank for rank in self.ranks.local if rank != self.ranks.rank and self._is_alive(rank)}

    @property
    def leader_is_gone(self) -> bool:
        return bool(self._token) and not self._is_held(f"leader-{self._token}.lock")

    def end(self) -> None:
        """The others see that we are done; a leader first lets late ones in, who would wait for it in vain."""
        if self.ranks.is_leader and self._finished:
            self._wait_until_joined()
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()

    def _wait_until_joined(self) -> None:
        until = time.monotonic() + _JOIN
        names = [f"rank_{rank}-{self._token}.lock" for rank in self.ranks.local[1:]]
        while time.monotonic() < until and not all((self._directory / name).exists() for name in names):
            time.sleep(_POLL)

    def _is_alive(self, rank: int) -> bool:
        name = f"leader-{self._token}.lock" if rank == self.ranks.local[0] else f"rank_{rank}-{self._token}.lock"
        return self._is_held(name)

    # -- files -------------------------------------------------------------------------------------------------------

    def _hold(self, name: str) -> None:
        lock = os.open(self._directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._locks.append(lock)

    def _is_held(self, name: str) -> bool:
        try:
            lock = os.open(self._directory / name, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def _tell(self, phase: str, *, what: str = "", results: dict[str, str] | None = None, error: str = "",
              hint: str = "") -> None:  # fmt: skip
        state = State(self._token, self.ranks.rank, os.getpid(), phase, what, results or {}, error, hint)
        fresh = self._directory / f".state-{self._token}.tmp"
        fresh.write_bytes(msgspec.json.encode(state))
        fresh.replace(self._directory / "state.json")

    def _state(self) -> State | None:
        try:
            return msgspec.json.decode((self._directory / "state.json").read_bytes(), type=State)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _clean(self) -> None:
        """What earlier runs left; locks somebody holds stay."""
        for path in self._directory.glob("*.lock"):
            if not self._is_held(path.name):
                path.unlink(missing_ok=True)
