"""Which of several ranks' copies of a tensor belongs to this rank, when a checkpoint is resumed.

Ranks that hold the same tensor hold the same values, except where names mean something else on each rank (pipeline stages
built of equal modules) or values are a rank's own (statistics of BatchNorm). So a rank reads its own copy if the number of
ranks is that of the save; otherwise copies must agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import List, Tuple

from paceline.checkpoint.checkpoint_content import Checkpoint
from paceline.checkpoint.plan.file_plan import Piece, PlannedTensor
from paceline.checkpoint.rank_copies import differing_ranks, said
from paceline.checkpoint.tensors.tensor_slice import TensorSlice
from paceline.core.errors import PacelineError


@dataclass(frozen=True)
class SavedCopies:
    checkpoint: Checkpoint
    rank: int
    world_size: int

    def planned(self, name: str, wanted: TensorSlice, *, must_agree: bool) -> PlannedTensor:
        """must_agree: a weight, not a buffer, whose values may be each rank's own."""
        copies = self._copies(name)
        own = [piece for owner, piece in copies if owner == self.rank and piece.slice == wanted]
        if own and len(self.checkpoint.ranks) == self.world_size:
            return PlannedTensor(name, own[0].stored.dtype, wanted, own[:1], 0)
        if must_agree:
            self._check_agreement(name, copies)
        parameter = self.checkpoint.parameters.get(name)
        if parameter is None:
            return self.checkpoint.plan_unlisted(name, self.rank)
        return self.checkpoint.plan_tensor(parameter, wanted)

    def _copies(self, name: str) -> List[Tuple[int, Piece]]:
        parameter = self.checkpoint.parameters.get(name)
        return list(self.checkpoint.unlisted[name].items()) if parameter is None else parameter.copies

    def _check_agreement(self, name: str, copies: Sequence[Tuple[int, Piece]]) -> None:
        if ranks := differing_ranks(copies):
            raise PacelineError(
                said(name, *ranks),
                hint=f"pipeline stages with equal names resume on {len(self.checkpoint.ranks)} ranks only, or"
                " give every stage names of its own",
            )
