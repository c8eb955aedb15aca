"""Texts from files and servers, made safe to show: any bytes, control sequences and formulas may be in them."""

from __future__ import annotations

import re
from typing import Any

_TURNS = "\N{ARABIC LETTER MARK}\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""They turn the direction of writing, so that a name reads as another one."""
CONTROLS = rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_TURNS}]"
"""What moves a cursor, changes a colour or renames a window; as a pattern for Python and for DuckDB."""
FORMULA = r"^[=+\-@\t\r\n＝＋－＠]"
"""Full-width signs too: spreadsheets set to Chinese or Japanese treat them like the plain ones."""
HIDDEN = "�"
_CONTROL = re.compile(CONTROLS)


def printable(text: object) -> str:
    """The text with undecodable bytes of a file name shown as escapes, e.g. run-\\udcff."""
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")


def is_utf8(text: str) -> bool:
    """Whether it is all text: the bytes of a file name or argument that are none become lone surrogates.

    >>> is_utf8("名"), is_utf8("\\udcff")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def without_controls(text: str) -> str:
    """The text with control characters shown as �; tabs and line ends stay, a bare carriage return is one."""
    if text.isprintable():
        return text
    return _CONTROL.sub(HIDDEN, text.replace("\r\n", "\n").replace("\r", "\n"))


def spreadsheet_cell(value: Any) -> Any:
    """A CSV cell that a spreadsheet would run as a formula becomes text."""
    if not isinstance(value, str):
        return value
    safe = _CONTROL.sub(HIDDEN, value)
    return f"'{safe}" if re.match(FORMULA, value) else safe
