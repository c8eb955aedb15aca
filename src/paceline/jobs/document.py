"""A YAML file that knows the line of every key, so that what is wrong can be pointed at."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from paceline.errors import UsageError

T = TypeVar("T")
Step = str | int
Spot = tuple[Step, ...]
"""A way down: keys and list positions."""
_MOST_BYTES = 1_000_000
_MOST_NODES = 50_000
"""Aliases may stand for aliases: a few lines can unfold to billions of values."""
_PLACE = re.compile(r"^(?P<what>.*) - at `\$(?P<path>.*)`$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


@dataclass(frozen=True)
class Document:
    """A YAML file, or one mapping of it."""

    file: Path
    value: Any
    lines: dict[Spot, int] = field(repr=False)
    root: Spot = ()

    @classmethod
    def read(cls, file: Path) -> Document:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise UsageError(f"{file}: {(error.strerror or 'cannot be read').lower()}") from None
        if len(data) > _MOST_BYTES:
            raise UsageError(f"{file}: {len(data):,} bytes are too many for a description")
        return cls.parse(data, file)

    @classmethod
    def parse(cls, data: bytes | str, file: Path) -> Document:
        loader: yaml.SafeLoader | None = None
        try:
            loader = yaml.SafeLoader(data)
            node = loader.get_single_node()
            walk = _Walk(file, loader)
            value = walk.value(node, ()) if node is not None else {}
        except (yaml.MarkedYAMLError, yaml.reader.ReaderError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise UsageError(_unreadable(file, error)) from None
        finally:
            if loader is not None:
                loader.dispose()
        if not isinstance(value, dict):
            raise UsageError(f"{file}: expected keys and values", hint="job_name: my-training")
        return cls(file, value, walk.lines)

    def at(self, key: str) -> Document:
        """The mapping below a key."""
        value = self.value.get(key)
        if not isinstance(value, dict):
            raise UsageError(f"{self.where(key)}: {key} should hold keys and values")
        return Document(self.file, value, self.lines, (*self.root, key))

    def having(self, **values: Any) -> Document:
        """The same with other values of some keys, as options of a command give them."""
        return replace(self, value={**self.value, **values})

    def where(self, *path: Step) -> str:
        """file:line of a key, or of the nearest one above it."""
        spot = (*self.root, *path)
        while spot and spot not in self.lines:
            spot = spot[:-1]
        return f"{self.file}:{self.lines.get(spot, 1)}"

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


class _Walk:
    """From YAML's nodes to plain values, noting lines; tags that would build objects are refused by SafeLoader."""

    def __init__(self, file: Path, loader: yaml.SafeLoader) -> None:
        self._file, self._loader, self._left = file, loader, _MOST_NODES
        self.lines: dict[Spot, int] = {}

    def value(self, node: yaml.Node, path: Spot) -> Any:
        self._left -= 1
        if self._left < 0:
            raise UsageError(f"{self._file}: unfolds to more than {_MOST_NODES:,} values")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each, (*path, number)) for number, each in enumerate(node.value)]
        return self._loader.construct_object(node)

    def _mapping(self, node: yaml.MappingNode, path: Spot) -> dict[Any, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:  # before "<<" is unfolded: what it brings may be overridden
            key, line = self._loader.construct_object(key_node), key_node.start_mark.line + 1
            if not isinstance(key, str | int):
                raise UsageError(f"{self._file}:{line}: a key should be a word")
            if key in seen:
                raise UsageError(f"{self._file}:{line}: {key} is there twice")
            seen.add(key)
        self._loader.flatten_mapping(node)
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self._loader.construct_object(key_node)
            spot = (*path, key)
            self.lines[spot] = key_node.start_mark.line + 1
            result[key] = self.value(value_node, spot)
        return result


def _steps(path: str) -> Spot:
    found = _STEP.findall(path)
    return tuple(name if name else (int(index) if index.isdigit() else index) for name, index in found)


def _unreadable(file: Path, error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    line = f":{mark.line + 1}" if mark is not None else ""
    problem = getattr(error, "problem", None) or (str(error) if isinstance(error, ValueError) else "")
    if isinstance(error, RecursionError):
        problem = "nested too deeply"
    return f"{file}{line}: not readable as YAML: {problem or 'it is not text'}"
