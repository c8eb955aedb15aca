"""Prune remote checkpoints; the two newest that are complete for every rank are always kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from paceline.checkpoint.file_names import CheckpointName, parse_name
from paceline.checkpoint.manifest import record_name
from paceline.storage.stores.base import Store
from paceline.storage.stores.open_store import open_store
from paceline.storage.url import parse_url
from paceline.training.session.upload_messages import TransferTask

_COMPLETE = 2
"""Complete checkpoints to keep: after a resume the newest may mix files of two starts."""
_RANK = re.compile(r"rank_(\d{1,7})/(.+)")
_ITERATION = re.compile(r"(iteration_(\d{8,}))/(.+)")


def prune(task: TransferTask) -> int:
    """After a verified upload; keeps what still exists locally (task.source). Returns the number of removed objects."""
    if task.only == "records":
        return _prune_iterations(task)
    above = parse_url(task.target).parent
    store = open_store(above)
    try:
        names = _names(store)
        outdated = _outdated(names, task.keep_rank, task.world) - {path.name for path in Path(task.source).iterdir()}
        for name in sorted(outdated):
            store.remove(f"rank_{task.keep_rank}/{name}")
        return len(outdated)
    finally:
        store.close()


def _names(store: Store) -> dict[int, dict[str, CheckpointName]]:
    found: dict[int, dict[str, CheckpointName]] = {}
    for item in store.list_files():
        if (match := _RANK.fullmatch(item.key)) and (name := parse_name(match[2])):
            found.setdefault(int(match[1]), {})[match[2]] = name
    return found


def _outdated(names: Mapping[int, Mapping[str, CheckpointName]], rank: int, world: int) -> set[str]:
    """Files older than the second newest checkpoint that all ranks have."""
    places = [{(n.epoch, n.step) for n in names.get(each, {}).values()} for each in range(world)]
    complete = sorted(set.intersection(*places))[-_COMPLETE:] if places else []
    if not complete:
        return set()
    newest_run = max(name.run for name in names[rank].values())
    return {
        text for text, name in names[rank].items() if name.run == newest_run and (name.epoch, name.step) < complete[0]
    }


def _prune_iterations(task: TransferTask) -> int:
    here = {path.name for path in Path(task.source).iterdir()}
    store = open_store(task.target)
    try:
        found: dict[str, list[str]] = {}
        for item in store.list_files():
            if match := _ITERATION.fullmatch(item.key):
                found.setdefault(match[1], []).append(match[3])
        wanted = {record_name(rank) for rank in range(task.world)}
        complete = sorted(name for name, files in found.items() if wanted <= set(files))[-_COMPLETE:]
        outdated = [name for name in found if complete and name < complete[0] and name not in here]
        for name in outdated:
            # The record first: a half-removed checkpoint must not look complete.
            for file in sorted(found[name], key=lambda each: not each.endswith(".json")):
                store.remove(f"{name}/{file}")
        return len(outdated)
    finally:
        store.close()


def is_complete(directory: str, world: int) -> bool:
    """Whether the remote directory of an iteration contains the records of all ranks."""
    store = open_store(directory)
    try:
        return {record_name(rank) for rank in range(world)} <= {item.key for item in store.list_files(recursive=False)}
    finally:
        store.close()
