"""Decoding of JSON files of a known shape, with errors that say what is wrong with the file."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from paceline.core.errors import FormatError

Decoded = TypeVar("Decoded")


def decode_file(decoder: msgspec.json.Decoder[Decoded], path: Path) -> Decoded:
    data = path.read_bytes()
    if not data.strip():
        raise FormatError("is empty", file=path)
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise FormatError(f"is not what its name says: {error}", file=path) from error
    except msgspec.DecodeError as error:
        cut = "is cut off" if "truncated" in str(error) else "is not valid JSON"
        raise FormatError(f"{cut} ({error}; {len(data):,} bytes)", file=path) from error
    except RecursionError as error:
        raise FormatError("is nested too deeply; refused", file=path) from error
