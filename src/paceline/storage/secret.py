"""Secrets that cannot be printed by accident, and redaction of text before it leaves the program."""

from __future__ import annotations

from urllib.parse import quote

_KNOWN: set[str] = set()
_MIN_LENGTH = 4
"""Shorter strings would blank out ordinary words."""


class Secret:
    """A key, password or token. `reveal()` is the only way to read it, so that its uses can be searched for."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value
        if len(value) >= _MIN_LENGTH:
            _KNOWN.update((value, quote(value, safe="")))

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Secret cannot be pickled: pass where it is stored, not its value")


def redact(text: str) -> str:
    """The text without any secret this process knows; for messages of libraries and servers."""
    for value in sorted(_KNOWN, key=len, reverse=True):
        text = text.replace(value, "***")
    return text
