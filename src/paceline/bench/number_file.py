"""Read a file that holds one number: plain text, a JSON number, or a JSON object with a known key."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from paceline.core.errors import FormatError

LARGEST = 64 * 1024
"""Bytes."""
THROUGHPUT_KEYS = ("throughput", "throughput_ratio", "samples_per_second", "value")
ACCURACY_KEYS = ("accuracy", "acc", "value")
COUNT_KEYS = ("ranksize", "rank_size", "world_size", "value")
_PLAIN = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def read_number(path: Path, keys: tuple[str, ...], *, lowest: float = 0.0) -> float:
    """A finite number, not below `lowest`; of a JSON object, the first of these keys it has."""
    number = parse_number(_text(path), keys, path)
    if number < lowest:
        raise FormatError(f"{path}: {number} is less than {lowest:g}", file=path)
    return number


def read_count(path: Path) -> int:
    """A whole number of at least one."""
    number = read_number(path, COUNT_KEYS, lowest=1)
    if not number.is_integer() or number > 100_000:
        raise FormatError(f"{path}: {number} is not a number of ranks", file=path)
    return int(number)


def parse_number(text: str, keys: tuple[str, ...], path: Path) -> float:
    """
    >>> parse_number("56.3\\n", THROUGHPUT_KEYS, Path("throughput_0.json"))
    56.3
    >>> parse_number('{"throughput": "56.3"}', THROUGHPUT_KEYS, Path("throughput_0.json"))
    56.3
    """
    found = text.strip()
    if not found:
        raise FormatError(f"{path}: is empty; the process that wrote it was stopped too early", file=path)
    if found[0] in '{"':
        found = _of_json(found, keys, path)
    if not _PLAIN.fullmatch(found):
        raise FormatError(f"{path}: {_shortened(found)} is not a number", file=path)
    number = float(found)
    if not math.isfinite(number):
        raise FormatError(f"{path}: {_shortened(found)} is too large a number", file=path)
    return number


def _of_json(text: str, keys: tuple[str, ...], path: Path) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: broken JSON: {error}", file=path) from error
    if isinstance(value, dict):
        known = [key for key in keys if key in value]
        if not known:
            raise FormatError(f"{path}: the JSON object has none of {', '.join(keys)}", file=path)
        value = value[known[0]]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise FormatError(f"{path}: {_shortened(json.dumps(value))} is not a number", file=path)
    return value.strip() if isinstance(value, str) else repr(value)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError as error:
        raise FormatError(f"{path}: not found", file=path) from error
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}", file=path) from error
    if len(data) > LARGEST:
        raise FormatError(f"{path}: is larger than {LARGEST:,} bytes; one number was expected", file=path)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: is not text", file=path) from error


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "…")
