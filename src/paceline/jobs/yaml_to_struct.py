"""Convert YAML documents to msgspec structures; unknown keys and wrong values are reported with file and line."""

from __future__ import annotations

import itertools
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
_MISSING = re.compile(r"missing required field `(\w+)`")
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
        found, problems = self.try_convert(kind)
        if found is None or problems:
            raise UsageError("\n".join(problems), hint="docs/jobs.md lists every key")
        return found

    def try_convert(self, kind: type[T]) -> tuple[T | None, list[str]]:
        """The structure without its wrong values, and every problem with its line; None where a required key is missing."""
        unknown = list(unknown_keys(kind, self.value))
        problems = [self._unknown(path, known) for path, known in unknown]
        value, dropped = self.value, set[KeyPath]()
        for path, _ in unknown:
            value = _without(value, path)
        while True:
            try:
                return msgspec.convert(value, kind, strict=True), problems
            except msgspec.ValidationError as error:
                message, path = self._explain(str(error))
                if not (missing := _MISSING.search(str(error))) or (*path, missing[1]) not in dropped:
                    problems.append(message)
                # msgspec reports the first problem only: look for the next one without this value.
                path = tuple(itertools.takewhile(lambda step: isinstance(step, str), path))
                if missing or not path or path in dropped:
                    return None, problems
                dropped.add(path)
                value = _without(value, path)

    def _unknown(self, path: KeyPath, known: list[str]) -> str:
        near = get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
        meant = f", did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}"
        return f"{self.where(*path)}: unknown key {str(path[-1])!r}{meant}"

    def _explain(self, text: str) -> tuple[str, KeyPath]:
        found = _PLACE.match(text)
        what, path = (found["what"], _steps(found["path"])) if found else (text, ())
        path = self._real(path)
        name = ".".join(map(str, path))
        message = what.replace("Object missing required field", "missing:").replace("`", "")
        return f"{self.where(*path)}: {f'{name}: ' if name else ''}{message[:1].lower()}{message[1:]}", path

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


def _without(value: Any, path: KeyPath) -> Any:
    """A copy without the value at this path."""
    first, *rest = path
    if not rest:
        return {key: each for key, each in value.items() if key != first}
    return {**value, first: _without(value[first], tuple(rest))}


def _steps(path: str) -> KeyPath:
    found = _STEP.findall(path)
    return tuple(name if name else (int(index) if index.isdigit() else index) for name, index in found)
