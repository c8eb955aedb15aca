"""Strategy: which rank holds which slice of which parameter, for all pipeline stages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paceline.checkpoint.file_names import natural_key
from paceline.checkpoint.strategy.strategy_file import Operator, StrategyFile, decode, encode
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.core.errors import FormatError, PacelineError, UsageError
from paceline.storage.reachability import require_reachable
from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.base import Store
from paceline.storage.stores.open_store import open_item, open_store

MERGED_NAME = "merged_ckpt_strategy.ckpt"
_STAGED = re.compile(r"(\d{1,6})-(.+)", re.DOTALL)
_MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class Strategy:
    """Layouts of all parameters, by stage; stage s has the ranks s·devices … (s+1)·devices - 1."""

    stages: tuple[Mapping[str, TensorLayout], ...]
    operators: tuple[Operator, ...] = ()

    @property
    def devices(self) -> int:
        """Devices per stage."""
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
    """Read a strategy file, or merge a directory of them; None, "" or "None" mean full weights."""
    if where is None or where in ("", "None"):
        return None
    require_reachable(where)
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
        items = [item for item in store.list_files(recursive=False) if item.key.endswith((".ckpt", ".json"))]
        if not items:
            raise UsageError(
                f"{where}: no strategy file found", hint="pass a file, or a directory of *.ckpt or *.json files"
            )
        return merge({item.key: _read(store, item) for item in sorted(items, key=lambda item: natural_key(item.key))})
    finally:
        store.close()


def merge(files: Mapping[str, StrategyFile]) -> Strategy:
    """Merge the files of ranks or stages (or one merged file) into a strategy; files of one stage must agree."""
    # A merged file next to the files it was made of may be stale; several merged files must agree.
    plain = {name: file for name, file in files.items() if not is_merged(file)} or dict(files)
    stages: dict[int, dict[str, TensorLayout]] = {}
    operators: dict[tuple[int, str], Operator] = {}
    for file_name, file in plain.items():
        for stage, name, layout in _placed(file_name, file, alone=len(plain) == 1):
            known = stages.setdefault(stage, {}).setdefault(name, layout)
            if known != layout:
                raise FormatError(f"{file_name}: its layout of {name} in stage {stage} differs from other files")
        for operator in file.operators:
            operators.setdefault((operator.stage, operator.name), operator)
    _check(stages, list(plain))
    return Strategy(tuple(stages[stage] for stage in sorted(stages)), tuple(operators.values()))


def is_merged(file: StrategyFile) -> bool:
    """Merged files prefix every name with "STAGE-"; if only some names contain "-", the file is not merged."""
    return bool(file.layouts) and all(_STAGED.fullmatch(name) for name in file.layouts)


def encode_strategy(strategy: Strategy, *, merged: bool, as_json: bool, stage: int = 0) -> bytes:
    """The bytes of a strategy file; `merged` adds the stage to every name, as pipelines need. `stage`: of a file of one."""
    if not merged and len(strategy.stages) > 1:
        raise UsageError("several pipeline stages need a merged file")
    layouts = {
        f"{number}-{name}" if merged else name: layout
        for number, stage in enumerate(strategy.stages)
        for name, layout in stage.items()
    }
    # MindSpore reads the stage of a file from its first operator, and refuses files without any.
    operators = strategy.operators or (Operator("paceline", stage, ()),)
    return encode(StrategyFile(operators, layouts), as_json=as_json)


def _placed(file_name: str, file: StrategyFile, *, alone: bool) -> Iterable[tuple[int, str, TensorLayout]]:
    if is_merged(file):
        for name, layout in file.layouts.items():
            found = _STAGED.fullmatch(name)
            assert found
            yield int(found[1]), found[2], layout
        return
    stage = file.operators[0].stage if file.operators else 0
    if not file.operators and not alone:
        raise FormatError(f"{file_name}: lists no operators, so its pipeline stage is unknown")
    for name, layout in file.layouts.items():
        # A single file of a pipeline is treated as a whole job: its ranks count from 0.
        yield 0 if alone else stage, name, layout


def _check(stages: Mapping[int, Mapping[str, TensorLayout]], files: list[str]) -> None:
    shown = ", ".join(files[:3]) + (" …" if len(files) > 3 else "")
    if not stages or not all(stages.values()):
        raise FormatError(f"{shown}: contains no parameter layouts", file=None)
    missing = sorted(set(range(max(stages) + 1)) - set(stages))
    if missing:
        raise PacelineError(
            f"{shown}: pipeline stage {', '.join(map(str, missing))} is missing",
            hint="pass the strategy files of all stages",
        )
    counts = {layout.device_count for stage in stages.values() for layout in stage.values()}
    if len(counts) > 1:
        raise FormatError(f"{shown}: stages have different numbers of devices: {', '.join(map(str, sorted(counts)))}")


def _read(store: Store, item: StoredFile) -> StrategyFile:
    name = f"{store.url}/{item.key}"
    if item.size > _MAX_BYTES:
        raise FormatError(f"{name}: {item.size:,} bytes are too large for a strategy file")
    return decode(bytes(store.read(item, 0, item.size)), name)
