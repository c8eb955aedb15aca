"""Make a strategy from a text spec, for runs whose strategy was not saved.

    dp=2,tp=2,pp=2,opt           device matrix, outermost axis first; pp: pipeline stages, opt: shard over all replicas
    *.wq.weight: tp,-            axis 0 sharded by tp, axis 1 not sharded; the first rule with a matching pattern applies
    embedding.*: dp+tp,- @0      sharded by both, dp outermost; on pipeline stage 0

Parameters without a rule are replicated on every rank. Without "@", the stage follows from the ranks whose files hold the
parameter, or else from the layer number in its name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod

from paceline.checkpoint.strategy.strategy import Strategy
from paceline.checkpoint.strategy.strategy_file import Operator
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.checkpoint.tensors.tensor_slice import Shape
from paceline.core.errors import PacelineError, UsageError

_LAYER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h)\.(\d{1,6})(?:\.|$)")
_STATE = re.compile(r"^(?:adam_m|adam_v|moments|moment1|moment2|exp_avg|exp_avg_sq|accu_grads)\.")
_EXAMPLE = "example: dp=2,tp=2,pp=2,opt"


@dataclass(frozen=True)
class StrategySpec:
    axes: Mapping[str, int]
    """Axes of the device matrix and their sizes, outermost first."""
    stages: int = 1
    shards: int = 0
    """Optimizer shards: 0 none, -1 over all replicas."""

    @property
    def devices(self) -> int:
        return prod(self.axes.values())


@dataclass(frozen=True)
class LayoutRule:
    pattern: str
    cuts: tuple[tuple[str, ...], ...] | None
    stages: tuple[int, ...] | None


@dataclass(frozen=True)
class CheckpointTensors:
    """Tensors of a checkpoint for which a strategy is made."""

    shapes: Mapping[str, Shape]
    """Shapes of full tensors, or of one rank's slices if each rank has a file."""
    holders: Mapping[str, Collection[int]]
    """Ranks whose files hold a tensor; empty when the checkpoint holds full tensors."""
    ranks: int


def parse_spec(text: str) -> StrategySpec:
    """
    >>> parse_spec("dp=2,tp=4,pp=2,opt").devices
    8
    """
    axes: dict[str, int] = {}
    stages, shards = 1, 0
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = part.partition("=")
        if name == "opt" and not number:
            shards = -1
            continue
        if not number.isdecimal() or not 0 < int(number) < 1 << 20 or not re.fullmatch(r"[A-Za-z]\w*", name):
            raise UsageError(f"invalid layout spec: {part}", hint=_EXAMPLE)
        if name in axes or (name == "pp" and stages > 1):
            raise UsageError(f"invalid layout spec: {name} appears twice", hint=_EXAMPLE)
        if name == "pp":
            stages = int(number)
        elif name == "opt":
            shards = int(number)
        else:
            axes[name] = int(number)
    return StrategySpec(axes or {"dp": 1}, stages, shards)


def parse_rule(text: str) -> LayoutRule:
    """
    >>> parse_rule("*.wq.weight: tp,- @0,1")
    LayoutRule(pattern='*.wq.weight', cuts=(('tp',), ()), stages=(0, 1))
    """
    pattern, colon, rest = text.rpartition(":")
    cuts_text, at, stages_text = rest.partition("@")
    if not colon or not pattern.strip():
        raise UsageError(f"invalid rule: {text.strip()}", hint="example: *.wq.weight: tp,-")
    stages = None
    if at:
        numbers = [each.strip() for each in stages_text.split(",")]
        if not all(number.isdecimal() for number in numbers):
            raise UsageError(
                f"invalid rule: {text.strip()}: {stages_text.strip()} are not stage numbers",
                hint="example: embedding.*: tp,- @0",
            )
        stages = tuple(map(int, numbers))
    cuts = None
    if cuts_text.strip():
        cuts = tuple(
            () if axis.strip() == "-" else tuple(each.strip() for each in axis.split("+"))
            for axis in cuts_text.split(",")
        )
    return LayoutRule(pattern.strip(), cuts, stages)


