"""Public documents as JSON text that people can read, too."""

from __future__ import annotations

import msgspec


def indented_json(document: msgspec.Struct, *, indent: int = 2) -> str:
    """One line per value, ending with a newline; what is not a number is null."""
    return msgspec.json.format(msgspec.json.encode(document), indent=indent).decode() + "\n"
