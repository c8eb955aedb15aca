"""Which remote checkpoints may go: never the newest that every rank has there, nor the one before it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.checkpoint.record import CheckpointName, parse_name, record_name
from paceline.storage.location import parse
from paceline.storage.opening import open_store
from paceline.storage.store import Store

if TYPE_CHECKING:
    from paceline.training.courier import Move

_COMPLETE = 2
"""Complete ones that stay: after a resume the newest may be a mixture of two courses until every rank was here again."""
_RANK = re.compile(r"rank_(\d{1,7})/(.+)")
_ITERATION = re.compile(r"(iteration_(\d{8,}))/(.+)")


def prune(move: Move) -> int:
    """After a verified upload; what lies here (move.source) stays there too. Returns how many objects went."""
    if move.only == "records":
        return _prune_iterations(move)
    above = parse(move.target).parent
    store = open_store(above)
    try:
        names = _names(store)
        doomed = _doomed(names, move.keep_rank, move.world) - {path.name for path in Path(move.source).iterdir()}
        for name in sorted(doomed):
            store.remove(f"rank_{move.keep_rank}/{name}")
        return len(doomed)
    finally:
        store.close()


def _names(store: Store) -> dict[int, dict[str, CheckpointName]]:
    found: dict[int, dict[str, CheckpointName]] = {}
    for item in store.items():
        if (match := _RANK.fullmatch(item.key)) and (name := parse_name(match[2])):
            found.setdefault(int(match[1]), {})[match[2]] = name
    return found


def _doomed(names: Mapping[int, Mapping[str, CheckpointName]], rank: int, world: int) -> set[str]:
    """Older than the second newest that all ranks have."""
    places = [{(n.epoch, n.step) for n in names.get(each, {}).values()} for each in range(world)]
    complete = sorted(set.intersection(*places))[-_COMPLETE:] if places else []
    if not complete:
        return set()
    newest_run = max(name.run for name in names[rank].values())
    return {
        text for text, name in names[rank].items() if name.run == newest_run and (name.epoch, name.step) < complete[0]
    }


def _prune_iterations(move: Move) -> int:
    here = {path.name for path in Path(move.source).iterdir()}
    store = open_store(move.target)
    try:
        found: dict[str, list[str]] = {}
        for item in store.items():
            if match := _ITERATION.fullmatch(item.key):
                found.setdefault(match[1], []).append(match[3])
        wanted = {record_name(rank) for rank in range(move.world)}
        complete = sorted(name for name, files in found.items() if wanted <= set(files))[-_COMPLETE:]
        doomed = [name for name in found if complete and name < complete[0] and name not in here]
        for name in doomed:
            # The record first: what is half removed must not look complete.
            for file in sorted(found[name], key=lambda each: not each.endswith(".json")):
                store.remove(f"{name}/{file}")
        return len(doomed)
    finally:
        store.close()


def is_complete(directory: str, world: int) -> bool:
    """Whether every rank's record is in an iteration's remote directory."""
    store = open_store(directory)
    try:
        return {record_name(rank) for rank in range(world)} <= {item.key for item in store.items(shallow=True)}
    finally:
        store.close()
