"""YAML files with the line number of every key, for error messages."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Tuple

import yaml

from paceline.core.errors import UsageError

KeyPath = Tuple[str, ...]
"""Path to a value: keys and list positions, as text."""
_MAX_BYTES = 1_000_000
_MAX_NODES = 50_000
"""Aliases of aliases: a few lines can expand to billions of values."""


@dataclass(frozen=True)
class YamlFile:
    file: Path
    values: dict[Any, Any]
    lines: dict[KeyPath, int] = field(repr=False)

    @classmethod
    def read(cls, file: Path) -> YamlFile:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise UsageError(f"{file}: {(error.strerror or 'cannot be read').lower()}") from None
        if len(data) > _MAX_BYTES:
            raise UsageError(f"{file}: too large ({len(data):,} bytes; at most {_MAX_BYTES:,})")
        return cls.parse(data, file)

    @classmethod
    def parse(cls, data: bytes | str, file: Path) -> YamlFile:
        loader: yaml.SafeLoader | None = None
        try:
            loader = yaml.SafeLoader(data)
            node = loader.get_single_node()
            walk = _NodeReader(file, loader)
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
        """file:line of a key, or of its nearest parent that has a line."""
        key_path = tuple(map(str, path))
        while key_path and key_path not in self.lines:
            key_path = key_path[:-1]
        return f"{self.file}:{self.lines.get(key_path, 1)}"


class _NodeReader:
    """Converts YAML nodes to plain values and records lines; tags that would construct objects are rejected."""

    def __init__(self, file: Path, loader: yaml.SafeLoader) -> None:
        self._file, self._loader, self._left = file, loader, _MAX_NODES
        self.lines: dict[KeyPath, int] = {}

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self._left -= 1
        if self._left < 0:
            raise UsageError(f"{self._file}: expands to more than {_MAX_NODES:,} values")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if node.tag not in yaml.SafeLoader.yaml_constructors:
            self._loader.construct_undefined(node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(each, (*path, str(number))) for number, each in enumerate(node.value)]
        return self._loader.construct_object(node)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[Any, Any]:
        seen: dict[Hashable, int] = {}
        for key_node, _ in node.value:  # before "<<" is expanded: merged keys may be overridden
            key, line = self._loader.construct_object(key_node), key_node.start_mark.line + 1
            if not isinstance(key, (str, int)):
                raise UsageError(f"{self._file}:{line}: a key must be text or an integer")
            if key in seen:
                raise UsageError(f"{self._file}:{line}: duplicate key '{key}' (first in line {seen[key]})")
            seen[key] = line
        self._loader.flatten_mapping(node)
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self._loader.construct_object(key_node)
            key_path = (*path, str(key))
            self.lines[key_path] = key_node.start_mark.line + 1
            result[key] = self.value(value_node, key_path)
        return result


def _unreadable(file: Path, error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    line = f":{mark.line + 1}" if mark is not None else ""
    problem = getattr(error, "problem", None) or (str(error) if isinstance(error, ValueError) else "")
    if isinstance(error, RecursionError):
        problem = "nested too deeply"
    return f"{file}{line}: not readable as YAML: {problem or 'it is not text'}"