def make_strategy(spec: StrategySpec, rules: Sequence[LayoutRule], tensors: CheckpointTensors) -> Strategy:
    """The strategy for the parameters of a checkpoint with full weights, or with a file per rank."""
    shapes = tensors.shapes
    held = _held_stages(spec, tensors)
    layers = [int(match[1]) for name in shapes if (match := _LAYER.search(name))]
    stages: list[dict[str, TensorLayout]] = [{} for _ in range(spec.stages)]
    unplaced = []
    used: set[LayoutRule] = set()
    for name, shape in shapes.items():
        rule = next((rule for rule in rules if _matches(rule, name)), None)
        if rule is not None:
            used.add(rule)
        layout = _layout(spec, rule, name, shape, is_full=not tensors.holders)
        placed = rule.stages if rule and rule.stages else held.get(name) or _by_layer(name, layers, spec.stages)
        if placed is None:
            unplaced.append(name)
        for stage in placed or ():
            if stage >= spec.stages:
                raise UsageError(f"{name}: stage {stage} does not exist", hint=f"pp={spec.stages}")
            stages[stage][name] = layout
    _check_complete(unplaced, [rule for rule in rules if rule not in used], stages)
    operators = tuple(Operator(f"paceline-stage{stage}", stage, ()) for stage in range(spec.stages))
    return Strategy(tuple(stages), operators)


def _check_complete(
    unplaced: Sequence[str], unused: Sequence[LayoutRule], stages: Iterable[Mapping[str, TensorLayout]]
) -> None:
    if unplaced:
        shown = ", ".join(unplaced[:3]) + (f" and {len(unplaced) - 3} more" if len(unplaced) > 3 else "")
        raise UsageError(f"pipeline stage unknown for {shown}", hint=f'add rules, for example "{unplaced[0]}: @0"')
    if unused:
        raise UsageError(f"rule {unused[0].pattern} matches no parameter, or an earlier rule matches all of them")
    for number, stage in enumerate(stages):
        if not stage:
            raise PacelineError(f"pipeline stage {number} would hold no parameters")


def _matches(rule: LayoutRule, name: str) -> bool:
    """Optimizer states are sharded like the parameters they belong to."""
    return fnmatchcase(name, rule.pattern) or fnmatchcase(_STATE.sub("", name), rule.pattern)


def _layout(spec: StrategySpec, rule: LayoutRule | None, name: str, shape: Shape, *, is_full: bool) -> TensorLayout:
    names = list(spec.axes)
    cuts = rule.cuts if rule and rule.cuts is not None else ((),) * len(shape)
    if len(cuts) != len(shape):
        raise UsageError(
            f"{name}: has {len(shape)} axes, but the rule {rule.pattern if rule else ''} is for {len(cuts)}"
        )
    for each in (axis for cut in cuts for axis in cut):
        if each not in names:
            raise UsageError(f"unknown device axis {each}", hint=f"known: {', '.join(names)}")
    devices = tuple(spec.axes.values())
    layout = TensorLayout(devices, tuple(tuple(names.index(axis) for axis in cut) for cut in cuts))
    sharded = _sharded(layout, spec.shards)
    if sharded is not None and (not is_full or shape[0] % sharded.cuts[0] == 0):
        layout = sharded  # as in MindSpore: what cannot be split evenly is not sharded
    if is_full:
        layout.rank_slice(name, 0, shape)
    return layout


def _sharded(layout: TensorLayout, shards: int) -> TensorLayout | None:
    replicas = prod(layout.devices[axis] for axis in layout.replica_axes)
    count = replicas if shards == -1 else shards
    if count < 2 or not layout.axes or replicas % count:
        return None
    inner = max(axis for axis in layout.replica_axes if layout.devices[axis] > 1)
    return TensorLayout(layout.devices, layout.axes, shards=count, step=prod(layout.devices[inner + 1 :]))


def _held_stages(spec: StrategySpec, tensors: CheckpointTensors) -> dict[str, tuple[int, ...]]:
    """Stages of each tensor, if the ranks' files show them."""
    if spec.stages == 1:
        return dict.fromkeys(tensors.shapes, (0,))
    if tensors.ranks != spec.devices * spec.stages:
        return {}
    return {name: tuple(sorted({rank // spec.devices for rank in ranks})) for name, ranks in tensors.holders.items()}


def _by_layer(name: str, layers: Sequence[int], stages: int) -> tuple[int, ...] | None:
    match = _LAYER.search(name)
    if not match:
        return None
    count = max(layers) + 1
    if count % stages:
        raise UsageError(f"{count} layers cannot be split into {stages} equal stages", hint='add rules with "@stage"')
    return (int(match[1]) * stages // count,)
