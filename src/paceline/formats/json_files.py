"""Decoding of JSON files of a known shape, with errors that say what is wrong with the file."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from paceline.core.errors import FormatError
from paceline.core.message import message

Decoded = TypeVar("Decoded")


def decode_file(decoder: msgspec.json.Decoder[Decoded], path: Path) -> Decoded:
    data = path.read_bytes()
    if not data.strip():
        raise FormatError(message("empty"), file=path)
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise FormatError(message("not_named", error=error), file=path) from error
    except msgspec.DecodeError as error:
        if "truncated" in str(error):
            raise FormatError(message("cut_json", error=error, size=len(data)), file=path) from error
        raise FormatError(message("not_json", error=error, size=len(data)), file=path) from error
    except RecursionError as error:
        raise FormatError(message("nested"), file=path) from error
