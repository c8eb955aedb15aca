"""A description in a YAML file, or one mapping of it, and what is wrong in it by file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from paceline.errors import UsageError
from paceline.yaml_file import YamlFile

T = TypeVar("T")
Step = str | int
Spot = tuple[Step, ...]
"""A way down: keys and list positions."""
_PLACE = re.compile(r"^(?P<what>.*) - at `\$(?P<path>.*)`$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


@dataclass(frozen=True)
class Document:
    source: YamlFile = field(repr=False)
    value: Any
    root: Spot = ()

    @classmethod
    def read(cls, file: Path) -> Document:
        return cls._of(YamlFile.read(file))

    @classmethod
    def parse(cls, data: bytes | str, file: Path) -> Document:
        return cls._of(YamlFile.parse(data, file))

    @classmethod
    def _of(cls, source: YamlFile) -> Document:
        return cls(source, source.values)

    @property
    def file(self) -> Path:
        return self.source.file

    def at(self, key: str) -> Document:
        """The mapping below a key."""
        value = self.value.get(key)
        if not isinstance(value, dict):
            raise UsageError(f"{self.where(key)}: {key} should hold keys and values")
        return Document(self.source, value, (*self.root, key))

    def having(self, **values: Any) -> Document:
        """The same with other values of some keys, as options of a command give them."""
        return replace(self, value={**self.value, **values})

    def where(self, *path: Step) -> str:
        """file:line of a key, or of the nearest one above it."""
        return self.source.where(*self.root, *path)

    def convert(self, kind: type[T]) -> T:
        """As a msgspec structure; unknown keys, missing keys and wrong values are said with their lines."""
        unknown = [self._unknown(path, known) for path, known in unknown_keys(kind, self.value)]
        if unknown:
            raise UsageError("\n".join(unknown), hint="docs/jobs.md lists every key")
        try:
            return msgspec.convert(self.value, kind, strict=True)
        except msgspec.ValidationError as error:
            raise UsageError(self._wrong(str(error)), hint="docs/jobs.md lists every key") from None

    def _unknown(self, path: Spot, known: list[str]) -> str:
        near = get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
        meant = f"; {near[0]} was meant?" if near else f"; known here: {', '.join(sorted(known))}"
        return f"{self.where(*path)}: {path[-1]} is no key here{meant}"

    def _wrong(self, text: str) -> str:
        found = _PLACE.match(text)
        what, path = (found["what"], _steps(found["path"])) if found else (text, ())
        path = self._real(path)
        name = ".".join(map(str, path))
        said = what.replace("Object missing required field", "missing:").replace("`", "")
        return f"{self.where(*path)}: {f'{name}: ' if name else ''}{said[:1].lower()}{said[1:]}"

    def _real(self, path: Spot) -> Spot:
        """msgspec writes [...] for a key of a dictionary: the first whose value is no plain one is meant."""
        value, real = self.value, list[Step]()
        for step in path:
            if step == "..." and isinstance(value, dict):
                step = next((key for key, each in value.items() if isinstance(each, dict | list | None)), "...")
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                break
            real.append(step)
        return tuple(real)


def unknown_keys(kind: Any, value: Any, path: Spot = ()) -> Iterator[tuple[Spot, list[str]]]:
    """Every key of `value` that the structure (or one inside it) does not have, with those it has."""
    kind = _structure(kind)
    if kind is None or not isinstance(value, dict):
        return
    fields = {each.encode_name: each.name for each in msgspec.structs.fields(kind)}
    hints = get_type_hints(kind, include_extras=False)
    for key, each in value.items():
        if key in fields:
            yield from unknown_keys(hints[fields[key]], each, (*path, key))
        else:
            yield (*path, key), list(fields)


def _structure(kind: Any) -> Any:
    """The msgspec structure in `kind` or in `kind | None`."""
    for each in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return each
    return None


def _steps(path: str) -> Spot:
    found = _STEP.findall(path)
    return tuple(name if name else (int(index) if index.isdigit() else index) for name, index in found)
