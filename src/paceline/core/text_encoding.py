"""Texts that can always be written as UTF-8: file names may hold bytes that are not."""

from __future__ import annotations


def printable(text: object) -> str:
    """The text with undecodable bytes of a file name shown as escapes, e.g. run-\\udcff."""
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8")
