"""A process of its own that carries files: it can be ended at a deadline, and its work never holds up training's threads.

    echo '{"moves": […], "patience": 60}' | python -m paceline.training.courier

One JSON line per move on stdout. It lives as long as its stdin is open: a killed training leaves no courier behind.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Mapping

import msgspec

from paceline.errors import PacelineError

_NICE = 10
_RANK_OWNED = re.compile(
    r"\.upload/.*|checkpoint[^/]*/rank_\d+/.*|checkpoint/iteration_\d+/.*|checkpoint/latest_checkpointed_iteration\.txt"
)


class Move(msgspec.Struct, frozen=True):
    source: str
    target: str
    only: str = "all"
    """"rest": what belongs to no rank; "data", "records": of iteration directories, whose records come second."""
    gate: str = ""
    """Only when all of these records are at the target's place: iteration_…/ of `world` ranks."""
    world: int = 1
    keys: tuple[str, ...] | None = None
    """Only these; None: all that `only` says."""
    workers: int = 4
    keep_rank: int = -1
    """After everything arrived, remove this rank's older checkpoints at the target; -1: nothing."""


class Job(msgspec.Struct, frozen=True):
    moves: tuple[Move, ...]
    patience: float = 60.0


class Trouble(msgspec.Struct, frozen=True):
    key: str
    reason: str
    again: bool = False
    """It was being written: it comes with the next round."""


class Carried(msgspec.Struct, frozen=True):
    """What became of a move."""

    source: str
    moved: int = 0
    moved_bytes: int = 0
    same: int = 0
    pruned: int = 0
    present: tuple[str, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    hint: str = ""


def carry(move: Move, patience: float) -> Carried:
    """One move; what fails is told, never raised."""
    from paceline.storage.engine import Speed
    from paceline.storage.retry import Backoff
    from paceline.storage.transfer import Options, transfer
    from paceline.training.pruning import is_complete, prune

    try:
        backoff = Backoff(most=5.0, patience=patience)
        if move.gate and not is_complete(f"{move.target}/{move.gate}", move.world):
            return Carried(move.source, troubles=(Trouble(move.gate, "other ranks' files are not there yet", True),))
        rule = _RULES[move.only] if move.keys is None else frozenset(move.keys).__contains__
        report = transfer(move.source, move.target, Options(rule, speed=Speed(move.workers, backoff)))
        troubles = tuple(Trouble(each.key, each.reason, each.again) for each in report.failures)
        pruned = prune(move) if move.keep_rank >= 0 and not troubles else 0
        return Carried(
            move.source, report.moved, report.moved_bytes, report.same, pruned, tuple(report.present), troubles
        )
    except PacelineError as error:
        return Carried(move.source, troubles=(Trouble("", str(error)),), hint=error.hint or "")


def main() -> None:
    os.nice(_NICE)
    line = sys.stdin.buffer.readline()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job = msgspec.json.decode(line, type=Job)
    patience = job.patience
    for move in job.moves:
        carried = carry(move, patience)
        print(msgspec.json.encode(carried).decode(), flush=True)
        if any(not each.again for each in carried.troubles):
            patience = 0.0  # the others are tried once: whoever waits for us should hear of it soon
    # Not through the interpreter's end: threads that hang in a dead connection would hold it.
    os._exit(0)


def _is_record(key: str) -> bool:
    return bool(re.fullmatch(r"rank_\d{7}\.json", key.rpartition("/")[2]))


_RULES: Mapping[str, Callable[[str], bool]] = {
    "all": lambda key: True,
    "rest": lambda key: not _RANK_OWNED.fullmatch(key),
    "data": lambda key: not _is_record(key),
    "records": _is_record,
}


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
