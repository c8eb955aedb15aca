"""HostLeader: one process per host does shared work (downloads); the others wait for it and notice if it dies.

State is kept in files below the temporary directory. The leader locks leader-TOKEN.lock while it lives and writes
state.json with its token; a state whose lock is free is left over from an earlier run. Followers lock rank_N-TOKEN.lock
in the same way, so that the leader sees on exit which ranks still run. The kernel releases the locks of dead processes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict

import msgspec

from paceline.core.errors import PacelineError
from paceline.core.scratch_directory import private_directory, runtime_directory
from paceline.training.ranks import Ranks

_POLL = 0.05
_LONGEST_POLL = 0.5
_JOIN_SECONDS = 30.0
_JOB_VARIABLES = (
    "PACELINE_RUN_ID",
    "MA_VJ_NAME",
    "TORCHELASTIC_RUN_ID",
    "JOB_ID",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "MASTER_ADDR",
    "MASTER_PORT",
    "MS_SCHED_HOST",
    "MS_SCHED_PORT",
    "RANK_TABLE_FILE",
)
"""Variables that distinguish two jobs on one host."""


class LeaderState(msgspec.Struct, frozen=True):
    token: str
    rank: int
    pid: int
    phase: str
    """working, done, failed"""
    what: str = ""
    results: Dict[str, str] = {}
    error: str = ""
    hint: str = ""


@dataclass
class HostLeader:
    """Coordinates one session between the processes of this host."""

    subject: str
    """Identifies the session; the same text in all processes of the job."""
    ranks: Ranks
    base: Path | None = None
    _locks: list[int] = field(default_factory=list)
    _token: str = ""
    _finished: bool = False

    def __post_init__(self) -> None:
        job = "\n".join(
            [*(f"{name}={os.environ.get(name, '')}" for name in _JOB_VARIABLES), self.subject, str(self.ranks.local)]
        )
        name = hashlib.sha256(job.encode(errors="surrogateescape")).hexdigest()[:16]
        self._directory = private_directory((self.base or runtime_directory()) / name)

    # -- shared work -------------------------------------------------------------------------------------------------

    def run_once(self, work: Callable[[Callable[[str], None]], Mapping[str, str]], timeout: float) -> dict[str, str]:
        """The leader runs `work`, which reports its progress; all ranks get its results, or its error."""
        return self._lead(work) if self.ranks.is_leader else self._follow(timeout)

    def _lead(self, work: Callable[[Callable[[str], None]], Mapping[str, str]]) -> dict[str, str]:
        self._remove_stale_locks()
        self._token = secrets.token_hex(8)
        self._hold_lock(f"leader-{self._token}.lock")
        self._write_state("working")
        try:
            results = dict(work(lambda what: self._write_state("working", what=what)))
        except PacelineError as error:
            self._write_state("failed", error=str(error), hint=error.hint or "")
            raise
        except BaseException as error:
            self._write_state("failed", error=f"{type(error).__name__}: {error}")
            raise
        self._write_state("done", results=results)
        self._finished = True
        return results

    def _follow(self, timeout: float) -> dict[str, str]:
        until, pause, seen = time.monotonic() + timeout, _POLL, ""
        leader = f"rank {self.ranks.local[0]} (downloads inputs for this host)"
        state: LeaderState | None = None
        while True:
            state = self._read_state() or state
            alive = state is not None and self._is_locked(f"leader-{state.token}.lock")
            if state is not None and alive:
                seen = state.token
                if state.phase != "working":
                    return self._join(state, leader)
            elif state is not None and state.token == seen:
                # Read again: it may have finished and exited since the last read.
                last = self._read_state()
                if last is not None and last.token == seen and last.phase != "working":
                    return self._join(last, leader)
                raise PacelineError(
                    f"{leader} exited during {state.what or 'startup'}",
                    hint=f"see its log (pid {state.pid}), then start the job again",
                )
            if time.monotonic() > until:
                if not seen:
                    raise PacelineError(
                        f"{leader} did not start within {timeout:.0f} s", hint="check that it was started"
                    )
                what = state.what if state else ""
                raise PacelineError(
                    f"{leader} did not finish within {timeout:.0f} s ({what})",
                    hint="increase input_timeout if the download is just slow",
                )
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_POLL)

    def _join(self, state: LeaderState, leader: str) -> dict[str, str]:
        self._token = state.token
        self._hold_lock(f"rank_{self.ranks.rank}-{state.token}.lock")
        if state.phase == "failed":
            raise PacelineError(f"{leader} failed: {state.error}", hint=state.hint or None)
        return state.results

    # -- ranks that still run ---------------------------------------------------------------------------------------

    def wait_for_others(self, seconds: float) -> set[int]:
        """Wait until the other ranks of this host have exited or time is up; returns those that still run."""
        until = time.monotonic() + seconds
        while (alive := self.alive_ranks()) and time.monotonic() < until:
            time.sleep(_POLL)
        return alive

    def alive_ranks(self) -> set[int]:
        """Other ranks of this host that joined and have not exited."""
        return {rank for rank in self.ranks.local if rank != self.ranks.rank and self._is_alive(rank)}

    @property
    def leader_is_gone(self) -> bool:
        return bool(self._token) and not self._is_locked(f"leader-{self._token}.lock")

    def close(self) -> None:
        """Release the locks; a leader first waits for late ranks to join, which would otherwise miss the results."""
        if self.ranks.is_leader and self._finished:
            self._wait_until_joined()
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()

    def _wait_until_joined(self) -> None:
        until = time.monotonic() + _JOIN_SECONDS
        names = [f"rank_{rank}-{self._token}.lock" for rank in self.ranks.local[1:]]
        while time.monotonic() < until and not all((self._directory / name).exists() for name in names):
            time.sleep(_POLL)

    def _is_alive(self, rank: int) -> bool:
        name = f"leader-{self._token}.lock" if rank == self.ranks.local[0] else f"rank_{rank}-{self._token}.lock"
        return self._is_locked(name)

    # -- files -------------------------------------------------------------------------------------------------------

    def _hold_lock(self, name: str) -> None:
        lock = os.open(self._directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._locks.append(lock)

    def _is_locked(self, name: str) -> bool:
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

    def _write_state(
        self, phase: str, *, what: str = "", results: dict[str, str] | None = None, error: str = "", hint: str = ""
    ) -> None:
        state = LeaderState(self._token, self.ranks.rank, os.getpid(), phase, what, results or {}, error, hint)
        temporary = self._directory / f".state-{self._token}.tmp"
        temporary.write_bytes(msgspec.json.encode(state))
        temporary.replace(self._directory / "state.json")

    def _read_state(self) -> LeaderState | None:
        try:
            return msgspec.json.decode((self._directory / "state.json").read_bytes(), type=LeaderState)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _remove_stale_locks(self) -> None:
        """Remove lock files of earlier runs that no process holds."""
        for path in self._directory.glob("*.lock"):
            if not self._is_locked(path.name):
                path.unlink(missing_ok=True)
