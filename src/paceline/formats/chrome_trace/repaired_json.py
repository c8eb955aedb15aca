"""JSON that writers got wrong, made valid: torch does not escape the backslashes of Windows paths, nor what C++ names contain.

invalid escape     "C:\\Users" in the file → the backslash itself
half a surrogate   \\ud83d without its other half → U+FFFD
not UTF-8          → U+FFFD
comma before a closing bracket → left out
"""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = 8 << 20
_REPLACEMENT = rb"\ufffd"
_WRONG = re.compile(
    rb'(?P<whole>\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))'
    rb"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|(?P<lone>\\)|(?P<comma>,)(?=\s*[\]}])"
)


def repair_json(path: Path, target: Path) -> Path:
    """Copy a JSON file, with what is listed above made valid; everything else stays as it is."""
    rest = b""
    with path.open("rb") as source, target.open("wb") as out:
        while block := source.read(_BLOCK):
            text = rest + block
            # Nothing that is repaired reaches across a closing brace.
            cut = text.rfind(b"}") + 1
            out.write(repaired(text[:cut]))
            rest = text[cut:]
        out.write(repaired(rest))
    return target


def repaired(text: bytes) -> bytes:
    r"""
    >>> repaired(rb'[{"name": "C:\Users\n", "x": "\ud83d", "y": "\ud83d\ude00 \\U"},]')
    b'[{"name": "C:\\\\Users\\n", "x": "\\ufffd", "y": "\\ud83d\\ude00 \\\\U"}]'
    """
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode(errors="replace").encode()
    return _WRONG.sub(_valid, text)


def _valid(found: re.Match[bytes]) -> bytes:
    if found["whole"]:
        return found["whole"]
    return _REPLACEMENT if found["half"] else rb"\\" if found["lone"] else b""
