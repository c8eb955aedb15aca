"""stdout and stderr that show any text: whatever their encoding is, and nothing but Paceline's own control sequences."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from paceline.core.text_encoding import without_controls

_ERRORS = "paceline.plain"
_PLAIN = {
    "·": "-",
    "–": "-",
    "—": "-",
    "−": "-",
    "×": "x",
    "→": "->",
    "←": "<-",
    "↔": "<->",
    "≥": ">=",
    "≤": "<=",
    "µ": "u",
    "…": "...",
    "█": "#",
    "✓": "ok",
    "✗": "x",
    "\N{LEFT SINGLE QUOTATION MARK}": "'",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "“": '"',
    "”": '"',
}
"""What stands for a character that an old encoding (ascii, gb2312, latin-1) does not have."""


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Replace both streams for a while; a closed one becomes /dev/null."""
    codecs.register_error(_ERRORS, _stand_in)
    before = sys.stdout, sys.stderr
    guards = sys.stdout, sys.stderr = _guarded(sys.stdout), _guarded(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for guard in guards:
            if isinstance(guard, GuardedStream):
                guard.detach()  # the buffer below belongs to the stream before it


class GuardedStream(io.TextIOWrapper):
    """A stream through which no control sequence passes. rich writes its colours beside it (`rich_proxied_file`), after
    output/console.py has cleaned the text between them."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        stream.reconfigure(errors=_ERRORS)
        self.rich_proxied_file = stream
        # Unbuffered, so that what is written here and beside it keeps its order in the buffer below.
        super().__init__(stream.buffer, stream.encoding, _ERRORS, line_buffering=stream.isatty(), write_through=True)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Typer takes an ascii stream for a mistake and writes UTF-8 to the buffer below, past this class."""
        return "ascii, on purpose" if codecs.lookup(super().encoding).name == "ascii" else super().encoding

    def write(self, text: str) -> int:
        super().write(without_controls(text))
        return len(text)


def _guarded(stream: TextIO | None) -> TextIO:
    if stream is None:  # closed by the shell: >&-
        stream = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (open as long as the process)
    return GuardedStream(stream) if type(stream) is io.TextIOWrapper else stream


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "".join(_PLAIN.get(each) or ascii(each)[1:-1] for each in wrong), error.end
