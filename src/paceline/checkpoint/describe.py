"""A strategy from a plain description, for runs whose strategy nobody saved.

    dp=2,tp=2,pp=2,opt           the device matrix from outside to inside; pp are stages, opt shards over all replicas
    *.wq.weight: tp,-            axis 0 cut by tp, axis 1 whole; the first rule whose pattern fits a name counts
    embedding.*: dp+tp,- @0      cut by both, dp outermost; on pipeline stage 0

Parameters without a rule are whole on every rank. Stages without an "@" come from where the ranks' files hold a
parameter, or else from the layer number in its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod

from paceline.checkpoint.box import Shape
from paceline.checkpoint.layout import Layout
from paceline.checkpoint.source import Checkpoint
from paceline.checkpoint.strategy import Strategy
from paceline.checkpoint.strategy_file import Operator
from paceline.errors import PacelineError, UsageError

_LAYER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h)\.(\d{1,6})(?:\.|$)")
_STATE = re.compile(r"^(?:adam_m|adam_v|moments|moment1|moment2|exp_avg|exp_avg_sq|accu_grads)\.")
_EXAMPLE = "example: dp=2,tp=2,pp=2,opt"


@dataclass(frozen=True)
class Description:
    axes: Mapping[str, int]
    """Names of the device matrix's axes, outermost first."""
    stages: int = 1
    shards: int = 0
    """Optimizer shards: 0 none, -1 over all replicas."""

    @property
    def devices(self) -> int:
        return prod(self.axes.values())


@dataclass(frozen=True)
class Rule:
    pattern: str
    cuts: tuple[tuple[str, ...], ...] | None
    stages: tuple[int, ...] | None


