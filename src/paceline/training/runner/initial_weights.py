"""Read initial weights: from a file, from rank directories (with a strategy if sharded), or from the resume point."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable
from typing import Any, Dict, List, Optional

import msgspec
import numpy as np
import numpy.typing as npt

from paceline.checkpoint.file_names import is_weights_file, step_of
from paceline.checkpoint.formats.open_container import open_container
from paceline.checkpoint.plan.file_plan import Piece, PlannedTensor
from paceline.checkpoint.plan.read_tensor import read_tensor
from paceline.checkpoint.rank_copies import require_same_values
from paceline.checkpoint.source_checkpoint import open_checkpoint
from paceline.checkpoint.strategy.strategy import read_strategy
from paceline.checkpoint.tensor_files import FileListing, open_listing
from paceline.checkpoint.tensors.bf16 import as_numbers
from paceline.checkpoint.tensors.tensor_slice import full_slice
from paceline.core.errors import FormatError, PacelineError
from paceline.storage.reachability import require_reachable
from paceline.storage.store_errors import MissingError
from paceline.storage.stores.open_store import open_store
from paceline.storage.transfer.retry import Backoff, retry_call
from paceline.training.reference.learner import Learner
from paceline.training.reference.shape import is_lora

_log = logging.getLogger("paceline")

_COMMON = "common.json"
_MAX_COMMON_BYTES = 1 << 20
_RANK_NUMBER = re.compile(r"_rank_\d+")
_RANK_DIRECTORY = re.compile(r"/?rank_\d+$")

Arrays = Dict[str, npt.NDArray[Any]]


class ResumeChoice(msgspec.Struct):
    """Checkpoint to resume from, selected by rank 0 for all ranks."""

    location: str = ""
    epoch: int = 0
    step: int = 0
    files: Dict[int, List[str]] = {}
    problem: str = ""
    hint: Optional[str] = None


def read_weights(where: str, names: Collection[str], strategy: str = "") -> Arrays:
    """Read full parameters by name from any checkpoint; only LoRA weights may be missing, which are then initialised."""
    with open_listing(where) as listing:
        tensors = _full_tensors(listing, strategy)
        missing = [name for name in names if name not in tensors and not is_lora(name)]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise PacelineError(
                f"{where}: {missing[0]}{more} not found", hint="this checkpoint belongs to another model"
            )
        tuned = [name for name in tensors if is_lora(name) and name not in names and not name.startswith("adam_")]
        if tuned:
            raise PacelineError(
                f"{where}: contains {tuned[0]}, but the model has no LoRA",
                hint="set model.model_config.pet_config, or merge first: paceline checkpoint merge-lora",
            )
        return {name: _array(tensors[name]) for name in names if name in tensors}


def _full_tensors(listing: FileListing, strategy: str) -> dict[str, PlannedTensor]:
    checkpoint = open_checkpoint(listing, read_strategy(strategy))
    require_same_values(checkpoint)
    return checkpoint.full_tensors()


def read_files(where: str, keys: Iterable[str]) -> Arrays:
    """All tensors of one rank's files, and the scalars in common.json of iteration_* directories."""
    found: Arrays = {}
    with open_listing(where) as listing:
        for key in keys:
            common = f"{key.rpartition('/')[0]}/{_COMMON}"
            if common in listing.items:
                found |= _scalars(listing.read_all(common, _MAX_COMMON_BYTES), f"{where}/{common}")
            container = open_container(listing.file(key))
            for name, stored in container.tensors.items():
                full = full_slice(stored.shape)
                found[name] = _array(PlannedTensor(name, stored.dtype, full, [Piece(full, container, stored)]))
    return found


def read_own_slices(where: str, rank: int) -> Arrays:
    """What lies in rank_N of this rank, its newest file: a checkpoint in the layout of this job. Empty if there is none."""
    with open_listing(where) as listing:
        own = [
            key for key in listing.items if key.startswith(f"rank_{rank}/") and is_weights_file(key.rpartition("/")[2])
        ]
    if not own:
        return {}
    return read_files(where, [max(own, key=lambda key: (step_of(key.rpartition("/")[2]) or (0, 0), key))])


