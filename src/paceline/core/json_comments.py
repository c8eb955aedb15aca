"""JSON as people paste it: with comments, commas before a closing bracket, and the last brackets missing."""

from __future__ import annotations

import re

_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|[{}\[\],]', re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}


def plain_json(text: str) -> str:
    """The text as JSON proper; what is otherwise malformed stays so, for the decoder to report.

    >>> plain_json('{"a": {  // the account\\n "b": "http://x", }')
    '{"a": {  \\n "b": "http://x" }}'
    """
    out: list[str] = []
    open_brackets: list[str] = []
    comma: int | None = None
    end = 0
    for token in _TOKENS.finditer(text):
        between = text[end : token.start()]
        out.append(between)
        comma = None if between.strip() else comma
        end = token.end()
        part = token.group()
        if part.startswith("/"):
            continue
        if part in "}]":
            if comma is not None:
                out[comma] = ""
            if open_brackets and open_brackets[-1] == part:
                open_brackets.pop()
        elif part in "{[":
            open_brackets.append(_CLOSING[part])
        comma = len(out) if part == "," else None
        out.append(part)
    rest = text[end:]
    # Only a whole value may be followed by the brackets that are missing.
    complete = not rest.strip() and bool(out) and out[-1][-1:] in ("}", "]")
    missing = "".join(reversed(open_brackets)) if complete else ""
    return "".join(out) + (rest.rstrip() + missing if missing else rest)
