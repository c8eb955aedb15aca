"""Temporary names of files that are still being written: hidden, in the directory of the target, with our suffix."""

from __future__ import annotations

import hashlib
import os

PARTIAL_SUFFIX = ".paceline-part"
_MAX_NAME_BYTES = 200
"""File systems allow 255; the prefix and the suffix need some of them."""


def partial_name(name: str, extra: str = "") -> str:
    """The name a file has until it is complete; a long name is replaced by its hash, to leave space for the suffix."""
    encoded = os.fsencode(name)
    short = name if len(encoded) <= _MAX_NAME_BYTES else hashlib.sha256(encoded).hexdigest()[:32]
    return f".{short}.{extra}{PARTIAL_SUFFIX}" if extra else f".{short}{PARTIAL_SUFFIX}"
