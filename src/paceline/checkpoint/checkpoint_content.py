"""The content of a checkpoint: its parameters, their full shapes, and the pieces of them that files hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from paceline.checkpoint.formats.torch_dcp import NamePath
from paceline.checkpoint.plan.file_plan import Piece, PlannedTensor
from paceline.checkpoint.strategy.strategy import Strategy
from paceline.checkpoint.strategy.strategy_spec import CheckpointTensors
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.checkpoint.tensors.dtypes import DType
from paceline.checkpoint.tensors.tensor_index import Container
from paceline.checkpoint.tensors.tensor_slice import Shape, TensorSlice, are_disjoint, full_slice
from paceline.core.errors import FormatError, PacelineError, UsageError

_SHOWN_RANKS = 8


@dataclass
class Parameter:
    """A parameter, and which rank's file holds which slice of it."""

    name: str
    dtype: DType
    shape: Shape
    order: int
    copies: list[tuple[int, Piece]] = field(default_factory=list)
    layout: TensorLayout | None = None

    def pieces(self, devices: int) -> list[Piece]:
        """One copy of each slice: from the first pipeline stage that is complete, else from all stages together."""
        by_stage: dict[int, dict[TensorSlice, Piece]] = {}
        for rank, piece in self.copies:
            by_stage.setdefault(rank // devices, {}).setdefault(piece.slice, piece)
        full = full_slice(self.shape).size
        complete = [pieces for pieces in by_stage.values() if sum(each.size for each in pieces) >= full]
        if complete:
            best = complete[0]
        else:
            together = {each: piece for pieces in by_stage.values() for each, piece in pieces.items()}
            best = together if are_disjoint(list(together)) else max(by_stage.values(), key=len)
        if not are_disjoint(list(best)):
            raise FormatError(f"{self.name}: slices of this parameter overlap")
        return sorted(best.values(), key=lambda piece: piece.slice.start)


@dataclass
class Checkpoint:
    url: str
    format: str
    ranks: dict[int, Container | list[Container]]
    parameters: dict[str, Parameter]
    unlisted: dict[str, dict[int, Piece]]
    """Tensors that the strategy does not list (global_step, loss_scale), by rank; each file holds the full tensor."""
    strategy: Strategy | None = None
    notes: list[str] = field(default_factory=list)
    common: bytes | None = None
    """common.json of a MindFormers 2.0 checkpoint."""
    objects: dict[str, PlannedTensor] = field(default_factory=dict)
    """Entries of a torch DCP checkpoint that are not tensors, as the bytes that torch wrote."""
    paths: dict[str, NamePath] = field(default_factory=dict)
    """Flat name → keys in the nested dictionary that was saved (torch DCP)."""
    _pieces: dict[str, list[Piece]] = field(default_factory=dict)
    _planned: dict[tuple[str, TensorSlice], PlannedTensor] = field(default_factory=dict)

    @property
    def devices(self) -> int:
        """Devices per pipeline stage."""
        return self.strategy.devices if self.strategy else max(self.ranks) + 1

    @property
    def containers(self) -> Iterable[tuple[int, Container]]:
        for rank, held in self.ranks.items():
            for container in held if isinstance(held, list) else [held]:
                yield rank, container

    @property
    def shapes(self) -> dict[str, Shape]:
        """Full shapes of the parameters, then of the unlisted tensors."""
        unlisted = {name: next(iter(copies.values())).slice.shape for name, copies in self.unlisted.items()}
        return {name: parameter.shape for name, parameter in self.parameters.items()} | unlisted

    @property
    def tensors(self) -> CheckpointTensors:
        """Input for making a strategy from a spec."""
        return CheckpointTensors(self.shapes, self.unlisted, len(self.ranks))

    def keep_below(self, prefix: str) -> None:
        """Keep only entries whose name begins with `prefix` and a dot, and remove that from their names."""
        start = f"{prefix}."
        parameters = {name[len(start) :]: each for name, each in self.parameters.items() if name.startswith(start)}
        unlisted = {name[len(start) :]: each for name, each in self.unlisted.items() if name.startswith(start)}
        if not parameters and not unlisted:
            first = sorted({name.partition(".")[0] for name in (*self.parameters, *self.unlisted)})
            raise UsageError(
                f"{self.url}: no entry is below '{prefix}'", hint=f"names begin with {', '.join(first[:8])}"
            )
        for name, parameter in parameters.items():
            parameter.name = name
        self.parameters, self.unlisted = parameters, unlisted
        self.objects = {
            name[len(start) :]: replace(each, name=name[len(start) :])
            for name, each in self.objects.items()
            if name.startswith(start)
        }
        self.paths = {}

    def plan_tensor(self, parameter: Parameter, wanted: TensorSlice) -> PlannedTensor:
        """A slice of a parameter and the pieces that cover it; an error names the missing ranks if they do not."""
        if (parameter.name, wanted) not in self._planned:
            self._planned[parameter.name, wanted] = self._cover(parameter, wanted)
        return self._planned[parameter.name, wanted]

    def full_tensors(self) -> dict[str, PlannedTensor]:
        """All parameters in full, then the unlisted tensors."""
        found = {p.name: self.plan_tensor(p, full_slice(p.shape)) for p in self.parameters.values()}
        for name in self.unlisted:
            found[name] = self.plan_unlisted(name, 0)
        return found

    def plan_unlisted(self, name: str, rank: int) -> PlannedTensor:
        """From the rank with the same position in its stage, as MindSpore does, or the first rank that has it."""
        copies = self.unlisted[name]
        position = rank % self.devices
        piece = next((copy for owner, copy in copies.items() if owner % self.devices == position), None)
        piece = piece or next(iter(copies.values()))
        return PlannedTensor(name, piece.stored.dtype, piece.slice, [piece], len(self.parameters))

    def _cover(self, parameter: Parameter, wanted: TensorSlice) -> PlannedTensor:
        if parameter.name not in self._pieces:
            self._pieces[parameter.name] = parameter.pieces(self.devices)
        pieces = [piece for piece in self._pieces[parameter.name] if piece.slice.intersection(wanted)]
        covered = sum(found.size for piece in pieces if (found := piece.slice.intersection(wanted)))
        if covered != wanted.size:
            raise PacelineError(
                f"{parameter.name}: no file holds {wanted}{self._missing_ranks(parameter, wanted)}",
                hint="the files of all ranks are needed, unless another rank holds the same slice",
            )
        return PlannedTensor(parameter.name, parameter.dtype, wanted, pieces, parameter.order)

    def _missing_ranks(self, parameter: Parameter, wanted: TensorSlice) -> str:
        if self.strategy is None:
            return ""
        missing = []
        for rank in range(self.strategy.ranks):
            layout = self.strategy.stages[self.strategy.stage_of(rank)].get(parameter.name)
            if rank not in self.ranks and layout is not None:
                held = layout.rank_slice(parameter.name, rank % self.devices, parameter.shape)
                if held.intersection(wanted):
                    missing.append(rank)
        return f": the checkpoint of rank {shorten_ranks(missing)} is missing" if missing else ""


def shorten_ranks(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:_SHOWN_RANKS])) + (" …" if len(ranks) > _SHOWN_RANKS else "")
