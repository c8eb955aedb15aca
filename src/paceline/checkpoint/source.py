"""A checkpoint as one set of parameters: for each its full shape, and the pieces of it that lie in files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from paceline.checkpoint import mindformers
from paceline.checkpoint.box import Box, Shape, are_disjoint, whole
from paceline.checkpoint.choice import Step, choose, is_weights, rank_files, step_of
from paceline.checkpoint.containers import open_container
from paceline.checkpoint.dtypes import DType, label
from paceline.checkpoint.files import Place
from paceline.checkpoint.frame import Piece, Wanted
from paceline.checkpoint.layout import Layout
from paceline.checkpoint.strategy import Strategy
from paceline.checkpoint.tensors import Container
from paceline.errors import FormatError, PacelineError, UsageError

_MOST_INDEX = 1 << 30
_MOST_SHARED = 0.25
"""Of a file's tensors may belong to other stages, as shared embeddings do."""


@dataclass
class Parameter:
    """What is known of a parameter: copies of its parts, by rank."""

    name: str
    dtype: DType
    shape: Shape
    order: int
    copies: list[tuple[int, Piece]] = field(default_factory=list)
    layout: Layout | None = None

    def pieces(self, devices: int) -> list[Piece]:
        """One copy of each part, from the first pipeline stage that has all of them, or else from all that fit together."""
        by_stage: dict[int, dict[Box, Piece]] = {}
        for rank, piece in self.copies:
            by_stage.setdefault(rank // devices, {}).setdefault(piece.box, piece)
        full = whole(self.shape).size
        complete = [parts for parts in by_stage.values() if sum(box.size for box in parts) >= full]
        if complete:
            best = complete[0]
        else:
            together = {box: piece for parts in by_stage.values() for box, piece in parts.items()}
            best = together if are_disjoint(list(together)) else max(by_stage.values(), key=len)
        if not are_disjoint(list(best)):
            raise FormatError(f"{self.name}: parts of it overlap")
        return sorted(best.values(), key=lambda piece: piece.box.start)


@dataclass
class Checkpoint:
    url: str
    format: str
    ranks: dict[int, Container | list[Container]]
    parameters: dict[str, Parameter]
    loose: dict[str, dict[int, Piece]]
    """Tensors no strategy speaks of (global_step, loss_scale): by rank, each whole."""
    strategy: Strategy | None = None
    notes: list[str] = field(default_factory=list)
    common: bytes | None = None
    """common.json of a checkpoint 2.0."""
    _pieces: dict[str, list[Piece]] = field(default_factory=dict)
    _wanted: dict[tuple[str, Box], Wanted] = field(default_factory=dict)

    @property
    def devices(self) -> int:
        """Of one pipeline stage."""
        return self.strategy.devices if self.strategy else max(self.ranks) + 1

    @property
    def containers(self) -> Iterable[tuple[int, Container]]:
        for rank, held in self.ranks.items():
            for container in held if isinstance(held, list) else [held]:
                yield rank, container

    def wanted(self, parameter: Parameter, box: Box) -> Wanted:
        """A part of a parameter, covered by pieces; says which ranks are missing when it is not."""
        if (parameter.name, box) not in self._wanted:
            self._wanted[parameter.name, box] = self._find(parameter, box)
        return self._wanted[parameter.name, box]

    def _find(self, parameter: Parameter, box: Box) -> Wanted:
        if parameter.name not in self._pieces:
            self._pieces[parameter.name] = parameter.pieces(self.devices)
        pieces = [piece for piece in self._pieces[parameter.name] if piece.box.common(box)]
        covered = sum(found.size for piece in pieces if (found := piece.box.common(box)))
        if covered != box.size:
            raise PacelineError(
                f"{parameter.name}: {box} is in no file{self._lacking(parameter, box)}",
                hint="every rank's file is needed, unless another rank holds the same part",
            )
        return Wanted(parameter.name, parameter.dtype, box, pieces, parameter.order)

    def full(self) -> dict[str, Wanted]:
        """Every parameter whole, then what no strategy speaks of."""
        found = {p.name: self.wanted(p, whole(p.shape)) for p in self.parameters.values()}
        for name in self.loose:
            found[name] = self.loose_copy(name, 0)
        return found

    def loose_copy(self, name: str, rank: int) -> Wanted:
        """As MindSpore does it: from the rank at the same place of its stage, or the first that has it."""
        copies = self.loose[name]
        place = rank % self.devices
        piece = next((copy for owner, copy in copies.items() if owner % self.devices == place), None)
        piece = piece or next(iter(copies.values()))
        return Wanted(name, piece.stored.dtype, piece.box, [piece], len(self.parameters))

    def _lacking(self, parameter: Parameter, box: Box) -> str:
        if self.strategy is None:
            return ""
        missing = []
        for rank in range(self.strategy.ranks):
            layout = self.strategy.stages[self.strategy.stage_of(rank)].get(parameter.name)
            if rank not in self.ranks and layout is not None:
                held = layout.box(parameter.name, rank % self.devices, parameter.shape)
                if held.common(box):
                    missing.append(rank)
        if not missing:
            return ""
        shown = ", ".join(map(str, missing[:8])) + (" …" if len(missing) > 8 else "")
        return f": the checkpoint of rank {shown} is missing"


def open_checkpoint(
    place: Place, strategy: Strategy | None = None, *, step: Step | None = None, once: bool = False
) -> Checkpoint:
    """Ranks' directories with a strategy, a checkpoint 2.0, or full weights in one or several files.

    `once`: of equal parts only one was saved (remove_redundancy); safetensors say so themselves.
    """
    if place.single is not None:
        return _ranked(place, {0: place.single}, strategy, [], once)
    tracked = None
    if mindformers.TRACKER in place.items:
        tracked = place.read_all(mindformers.TRACKER, 64).decode("utf-8", "replace")
    folder = mindformers.find(place.items, tracked)
    if folder is not None:
        return _version_two(place, folder)
    ranks = rank_files(place.items)
    if ranks:
        files, notes = choose(ranks, step)
        return _ranked(place, files, strategy, notes, once)
    return _full(place, strategy, step)


def _ranked(
    place: Place, files: Mapping[int, str], strategy: Strategy | None, notes: list[str], once: bool
) -> Checkpoint:
    ranks: dict[int, Container | list[Container]] = {
        rank: open_container(place.file(key)) for rank, key in files.items()
    }
    made = Checkpoint(place.url, _one_format(ranks), ranks, {}, {}, strategy, list(notes))
    if strategy is not None:
        _check_ranks(made, strategy)
    for rank, container in made.containers:
        _add(made, rank, container)
    if strategy is not None and not made.parameters:
        raise PacelineError(
            f"{place.url}: the strategy names none of its tensors", hint="this strategy belongs to another model"
        )
    if strategy is not None:
        for rank, container in made.containers:
            _check_belongs(made, strategy, rank, container, once)
    return made


def _check_belongs(made: Checkpoint, strategy: Strategy, rank: int, container: Container, once: bool) -> None:
    """Shapes may fit a wrong strategy by chance; who holds what does not."""
    number = strategy.stage_of(rank)
    stage = strategy.stages[number]
    strangers = [name for name in container.tensors if name in strategy.names and name not in stage]
    if len(strangers) > _MOST_SHARED * len(container.tensors):
        raise PacelineError(
            f"{container.file.name}: holds {strangers[0]}, which the strategy does not place on stage {number}",
            hint="this strategy belongs to another run",
        )
    once = once or container.metadata.get("remove_redundancy") == "True"
    lacking = [name for name in stage if name in made.parameters and name not in container.tensors]
    if lacking and not once:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise PacelineError(
            f"{container.file.name}: lacks {lacking[0]}{more}, which the strategy places on rank {rank}",
            hint="this strategy belongs to another run; or say --remove_redundancy, if equal parts were saved only once",
        )


def _check_ranks(made: Checkpoint, strategy: Strategy) -> None:
    beyond = [rank for rank in made.ranks if rank >= strategy.ranks]
    if beyond:
        raise PacelineError(
            f"{made.url}: has rank {beyond[0]}, the strategy speaks of {strategy.ranks} ranks",
            hint="this strategy belongs to another run",
        )
    missing = [rank for rank in range(strategy.ranks) if rank not in made.ranks]
    if missing:
        shown = ", ".join(map(str, missing[:8])) + (" …" if len(missing) > 8 else "")
        made.notes.append(f"the checkpoint of rank {shown} is missing: only parts that others hold too are there")


def _add(made: Checkpoint, rank: int, container: Container) -> None:
    strategy = made.strategy
    stage: Mapping[str, Layout] = strategy.stages[strategy.stage_of(rank)] if strategy else {}
    for name, stored in container.tensors.items():
        layout = stage.get(name)
        if layout is None and (strategy is not None or len(made.ranks) > 1):
            made.loose.setdefault(name, {})[rank] = Piece(whole(stored.shape), container, stored)
            continue
        shape = layout.full_shape(name, stored.shape) if layout else stored.shape
        box = layout.box(name, rank % made.devices, shape) if layout else whole(shape)
        known = made.parameters.setdefault(
            name, Parameter(name, stored.dtype, shape, len(made.parameters), layout=layout)
        )
        if (known.dtype, known.shape) != (stored.dtype, shape):
            raise PacelineError(
                f"{container.file.name}: {name} would be {label(stored.dtype)} {list(shape)} as a whole,"
                f" by other ranks it is {label(known.dtype)} {list(known.shape)}",
                hint="this strategy does not fit this checkpoint, or the files are of different runs",
            )
        known.copies.append((rank, Piece(box, container, stored)))


def _full(place: Place, strategy: Strategy | None, step: Step | None) -> Checkpoint:
    if strategy is not None and strategy.ranks > 1:
        raise UsageError(
            f"{place.url}: no rank_0, rank_1, … there", hint="a source strategy needs a directory per rank"
        )
    keys = _full_files(place, step)
    containers = [open_container(place.file(key)) for key in keys]
    made = Checkpoint(place.url, _one_format({0: containers}), {0: containers}, {}, {})
    for container in containers:
        for name, stored in container.tensors.items():
            if name in made.parameters:
                raise PacelineError(
                    f"{container.file.name}: {name} is in another file too", hint="are these several checkpoints?"
                )
            parameter = Parameter(name, stored.dtype, stored.shape, len(made.parameters))
            parameter.copies.append((0, Piece(whole(stored.shape), container, stored)))
            made.parameters[name] = parameter
    return made


def _full_files(place: Place, step: Step | None) -> list[str]:
    """By index, by number, or all of them together."""
    keys = [key for key in place.items if "/" not in key and is_weights(key)]
    indexes = [key for key in place.items if key.endswith("safetensors.index.json") or key == "param_name_map.json"]
    if indexes:
        listed = _indexed(place, indexes[0])
        missing = sorted(listed - set(place.items))
        if missing:
            raise PacelineError(f"{place.url}/{indexes[0]}: names {missing[0]}, which is not there")
        extra = {"hyper_param.safetensors"} & set(keys)
        return sorted(listed | extra)
    if not keys:
        raise UsageError(f"{place.url}: no checkpoint there", hint="rank_0/…, *.ckpt, *.safetensors or *.pt files")
    if len(keys) == 1:
        return keys
    if step is not None or any(step_of(key) for key in keys):
        return [choose({0: keys}, step)[0][0]]
    return sorted(keys)


def _indexed(place: Place, key: str) -> set[str]:
    try:
        content = json.loads(place.read_all(key, _MOST_INDEX))
        found = content.get("weight_map", content)
        return {str(name) for name in found.values() if "/" not in str(name)}
    except (ValueError, AttributeError, TypeError) as error:
        raise FormatError(f"{place.url}/{key}: cannot be read ({error})") from None


def _version_two(place: Place, folder: str) -> Checkpoint:
    text = place.read_all(folder + mindformers.METADATA, _MOST_INDEX)
    slices, layouts = mindformers.read(text, f"{place.url}/{folder}{mindformers.METADATA}")
    keys = sorted({folder + file for _, parts in slices.values() for _, file in parts})
    lacking = [key for key in keys if key not in place.items]
    there = {key: open_container(place.file(key)) for key in keys if key in place.items}
    ranks: dict[int, Container | list[Container]] = {}
    for key, container in there.items():
        held = ranks.setdefault(mindformers.rank_of(key) or 0, [])
        assert isinstance(held, list)
        held.append(container)
    if not ranks:
        raise PacelineError(f"{place.url}/{folder}: none of the files that {mindformers.METADATA} names is there")
    made = Checkpoint(place.url, mindformers.FORMAT, ranks, {}, {})
    made.notes += [f"{key} is missing: only parts that others hold too are there" for key in lacking[:3]]
    if folder + mindformers.COMMON in place.items:
        made.common = place.read_all(folder + mindformers.COMMON, 1 << 20)
    for name, (shape, parts) in slices.items():
        for box, file in parts:
            found = there.get(folder + file)
            stored = found.tensors.get(name) if found else None
            if found is None or stored is None:
                continue  # with reduced redundancy, one of the named files holds it
            if stored.shape != box.shape:
                raise FormatError(f"{found.file.name}: {name} is {list(stored.shape)}, {list(box.shape)} expected")
            parameter = made.parameters.setdefault(
                name, Parameter(name, stored.dtype, shape, len(made.parameters), layout=layouts.get(name))
            )
            parameter.copies.append((mindformers.rank_of(folder + file) or 0, Piece(box, found, stored)))
        if name not in made.parameters:
            raise PacelineError(f"{place.url}/{folder}: {name} is in no file that is there")
    return made


def _one_format(ranks: Mapping[int, Container | list[Container]]) -> str:
    found = {each.format for held in ranks.values() for each in (held if isinstance(held, list) else [held])}
    return found.pop() if len(found) == 1 else "safetensors"
