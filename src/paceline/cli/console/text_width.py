"""Wrap English and Chinese text to the width of a terminal.

Rich and textwrap break at blanks only: a Chinese paragraph is one word to them. Here every wide character is a word,
and closing punctuation never starts a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len

_CLOSING = "，。；：、！？）》”’％"
_OPENING = "（《“‘"
_WORD = re.compile(rf"[ ]+|[{_OPENING}]*(?:[\u2e80-\u9fff]|[^ \u2e80-\u9fff{_OPENING}{_CLOSING}]+)?[{_CLOSING}]*")


def wrapped(text: str, width: int) -> list[str]:
    """The text as lines of at most `width` cells, unless a single word is longer."""
    lines = [""]
    for word in _words(text):
        if lines[-1] and cell_len((lines[-1] + word).rstrip()) > width:
            lines[-1] = lines[-1].rstrip()
            lines.append(word.lstrip())
        else:
            lines[-1] += word
    return lines


def indented(text: str, width: int, *, first: str, rest: str) -> Iterator[str]:
    """The wrapped text behind a first and a following margin of equal width."""
    for number, line in enumerate(wrapped(text, width - len(first))):
        yield (rest if number else first) + line


def _words(text: str) -> Iterator[str]:
    return (found[0] for found in _WORD.finditer(text) if found[0])