def read_layout(choice: ResumeChoice, strategy: str) -> Arrays:
    """Everything in full, from the files of all ranks that saved: for another number of ranks, or another layout.

    Random state belongs to a rank, so it is not read.
    """
    with open_listing(choice.location) as listing:
        listing.items = {key: listing.items[key] for keys in choice.files.values() for key in keys}
        tensors = _full_tensors(listing, strategy)
        return {name: _array(tensor) for name, tensor in tensors.items() if name != "rng_state"}


def select_resume_point(where: str, learner: Learner, wanted: bool | str, *, own: bool) -> ResumeChoice | None:
    """Rank 0 selects a checkpoint that is complete on every rank, and shares the choice with all ranks.

    None if the job's own outputs contain no checkpoint yet (first start).
    """
    chosen = _select(where, learner.world_size, wanted, own) if learner.rank == 0 else ResumeChoice()
    chosen = msgspec.json.decode(_broadcast(msgspec.json.encode(chosen), learner), type=ResumeChoice)
    if chosen.problem:
        raise PacelineError(chosen.problem, hint=chosen.hint)
    return chosen if chosen.files else None


def _select(where: str, ranks: int, wanted: bool | str, own: bool) -> ResumeChoice:
    from paceline.checkpoint.resume.resume_point import find_resume_point

    try:
        if own and _has_no_checkpoint(where):
            return ResumeChoice()
        if name := _named(where, wanted):
            return _by_name(where, name, ranks)
        point = find_resume_point(where)
    except PacelineError as error:
        return ResumeChoice(problem=str(error), hint=error.hint)
    for skipped in point.skipped:
        _log.warning("skipping checkpoint %s: %s", skipped.name, skipped.reason)
    for note in point.notes:
        _log.warning("%s", note)
    files = {rank: list(keys) for rank, keys in point.files.items()}
    return ResumeChoice(point.location, point.epoch, point.step, files)


def _has_no_checkpoint(where: str) -> bool:
    require_reachable(where)
    store = open_store(where)
    try:
        items = retry_call(Backoff(), lambda: list(store.list_files()))
        return not any(is_weights_file(item.key.rpartition("/")[2]) for item in items)
    except MissingError:
        return True
    finally:
        store.close()


def _named(where: str, wanted: bool | str) -> str:
    """File name, if one was given as resume_training or as load_checkpoint."""
    if isinstance(wanted, str):
        return wanted
    return where.rpartition("/")[2] if is_weights_file(where) else ""


def _by_name(where: str, name: str, ranks: int) -> ResumeChoice:
    """Exactly this file; rank_N in its name is replaced by each rank's number."""
    base = where if not is_weights_file(where) else where.rpartition("/")[0]
    if is_weights_file(where) and _RANK_DIRECTORY.search(base):
        base = _RANK_DIRECTORY.sub("", base)
    with open_listing(base) as listing:
        keys = {rank: _own_name(name, rank, listing.items) for rank in range(ranks)}
    epoch, step = step_of(name) or (0, 0)
    return ResumeChoice(base, epoch, step, {rank: [key] for rank, key in keys.items()})


def _own_name(name: str, rank: int, items: Collection[str]) -> str:
    own = _RANK_NUMBER.sub(f"_rank_{rank}", name)
    for key in (f"rank_{rank}/{own}", own):
        if key in items:
            return key
    raise PacelineError(
        f"rank {rank}: checkpoint {own} not found", hint="resume_training: True uses the newest complete one"
    )


def _broadcast(data: bytes, learner: Learner) -> bytes:
    """Broadcast rank 0's bytes to every rank with an all-reduce, the only collective a Learner has."""
    mine = data if learner.rank == 0 else b""
    length = int(learner.sum_over_ranks(np.array([float(len(mine))]))[0])
    row = np.zeros(length)
    row[: len(mine)] = np.frombuffer(mine, np.uint8)
    return learner.sum_over_ranks(row).astype(np.uint8).tobytes()


def _scalars(data: bytes, name: str) -> Arrays:
    try:
        scalars = msgspec.json.decode(data, type=Dict[str, float])
    except msgspec.MsgspecError as error:
        raise FormatError(f"{name}: damaged ({error})") from error
    return {name: np.array(value) for name, value in scalars.items()}


def _array(tensor: PlannedTensor) -> npt.NDArray[Any]:
    # Copied, because the mapped memory is freed with the file.
    values = as_numbers(read_tensor(tensor, 0, tensor.bytes), tensor.dtype)
    copied: npt.NDArray[Any] = values.reshape(tensor.shape).copy()
    return copied
