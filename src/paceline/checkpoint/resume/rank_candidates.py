"""Resume candidates in rank_i/{prefix}_rank_{i}-{epoch}_{step}.ckpt: committed by each rank's meta.json."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Dict, Tuple

import numpy as np

from paceline.checkpoint.file_names import CheckpointName, parse_name
from paceline.checkpoint.integrity import IntegrityCheck
from paceline.checkpoint.manifest import META, FileRecord, RankMeta, read_meta
from paceline.checkpoint.tensor_files import FileListing
from paceline.core.errors import PacelineError

_RANK = re.compile(r"rank_(\d{1,7})/")
Found = Dict[int, Dict[Tuple[int, int], Tuple[CheckpointName, str]]]
"""Rank → (epoch, step) → file of the newest run"""


@dataclass
class RankCandidate:
    epoch: int
    step: int
    expected: int
    """Ranks 0 … expected − 1 must have a file."""
    names: Mapping[int, CheckpointName]
    files: Mapping[int, tuple[str, ...]]
    metas: Mapping[int, RankMeta]
    global_step: int | None = None

    @property
    def name(self) -> str:
        return f"{self.epoch}_{self.step}"

    def problems(self, check: IntegrityCheck) -> list[str]:
        missing = [rank for rank in range(self.expected) if rank not in self.files]
        if missing:
            return [f"{_ranks(missing)} {'has' if len(missing) == 1 else 'have'} no file of it"]
        open_ranks = [rank for rank in self.files if not self._is_committed(rank)]
        if open_ranks:
            return [f"{_ranks(open_ranks)} did not finish writing it (not in meta.json)"]
        records = {rank: self._record(rank) for rank in self.files}
        attempts = {record.attempt for record in records.values() if record is not None}
        if len(attempts) > 1:
            return [f"its files were written by different starts of the training ({', '.join(sorted(attempts))})"]
        damaged = check.find_damage((self.files[rank][0], record) for rank, record in records.items())
        if not damaged:
            self.global_step = self._global_step(records, check)
        return damaged

    def _is_committed(self, rank: int) -> bool:
        meta, name = self.metas.get(rank), self.names[rank]
        if meta is None:
            return True  # no meta.json: an existing file counts as committed
        if meta.paceline is not None:
            return str(name) in meta.paceline.files
        last = parse_name(meta.last_ckpt_file)
        return last is None or name.run != last.run or (name.epoch, name.step) <= (last.epoch, last.step)

    def _record(self, rank: int) -> FileRecord | None:
        meta = self.metas.get(rank)
        return meta.paceline.files.get(str(self.names[rank])) if meta and meta.paceline else None

    def _global_step(self, records: Mapping[int, FileRecord | None], check: IntegrityCheck) -> int | None:
        for record in records.values():
            if record is not None:
                return record.global_step
        container = check.container(next(iter(self.files.values()))[0])
        stored = container.tensors.get("global_step")
        if stored is None or stored.bytes not in (4, 8) or not stored.extents:
            return None
        data = bytes(container.file.read(*stored.extents[0]))
        return int(np.frombuffer(data, np.int32 if len(data) == 4 else np.int64)[0])


def candidates(listing: FileListing, base: str, ranks: int | None, check: IntegrityCheck) -> Iterator[RankCandidate]:
    """Newest first: by run, then by epoch and step."""
    found = _files(listing, base)
    metas = _metas(listing, base, check)
    expected = ranks or max(
        (meta.paceline.world_size for meta in metas.values() if meta.paceline), default=max(found, default=-1) + 1
    )
    steps = {step for has in found.values() for step in has}
    made = []
    for epoch, step in steps:
        needed = ranks or _saved_by(found, metas, (epoch, step)) or expected
        has = {rank: each[epoch, step] for rank, each in found.items() if (epoch, step) in each and rank < needed}
        if has:
            names = {rank: name for rank, (name, _) in sorted(has.items())}
            files = {rank: (key,) for rank, (_, key) in sorted(has.items())}
            made.append(RankCandidate(epoch, step, needed, names, files, metas))
    made.sort(key=lambda each: (min(name.run for name in each.names.values()), each.epoch, each.step), reverse=True)
    yield from made


def _saved_by(found: Found, metas: Mapping[int, RankMeta], step: tuple[int, int]) -> int:
    """How many ranks saved a step: the newest record tells, where the job had another number of ranks at other times."""
    names = {rank: str(each[step][0]) for rank, each in found.items() if step in each}
    records = (meta.paceline.files.get(names.get(rank, "")) for rank, meta in metas.items() if meta.paceline)
    return max((record.world_size for record in records if record is not None), default=0)


def _files(listing: FileListing, base: str) -> Found:
    found: Found = {}
    for key in listing.items:
        if not key.startswith(base):
            continue
        directory, _, file = key[len(base) :].rpartition("/")
        name = parse_name(file)
        match = _RANK.fullmatch(directory + "/")
        if name is None or (directory and not match):
            continue
        rank = int(match[1]) if match else name.rank or 0
        known = found.setdefault(rank, {}).get((name.epoch, name.step))
        if known is None or known[0].run < name.run:
            found[rank][name.epoch, name.step] = (name, key)
    return found


def _metas(listing: FileListing, base: str, check: IntegrityCheck) -> dict[int, RankMeta]:
    found = {}
    for key in listing.items:
        if key.startswith(base) and (match := _RANK.match(key, len(base))) and key == f"{base}{match[0]}{META}":
            try:
                found[int(match[1])] = read_meta(check.text(key), key)
            except PacelineError as error:
                check.note(str(error))
    return found


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"
