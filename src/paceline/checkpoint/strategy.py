"""Strategies: which rank holds which part of which parameter, over all pipeline stages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paceline.checkpoint.choice import natural
from paceline.checkpoint.layout import Layout
from paceline.checkpoint.strategy_file import Operator, StrategyFile, decode, encode
from paceline.errors import FormatError, PacelineError, UsageError
from paceline.storage.opening import open_item, open_store
from paceline.storage.store import Item, Store

MERGED_NAME = "merged_ckpt_strategy.ckpt"
_STAGED = re.compile(r"(\d{1,6})-(.+)", re.DOTALL)
_LARGEST = 1 << 30


@dataclass(frozen=True)
class Strategy:
    """Stage s owns ranks s·devices … (s+1)·devices - 1."""

    stages: tuple[Mapping[str, Layout], ...]
    operators: tuple[Operator, ...] = ()

    @property
    def devices(self) -> int:
        """Of one stage."""
        return next(iter(self.stages[0].values())).device_count

    @property
    def ranks(self) -> int:
        return self.devices * len(self.stages)

    @property
    def names(self) -> set[str]:
        return {name for stage in self.stages for name in stage}

    def stage_of(self, rank: int) -> int:
        return rank // self.devices


def read_strategy(where: str | None) -> Strategy | None:
    """A strategy file, or a directory of them to be merged; None, "" or "None" is full weights."""
    if where is None or where in ("", "None"):
        return None
    single = open_item(where)
    if single is not None:
        store, item = single
        try:
            return merge({item.key: _read(store, item)})
        finally:
            store.close()
    return read_strategy_directory(where)


def read_strategy_directory(where: str) -> Strategy:
    store = open_store(where)
    try:
        items = [item for item in store.items(shallow=True) if item.key.endswith((".ckpt", ".json"))]
        if not items:
            raise UsageError(
                f"{where}: no strategy file there", hint="a file, or a directory of *.ckpt or *.json files"
            )
        return merge({item.key: _read(store, item) for item in sorted(items, key=lambda item: natural(item.key))})
    finally:
        store.close()


def merge(files: Mapping[str, StrategyFile]) -> Strategy:
    """Files of ranks or stages (or one that is merged already) as one strategy; files of one stage must agree."""
    # A merged file beside the files it was made of may be stale; several merged ones must agree.
    plain = {name: file for name, file in files.items() if not is_merged(file)} or dict(files)
    stages: dict[int, dict[str, Layout]] = {}
    operators: dict[tuple[int, str], Operator] = {}
    for file_name, file in plain.items():
        for stage, name, layout in _placed(file_name, file, alone=len(plain) == 1):
            known = stages.setdefault(stage, {}).setdefault(name, layout)
            if known != layout:
                raise FormatError(
                    f"{file_name}: says something else about {name} of stage {stage} than the files before"
                )
        for operator in file.operators:
            operators.setdefault((operator.stage, operator.name), operator)
    _check(stages, list(plain))
    return Strategy(tuple(stages[stage] for stage in sorted(stages)), tuple(operators.values()))


def is_merged(file: StrategyFile) -> bool:
    """Merged files put "stage-" before every name; a "-" in some names means nothing."""
    return bool(file.layouts) and all(_STAGED.fullmatch(name) for name in file.layouts)


def write_strategy(strategy: Strategy, *, merged: bool, as_json: bool) -> bytes:
    """The bytes of a strategy file; `merged` names stages, as files of pipelines must."""
    if not merged and len(strategy.stages) > 1:
        raise UsageError("several pipeline stages need a merged file")
    layouts = {
        f"{number}-{name}" if merged else name: layout
        for number, stage in enumerate(strategy.stages)
        for name, layout in stage.items()
    }
    # MindSpore reads the stage of a file from its first operator, and refuses files without any.
    operators = strategy.operators or (Operator("paceline", 0, ()),)
    return encode(StrategyFile(operators, layouts), as_json=as_json)


def _placed(file_name: str, file: StrategyFile, *, alone: bool) -> Iterable[tuple[int, str, Layout]]:
    if is_merged(file):
        for name, layout in file.layouts.items():
            found = _STAGED.fullmatch(name)
            assert found
            yield int(found[1]), found[2], layout
        return
    stage = file.operators[0].stage if file.operators else 0
    if not file.operators and not alone:
        raise FormatError(f"{file_name}: names no operator, so its pipeline stage is unknown")
    for name, layout in file.layouts.items():
        # A pipeline's only file that was given is a part of it: its ranks count from its own first one.
        yield 0 if alone else stage, name, layout


def _check(stages: Mapping[int, Mapping[str, Layout]], files: list[str]) -> None:
    shown = ", ".join(files[:3]) + (" …" if len(files) > 3 else "")
    if not stages or not all(stages.values()):
        raise FormatError(f"{shown}: no parameter layout in it", file=None)
    missing = sorted(set(range(max(stages) + 1)) - set(stages))
    if missing:
        raise PacelineError(
            f"{shown}: pipeline stage {', '.join(map(str, missing))} is missing",
            hint="give the strategy files of all stages",
        )
    counts = {layout.device_count for stage in stages.values() for layout in stage.values()}
    if len(counts) > 1:
        raise FormatError(f"{shown}: stages of {' and '.join(map(str, sorted(counts)))} devices in one strategy")


def _read(store: Store, item: Item) -> StrategyFile:
    name = f"{store.url}/{item.key}"
    if item.size > _LARGEST:
        raise FormatError(f"{name}: {item.size:,} bytes are no strategy")
    return decode(bytes(store.read(item, 0, item.size)), name)
