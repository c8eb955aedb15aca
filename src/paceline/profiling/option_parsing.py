"""Parse profiler options: old and new names, strings, numbers and enums of other libraries; each correction is a warning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from enum import Enum
from typing import Any, TypeVar

from paceline.profiling.options import (
    AicoreMetrics,
    ExportType,
    HostSystem,
    ProfilerActivity,
    ProfilerLevel,
    ProfilerOptions,
)
from paceline.profiling.warning import warn

E = TypeVar("E", bound=Enum)

NAMES = tuple(field.name for field in fields(ProfilerOptions))
OLD_NAMES = {
    "aicore_metrics": "aic_metrics",
    "ai_core_metrics": "aic_metrics",
    "host_stack": "with_stack",
    "prof_path": "output_path",
    "profile_level": "profiler_level",
    "record_shape": "record_shapes",
}
"""Older or mistyped names that appear in guides, and their names in MindSpore 2.10."""

_DEPRECATED = {
    "profile_communication": "use 'profiler_level=ProfilerLevel.Level1' or 'profiler_level=ProfilerLevel.Level2' instead.",
    "op_time": "use 'activities=[ProfilerActivity.NPU]' instead.",
    "profile_framework": "use 'activities=[ProfilerActivity.CPU]' instead.",
    "timeline_limit": "it has no effect.",
}
_ENUMS: dict[str, type[Enum]] = {
    "profiler_level": ProfilerLevel,
    "aic_metrics": AicoreMetrics,
}
_ENUM_LISTS: dict[str, type[Enum]] = {
    "activities": ProfilerActivity,
    "export_type": ExportType,
    "host_sys": HostSystem,
}
_NUMBERS: dict[str, dict[int, object]] = {
    "profiler_level": {-1: "LevelNone", 0: "Level0", 1: "Level1", 2: "Level2"},
    "activities": {0: ["CPU", "NPU"], 1: ["CPU"], 2: ["NPU"]},
    "aic_metrics": dict(enumerate(member.name for member in AicoreMetrics if member is not AicoreMetrics.AiCoreNone)),
    "export_type": {0: ["text"], 1: ["db"], 2: ["text", "db"]},
}
"""Meaning of the numbers in older configuration files."""


def parse_options(given: Mapping[str, object]) -> tuple[ProfilerOptions, dict[str, object]]:
    """The options, and the values under unknown names (for the caller to use or to report)."""
    values: dict[str, object] = {}
    rest: dict[str, object] = {}
    for name, value in given.items():
        if name == "experimental_config":
            values.update(_from_config_object(value))
        elif name in _DEPRECATED:
            warn(f"The parameter '{name}' is deprecated, {_DEPRECATED[name]}")
        elif OLD_NAMES.get(name, name) in NAMES:
            values.update(_renamed(name, value))
        else:
            rest[name] = value
    checked = {name: _validate(name, value) for name, value in values.items() if value is not None}
    return replace(ProfilerOptions(), **checked), rest  # type: ignore[arg-type]  # each value was checked against its field


def suggestion(name: str, known: Iterable[str] = NAMES) -> str:
    """
    >>> suggestion("profiler_levle")
    "; did you mean 'profiler_level'?"
    """
    close = get_close_matches(name, [*known, *OLD_NAMES], n=1, cutoff=0.6)
    return f"; did you mean '{OLD_NAMES.get(close[0], close[0])}'?" if close else ""


def _renamed(name: str, value: object) -> dict[str, object]:
    if name == "host_stack":
        warn("The parameter 'host_stack' is deprecated, please use 'with_stack' instead.")
    if name == "pcie" and value is True:
        warn("The parameter 'pcie' will be deprecated in future versions. Please use 'sys_interconnection' instead.")
    if name == "hbm_ddr" and value is True:
        warn("The parameter 'hbm_ddr' will be deprecated in future versions. Please use 'profile_memory' instead.")
    return {OLD_NAMES.get(name, name): value}


def _from_config_object(config: object) -> dict[str, object]:
    """The attributes of a framework's _ExperimentalConfig, with or without a leading underscore."""
    found = {name.lstrip("_"): value for name, value in vars(config).items()} if hasattr(config, "__dict__") else {}
    return {OLD_NAMES.get(name, name): value for name, value in found.items() if OLD_NAMES.get(name, name) in NAMES}


def _validate(name: str, value: Any) -> object:
    default = getattr(ProfilerOptions(), name)
    if type(value) is int and name in _NUMBERS:
        if value not in _NUMBERS[name]:
            return _reset(name, value, default)
        warn(f"'{name}' as a number ({value}) is deprecated; write {_NUMBERS[name][value]!r}.")
        value = _NUMBERS[name][value]
    if name in _ENUMS:
        return _member(_ENUMS[name], value) or _reset(name, value, default)
    if name in _ENUM_LISTS:
        items = list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
        members = [_member(_ENUM_LISTS[name], item) for item in items]
        if None in members or not (members or name == "host_sys"):
            return _reset(name, value, default)
        return tuple(dict.fromkeys(members))
    if name.startswith("mstx_domain"):
        valid = isinstance(value, (list, tuple)) and all(isinstance(item, str) and item for item in value)
        return tuple(dict.fromkeys(value)) if valid else _reset(name, value, default)
    return value if type(value) is type(default) else _reset(name, value, default)


def _member(kind: type[E], value: object) -> E | None:
    """The member, given itself, its value, its name, or another library's member of the same name."""
    spellings = {str(getattr(value, "name", value)).lower(), str(getattr(value, "value", value)).lower()}
    return next((member for member in kind if {member.name.lower(), str(member.value).lower()} & spellings), None)


def _reset(name: str, value: object, default: object) -> object:
    kind = _ENUMS.get(name) or _ENUM_LISTS.get(name)
    known = f" (one of {', '.join(str(member.value) for member in kind)})" if kind else ""
    expected = kind.__name__ if kind else type(default).__name__
    warn(
        f"For Profiler, the type of {name} should be {expected}{known}, but got {value!r}, "
        f"reset to {ProfilerOptions().to_json()[name]!r}."
    )
    return default