def parse_description(text: str) -> Description:
    """
    >>> parse_description("dp=2,tp=4,pp=2,opt").devices
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
            raise UsageError(f"{part}: is no part of a description", hint=_EXAMPLE)
        if name in axes or (name == "pp" and stages > 1):
            raise UsageError(f"{name}: is there twice", hint=_EXAMPLE)
        if name == "pp":
            stages = int(number)
        elif name == "opt":
            shards = int(number)
        else:
            axes[name] = int(number)
    return Description(axes or {"dp": 1}, stages, shards)


def parse_rule(text: str) -> Rule:
    """
    >>> parse_rule("*.wq.weight: tp,- @0,1")
    Rule(pattern='*.wq.weight', cuts=(('tp',), ()), stages=(0, 1))
    """
    pattern, colon, rest = text.rpartition(":")
    cuts_text, at, stages_text = rest.partition("@")
    if not colon or not pattern.strip():
        raise UsageError(f"{text.strip()}: is no rule", hint="example: *.wq.weight: tp,-")
    stages = None
    if at:
        numbers = [each.strip() for each in stages_text.split(",")]
        if not all(number.isdecimal() for number in numbers):
            raise UsageError(
                f"{text.strip()}: {stages_text.strip()} are no stages", hint="example: embedding.*: tp,- @0"
            )
        stages = tuple(map(int, numbers))
    cuts = None
    if cuts_text.strip():
        cuts = tuple(
            () if axis.strip() == "-" else tuple(each.strip() for each in axis.split("+"))
            for axis in cuts_text.split(",")
        )
    return Rule(pattern.strip(), cuts, stages)


def describe(description: Description, rules: Sequence[Rule], checkpoint: Checkpoint) -> Strategy:
    """The strategy of a checkpoint's parameters; it may be full, or a run's own ranks."""
    shapes = {name: parameter.shape for name, parameter in checkpoint.parameters.items()}
    shapes |= {name: next(iter(copies.values())).box.shape for name, copies in checkpoint.loose.items()}
    held = _held_stages(description, checkpoint)
    layers = [int(match[1]) for name in shapes if (match := _LAYER.search(name))]
    stages: list[dict[str, Layout]] = [{} for _ in range(description.stages)]
    unplaced = []
    used: set[Rule] = set()
    for name, shape in shapes.items():
        rule = next((rule for rule in rules if _fits(rule, name)), None)
        if rule is not None:
            used.add(rule)
        layout = _layout(description, rule, name, shape, is_full=not checkpoint.loose)
        places = rule.stages if rule and rule.stages else held.get(name) or _by_layer(name, layers, description.stages)
        if places is None:
            unplaced.append(name)
        for stage in places or ():
            if stage >= description.stages:
                raise UsageError(f"{name}: there is no stage {stage}", hint=f"pp={description.stages}")
            stages[stage][name] = layout
    _complain(unplaced, [rule for rule in rules if rule not in used], stages)
    operators = tuple(Operator(f"paceline-stage{stage}", stage, ()) for stage in range(description.stages))
    return Strategy(tuple(stages), operators)


def _complain(unplaced: Sequence[str], unused: Sequence[Rule], stages: Iterable[Mapping[str, Layout]]) -> None:
    if unplaced:
        shown = ", ".join(unplaced[:3]) + (f" and {len(unplaced) - 3} more" if len(unplaced) > 3 else "")
        raise UsageError(f"on which pipeline stage are {shown}?", hint=f'add rules, for example "{unplaced[0]}: @0"')
    if unused:
        raise UsageError(f"{unused[0].pattern}: fits no parameter (or an earlier rule took them all)")
    for number, stage in enumerate(stages):
        if not stage:
            raise PacelineError(f"pipeline stage {number} would hold nothing")


def _fits(rule: Rule, name: str) -> bool:
    """Optimizer states are cut as the parameters they belong to."""
    return fnmatchcase(name, rule.pattern) or fnmatchcase(_STATE.sub("", name), rule.pattern)


def _layout(description: Description, rule: Rule | None, name: str, shape: Shape, *, is_full: bool) -> Layout:
    names = list(description.axes)
    cuts = rule.cuts if rule and rule.cuts is not None else ((),) * len(shape)
    if len(cuts) != len(shape):
        raise UsageError(
            f"{name}: has {len(shape)} axes, the rule {rule.pattern if rule else ''} speaks of {len(cuts)}"
        )
    for each in (axis for cut in cuts for axis in cut):
        if each not in names:
            raise UsageError(f"{each}: is no axis of the devices", hint=f"there are {', '.join(names)}")
    devices = tuple(description.axes.values())
    layout = Layout(devices, tuple(tuple(names.index(axis) for axis in cut) for cut in cuts))
    sharded = _sharded(layout, description.shards)
    if sharded is not None and (not is_full or shape[0] % sharded.cuts[0] == 0):
        layout = sharded  # as MindSpore does it: what cannot be cut evenly stays whole
    if is_full:
        layout.box(name, 0, shape)
    return layout


def _sharded(layout: Layout, shards: int) -> Layout | None:
    replicas = prod(layout.devices[axis] for axis in layout.replica_axes)
    count = replicas if shards == -1 else shards
    if count < 2 or not layout.axes or replicas % count:
        return None
    inner = max(axis for axis in layout.replica_axes if layout.devices[axis] > 1)
    return Layout(layout.devices, layout.axes, shards=count, step=prod(layout.devices[inner + 1 :]))


def _held_stages(description: Description, checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    """Where a run's own files say which stage holds what."""
    if description.stages == 1:
        return dict.fromkeys((*checkpoint.parameters, *checkpoint.loose), (0,))
    if len(checkpoint.ranks) != description.devices * description.stages:
        return {}
    return {
        name: tuple(sorted({rank // description.devices for rank in copies}))
        for name, copies in checkpoint.loose.items()
    }


def _by_layer(name: str, layers: Sequence[int], stages: int) -> tuple[int, ...] | None:
    match = _LAYER.search(name)
    if not match:
        return None
    count = max(layers) + 1
    if count % stages:
        raise UsageError(f"{count} layers cannot be cut into {stages} equal stages", hint='add rules with "@stage"')
    return (int(match[1]) * stages // count,)
