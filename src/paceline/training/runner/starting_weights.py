"""Where weights come from: a file, ranks' directories, sharded ones with their strategy, or the point to resume from."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from paceline.checkpoint.box import whole
from paceline.checkpoint.choice import is_weights, step_of
from paceline.checkpoint.containers import open_container
from paceline.checkpoint.files import opened
from paceline.checkpoint.frame import Piece, Wanted
from paceline.checkpoint.gather import read_tensor
from paceline.checkpoint.numbers import numbers
from paceline.checkpoint.source import open_checkpoint
from paceline.checkpoint.strategy import read_strategy
from paceline.errors import FormatError, PacelineError
from paceline.storage.opening import open_store
from paceline.storage.retry import Backoff, patiently
from paceline.storage.store import MissingError
from paceline.training.reference.learner import Learner
from paceline.training.reference.shape import is_lora

_log = logging.getLogger("paceline")

_COMMON = "common.json"
_LARGEST_COMMON = 1 << 20
_RANK_NUMBER = re.compile(r"_rank_\d+")
_RANK_DIRECTORY = re.compile(r"/?rank_\d+$")

Arrays = dict[str, npt.NDArray[Any]]


class Chosen(msgspec.Struct):
    """What rank 0 found to resume from, for all ranks."""

    location: str = ""
    epoch: int = 0
    step: int = 0
    files: dict[int, list[str]] = {}
    problem: str = ""
    hint: str | None = None


def read_weights(where: str, names: Collection[str], strategy: str = "") -> Arrays:
    """The named parameters, whole, of any checkpoint; only LoRA's may be missing, which then begin anew."""
    with opened(where) as place:
        tensors = open_checkpoint(place, read_strategy(strategy)).full()
        missing = [name for name in names if name not in tensors and not is_lora(name)]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise PacelineError(f"{where}: has no {missing[0]}{more}", hint="it belongs to another model")
        tuned = [name for name in tensors if is_lora(name) and name not in names and not name.startswith("adam_")]
        if tuned:
            raise PacelineError(
                f"{where}: has {tuned[0]}, the model has no LoRA",
                hint="give it model.model_config.pet_config, or merge first: paceline checkpoint merge-lora",
            )
        return {name: _array(tensors[name]) for name in names if name in tensors}


def read_files(where: str, keys: Iterable[str]) -> Arrays:
    """All tensors of one rank's files, and the numbers that iteration_* directories keep beside them."""
    found: Arrays = {}
    with opened(where) as place:
        for key in keys:
            beside = f"{key.rpartition('/')[0]}/{_COMMON}"
            if beside in place.items:
                found |= _scalars(place.read_all(beside, _LARGEST_COMMON), f"{where}/{beside}")
            container = open_container(place.file(key))
            for name, stored in container.tensors.items():
                box = whole(stored.shape)
                found[name] = _array(Wanted(name, stored.dtype, box, [Piece(box, container, stored)]))
    return found


def choose_resume_point(where: str, learner: Learner, wanted: bool | str, *, own: bool) -> Chosen | None:
    """Rank 0 looks, all ranks do the same: a checkpoint that is whole on every rank.

    None where the job's own outputs hold none yet: it is started for the first time.
    """
    chosen = _look(where, learner.world_size, wanted, own) if learner.rank == 0 else Chosen()
    chosen = msgspec.json.decode(_shared(msgspec.json.encode(chosen), learner), type=Chosen)
    if chosen.problem:
        raise PacelineError(chosen.problem, hint=chosen.hint)
    return chosen if chosen.files else None


def _look(where: str, ranks: int, wanted: bool | str, own: bool) -> Chosen:
    from paceline.checkpoint.resume import find_resume_point

    try:
        if own and _has_none(where):
            return Chosen()
        if name := _named(where, wanted):
            return _by_name(where, name, ranks)
        point = find_resume_point(where, ranks=ranks)
    except PacelineError as error:
        return Chosen(problem=str(error), hint=error.hint)
    for skipped in point.skipped:
        _log.warning("checkpoint %s is skipped: %s", skipped.name, skipped.reason)
    for note in point.notes:
        _log.warning("%s", note)
    files = {rank: list(keys) for rank, keys in point.files.items()}
    return Chosen(point.location, point.epoch, point.step, files)


def _has_none(where: str) -> bool:
    store = open_store(where)
    try:
        items = patiently(Backoff(), lambda: list(store.items()))
        return not any(is_weights(item.key.rpartition("/")[2]) for item in items)
    except MissingError:
        return True
    finally:
        store.close()


def _named(where: str, wanted: bool | str) -> str:
    """The file's name, where one was given: as resume_training, or as load_checkpoint itself."""
    if isinstance(wanted, str):
        return wanted
    return where.rpartition("/")[2] if is_weights(where) else ""


def _by_name(where: str, name: str, ranks: int) -> Chosen:
    """That file and no other: rank_N in its name is each rank's own number."""
    base = where if not is_weights(where) else where.rpartition("/")[0]
    if is_weights(where) and _RANK_DIRECTORY.search(base):
        base = _RANK_DIRECTORY.sub("", base)
    with opened(base) as place:
        keys = {rank: _own_name(name, rank, place.items) for rank in range(ranks)}
    epoch, step = step_of(name) or (0, 0)
    return Chosen(base, epoch, step, {rank: [key] for rank, key in keys.items()})


def _own_name(name: str, rank: int, items: Collection[str]) -> str:
    own = _RANK_NUMBER.sub(f"_rank_{rank}", name)
    for key in (f"rank_{rank}/{own}", own):
        if key in items:
            return key
    raise PacelineError(
        f"rank {rank}: no checkpoint {own} there", hint="resume_training: True takes the newest whole one"
    )


def _shared(data: bytes, learner: Learner) -> bytes:
    """Rank 0's bytes on every rank, by the one thing ranks can do together: add."""
    mine = data if learner.rank == 0 else b""
    length = int(learner.sum_over_ranks(np.array([float(len(mine))]))[0])
    row = np.zeros(length)
    row[: len(mine)] = np.frombuffer(mine, np.uint8)
    return learner.sum_over_ranks(row).astype(np.uint8).tobytes()


def _scalars(data: bytes, name: str) -> Arrays:
    try:
        numbers_beside = msgspec.json.decode(data, type=dict[str, float])
    except msgspec.MsgspecError as error:
        raise FormatError(f"{name}: is damaged ({error})") from error
    return {name: np.array(value) for name, value in numbers_beside.items()}


def _array(tensor: Wanted) -> npt.NDArray[Any]:
    # A copy of its own: the file's memory goes with the file.
    values = numbers(read_tensor(tensor, 0, tensor.bytes), tensor.dtype)
    copied: npt.NDArray[Any] = values.reshape(tensor.shape).copy()
    return copied
