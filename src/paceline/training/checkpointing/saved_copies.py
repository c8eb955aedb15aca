"""Which of several ranks' copies of a tensor belongs to this rank, when a checkpoint is resumed.

Ranks that hold the same tensor hold the same values, except where names mean something else on each rank (pipeline stages
built of equal modules) or values are a rank's own (statistics of BatchNorm). So a rank reads its own copy if the number of
ranks is that of the save; otherwise copies must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, List, Tuple

from paceline.checkpoint.checkpoint_content import Checkpoint
from paceline.checkpoint.plan.file_plan import Piece, PlannedTensor
from paceline.checkpoint.plan.read_tensor import read_tensor
from paceline.checkpoint.tensors.tensor_slice import TensorSlice
from paceline.core.errors import PacelineError

if TYPE_CHECKING:
    import torch

_COMPARED_BYTES = 4096
_COMPARED_COPIES = 4
_MOST_DRIFT = 0.1
"""Relative distance of two copies. Rounding makes replicas drift apart by far less; other weights are about 1 apart."""

Decode = Callable[[bytearray], "torch.Tensor"]


@dataclass(frozen=True)
class SavedCopies:
    checkpoint: Checkpoint
    rank: int
    world_size: int

    def planned(self, name: str, wanted: TensorSlice, decode: Decode, *, must_agree: bool) -> PlannedTensor:
        """must_agree: a weight, not a buffer, whose values may be each rank's own."""
        copies = self._copies(name)
        own = [piece for owner, piece in copies if owner == self.rank and piece.slice == wanted]
        if own and len(self.checkpoint.ranks) == self.world_size:
            return PlannedTensor(name, own[0].stored.dtype, wanted, own[:1], 0)
        if must_agree:
            self._check_agreement(name, copies, decode)
        parameter = self.checkpoint.parameters.get(name)
        if parameter is None:
            return self.checkpoint.plan_unlisted(name, self.rank)
        return self.checkpoint.plan_tensor(parameter, wanted)

    def _copies(self, name: str) -> List[Tuple[int, Piece]]:
        parameter = self.checkpoint.parameters.get(name)
        return list(self.checkpoint.unlisted[name].items()) if parameter is None else parameter.copies

    def _check_agreement(self, name: str, copies: Sequence[Tuple[int, Piece]], decode: Decode) -> None:
        by_slice: Dict[TensorSlice, List[Tuple[int, Piece]]] = {}
        for rank, piece in copies:
            by_slice.setdefault(piece.slice, []).append((rank, piece))
        for (first_rank, first), *others in by_slice.values():
            for rank, piece in others[:: -(-len(others) // (_COMPARED_COPIES - 1)) or 1]:
                if _distance(_start(name, first, decode), _start(name, piece, decode)) > _MOST_DRIFT:
                    raise PacelineError(
                        f"{name}: ranks {first_rank} and {rank} saved different values under this name",
                        hint=f"pipeline stages with equal names resume on {len(self.checkpoint.ranks)} ranks only, or"
                        " give every stage names of its own",
                    )


def _start(name: str, piece: Piece, decode: Decode) -> torch.Tensor:
    whole = PlannedTensor(name, piece.stored.dtype, piece.slice, [piece], 0)
    return decode(bytearray(read_tensor(whole, 0, min(whole.bytes, _COMPARED_BYTES)))).double()


def _distance(left: torch.Tensor, right: torch.Tensor) -> float:
    """0: equal, 1: opposite."""
    together = float(left.norm() + right.norm())
    return float((left - right).norm()) / together if together else 0.0
