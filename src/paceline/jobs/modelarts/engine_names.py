"""Find the engine that a description means among those the service offers: exact, or by the parts of an older name.

    V1   MindSpore-1.3-cann_5.0.2-python3.7-euleros2.8-aarch64
    V2   mindspore_1.3.0-cann_5.0.2-py_3.7-euler_2.8.3-aarch64

A part matches if one version is the beginning of the other; parts that a name leaves out match anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from paceline.core.errors import UsageError
from paceline.jobs.description import FrameworkEngine

_PARTS = {
    "framework": re.compile(r"^([a-z]+(?:_npu)?)[-_]?[\d.]+"),
    "version": re.compile(r"^[a-z]+(?:_npu)?[-_]?([\d.]+)"),
    "cann": re.compile(r"cann_([\w.]+?)(?:-|$)"),
    "python": re.compile(r"(?:py_|python_?)([\d.]+)"),
    "system": re.compile(r"(?:euleros_?|euler_)([\d.]+)"),
    "machine": re.compile(r"(aarch64|x86_64)"),
}
_SHOWN = 12


def choose_engine(wanted: FrameworkEngine, offered: Sequence[FrameworkEngine]) -> FrameworkEngine:
    """The offered engine; raises with the list where there is none, or where several would do."""
    if wanted in offered or not offered:
        return wanted
    found = [each for each in offered if _is_same(wanted.version, each.version)]
    if len(found) == 1:
        return found[0]
    problem = "could be several engines" if found else "is not offered by this ModelArts"
    names = "\n".join(f"  {each.name}  {each.version}" for each in (found or offered)[:_SHOWN])
    raise UsageError(
        f"engine {wanted.name} {wanted.version} {problem}; choose one of\n{names}",
        hint="paceline job engines lists all",
    )


def _is_same(one: str, other: str) -> bool:
    first, second = _parts(one), _parts(other)
    if first["framework"] is None or first["framework"] != second["framework"]:
        return False
    return all(_agree(first[name], second[name]) for name in _PARTS if name != "framework")


def _agree(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return True
    short, long = sorted((one.split("."), other.split(".")), key=len)
    return long[: len(short)] == short


def _parts(version: str) -> dict[str, str | None]:
    text = version.lower()
    return {name: match[1] if (match := pattern.search(text)) else None for name, pattern in _PARTS.items()}
