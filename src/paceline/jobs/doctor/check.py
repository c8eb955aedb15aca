"""One thing that was looked at, in both languages."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec


class Verdict(StrEnum):
    good = "good"
    warning = "warning"
    bad = "bad"


class Text(NamedTuple):
    en: str
    zh: str

    def said(self, chinese: bool) -> str:
        return self.zh if chinese else self.en


class Check(msgspec.Struct, frozen=True):
    """`id` is for programs and stays; `found` and `advice` are for people."""

    id: str
    verdict: Verdict
    found: Text
    advice: Text | None = None


def good(name: str, en: str, zh: str) -> Check:
    return Check(name, Verdict.good, Text(en, zh))


def warning(name: str, found: Text, advice: Text) -> Check:
    return Check(name, Verdict.warning, found, advice)


def bad(name: str, found: Text, advice: Text) -> Check:
    return Check(name, Verdict.bad, found, advice)


def of_error(name: str, error: Exception) -> Check:
    """What our own errors say already is not said again in other words."""
    hint = getattr(error, "hint", None) or ""
    return Check(name, Verdict.bad, Text(str(error), str(error)), Text(hint, hint) if hint else None)
