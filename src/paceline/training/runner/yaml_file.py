"""A YAML file with the line of every key, so that what is wrong can be pointed at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from paceline.errors import FormatError, UsageError

_LARGEST = 4 << 20
_DEEPEST = 32

KeyPath = tuple[str, ...]


@dataclass(frozen=True)
class YamlFile:
    name: str
    values: dict[str, Any]
    lines: dict[KeyPath, int]

    def at(self, path: KeyPath) -> str:
        """As far as the path is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines[path]}" if path else self.name


def read_yaml(path: Path) -> YamlFile:
    try:
        if path.stat().st_size > _LARGEST:
            raise FormatError(f"{path}: more than {_LARGEST >> 20} MiB; no config", file=path)
        text = path.read_text(encoding="utf-8")
        lines: dict[KeyPath, int] = {}
        _note(yaml.compose(text, yaml.SafeLoader), (), lines, path)
        values = yaml.safe_load(text)
    except FileNotFoundError:
        raise UsageError(
            f"{path}: no such file", hint="paceline train without --config uses its own small one"
        ) from None
    except UnicodeDecodeError:
        raise FormatError(f"{path}: is not UTF-8 text", file=path) from None
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        what = getattr(error, "problem", None) or str(error)
        raise FormatError(f"{path}{f':{line}' if line else ''}: is no YAML: {what}", file=path, line=line) from error
    if not isinstance(values, dict):
        raise FormatError(f"{path}: is no config: a mapping of keys is expected", file=path)
    return YamlFile(str(path), values, lines)


def _note(node: Any, above: KeyPath, lines: dict[KeyPath, int], file: Path) -> None:
    """Lines of all keys; a key that is there twice would silently lose its first value."""
    if len(above) > _DEEPEST:
        raise FormatError(f"{file}: nested too deeply", file=file)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            path = (*above, str(key.value))
            line = key.start_mark.line + 1
            if path in lines:
                raise FormatError(
                    f"{file}:{line}: {'.'.join(path)} is there twice (also in line {lines[path]})", file=file
                )
            lines[path] = line
            _note(value, path, lines, file)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            path = (*above, str(number))
            lines[path] = value.start_mark.line + 1
            _note(value, path, lines, file)
