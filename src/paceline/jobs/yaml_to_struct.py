"""Convert YAML documents to msgspec structures; unknown keys and wrong values are reported with file and line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from paceline.core.errors import UsageError
from paceline.core.yaml_lines import YamlFile

T = TypeVar("T")
PathPart = str | int
KeyPath = tuple[PathPart, ...]
"""From the top of a document to a value: keys and list positions."""
_PLACE = re.compile(r"^(?P<what>.*) - at `\$(?P<path>.*)`$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


@dataclass(frozen=True)
class YamlDocument:
    source: YamlFile = field(repr=False)
    value: Any
    root: KeyPath = ()

    @classmethod
    def read(cls, file: Path) -> YamlDocument:
        return cls._of(YamlFile.read(file))

    @classmethod
    def parse(cls, data: bytes | str, file: Path) -> YamlDocument:
        return cls._of(YamlFile.parse(data, file))

    @classmethod
    def _of(cls, source: YamlFile) -> YamlDocument:
        return cls(source, source.values)

    @property
    def file(self) -> Path:
        return self.source.file

    def at(self, key: str) -> YamlDocument:
        """The mapping below a key."""
        value = self.value.get(key)
        if not isinstance(value, dict):
            raise UsageError(f"{self.where(key)}: {key}: expected a mapping")
        return YamlDocument(self.source, value, (*self.root, key))

    def with_values(self, **values: Any) -> YamlDocument:
        """The same document with other values of some keys, as given by options of a command."""
        return replace(self, value={**self.value, **values})

    def where(self, *path: PathPart) -> str:
        """file:line of a key, or of the nearest one above it."""
        return self.source.where(*self.root, *path)

    def convert(self, kind: type[T]) -> T:
        """As a msgspec structure; raises with the lines of unknown keys, missing keys and wrong values."""
        unknown = [self._unknown(path, known) for path, known in unknown_keys(kind, self.value)]
        if unknown:
            raise UsageError("\n".join(unknown), hint="docs/jobs.md lists every key")
        try:
            return msgspec.convert(self.value, kind, strict=True)
        except msgspec.ValidationError as error:
            raise UsageError(self._explain(str(error)), hint="docs/jobs.md lists every key") from None

    def _unknown(self, path: KeyPath, known: list[str]) -> str:
        near = get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
        meant = f", did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}"
        return f"{self.where(*path)}: unknown key {str(path[-1])!r}{meant}"

    def _explain(self, text: str) -> str:
        found = _PLACE.match(text)
        what, path = (found["what"], _steps(found["path"])) if found else (text, ())
        path = self._real(path)
        name = ".".join(map(str, path))
        message = what.replace("Object missing required field", "missing:").replace("`", "")
        return f"{self.where(*path)}: {f'{name}: ' if name else ''}{message[:1].lower()}{message[1:]}"

    def _real(self, path: KeyPath) -> KeyPath:
        """msgspec writes [...] for a key of a dictionary: it means the first key whose value is not a scalar."""
        value, real = self.value, list[PathPart]()
        for step in path:
            if step == "..." and isinstance(value, dict):
                step = next((key for key, each in value.items() if isinstance(each, dict | list | None)), "...")
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                break
            real.append(step)
        return tuple(real)


def unknown_keys(kind: Any, value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, list[str]]]:
    """Every key of `value` that the structure (or one inside it) does not define, with the keys it does."""
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


def _steps(path: str) -> KeyPath:
    found = _STEP.findall(path)
    return tuple(name if name else (int(index) if index.isdigit() else index) for name, index in found)
