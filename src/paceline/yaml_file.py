"""A YAML file that knows the line of every key, so that what is wrong can be pointed at."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from paceline.errors import UsageError

Spot = tuple[str, ...]
"""A way down: keys and list positions, as text."""
_MOST_BYTES = 1_000_000
_MOST_NODES = 50_000
"""Aliases may stand for aliases: a few lines can unfold to billions of values."""


@dataclass(frozen=True)
class YamlFile:
    file: Path
    values: dict[Any, Any]
    lines: dict[Spot, int] = field(repr=False)

    @classmethod
    def read(cls, file: Path) -> YamlFile:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise UsageError(f"{file}: {(error.strerror or 'cannot be read').lower()}") from None
        if len(data) > _MOST_BYTES:
            raise UsageError(f"{file}: {len(data):,} bytes are too many for a description")
        return cls.parse(data, file)

    @classmethod
    def parse(cls, data: bytes | str, file: Path) -> YamlFile:
        loader: yaml.SafeLoader | None = None
        try:
            loader = yaml.SafeLoader(data)
            node = loader.get_single_node()
            walk = _Walk(file, loader)
            values = walk.value(node, ()) if node is not None else {}
        except (yaml.MarkedYAMLError, yaml.reader.ReaderError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise UsageError(_unreadable(file, error)) from None
        finally:
            if loader is not None:
                loader.dispose()
        if not isinstance(values, dict):
            raise UsageError(f"{file}: expected keys and values", hint="key: value")
        return cls(file, values, walk.lines)

    def where(self, *path: str | int) -> str:
        """file:line of a key, or of the nearest one above it."""
        spot = tuple(map(str, path))
        while spot and spot not in self.lines:
            spot = spot[:-1]
        return f"{self.file}:{self.lines.get(spot, 1)}"


class _Walk:
    """From YAML's nodes to plain values, noting lines; a tag that would build an object is refused."""

    def __init__(self, file: Path, loader: yaml.SafeLoader) -> None:
        self._file, self._loader, self._left = file, loader, _MOST_NODES
        self.lines: dict[Spot, int] = {}

    def value(self, node: yaml.Node, path: Spot) -> Any:
        self._left -= 1
        if self._left < 0:
            raise UsageError(f"{self._file}: unfolds to more than {_MOST_NODES:,} values")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if node.tag not in yaml.SafeLoader.yaml_constructors:
            self._loader.construct_undefined(node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each, (*path, str(number))) for number, each in enumerate(node.value)]
        return self._loader.construct_object(node)

    def _mapping(self, node: yaml.MappingNode, path: Spot) -> dict[Any, Any]:
        seen: dict[Hashable, int] = {}
        for key_node, _ in node.value:  # before "<<" is unfolded: what it brings may be overridden
            key, line = self._loader.construct_object(key_node), key_node.start_mark.line + 1
            if not isinstance(key, str | int):
                raise UsageError(f"{self._file}:{line}: a key should be a word")
            if key in seen:
                raise UsageError(f"{self._file}:{line}: {key} is there twice (also in line {seen[key]})")
            seen[key] = line
        self._loader.flatten_mapping(node)
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self._loader.construct_object(key_node)
            spot = (*path, str(key))
            self.lines[spot] = key_node.start_mark.line + 1
            result[key] = self.value(value_node, spot)
        return result


def _unreadable(file: Path, error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    line = f":{mark.line + 1}" if mark is not None else ""
    problem = getattr(error, "problem", None) or (str(error) if isinstance(error, ValueError) else "")
    if isinstance(error, RecursionError):
        problem = "nested too deeply"
    return f"{file}{line}: not readable as YAML: {problem or 'it is not text'}"
