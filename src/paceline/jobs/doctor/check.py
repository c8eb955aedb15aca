"""The result of one check of `paceline doctor`, with its texts in both languages."""

from __future__ import annotations

import msgspec

from paceline.core.i18n import LANGUAGES, Language, text
from paceline.core.str_enum import StrEnum

Texts = dict[Language, str]


class CheckVerdict(StrEnum):
    good = "good"
    warning = "warning"
    bad = "bad"


class Check(msgspec.Struct, frozen=True):
    """`id` is for programs and stays; `found` and `advice` are for people."""

    id: str
    verdict: CheckVerdict
    found: Texts
    advice: Texts | None = None


class DoctorReport(msgspec.Struct, frozen=True, tag="paceline.doctor/1", tag_field="schema"):
    """All checks; `ok` = none of them would stop the job."""

    ok: bool
    checks: tuple[Check, ...]


def good(name: str, key: str, **values: object) -> Check:
    """`key` names the text doctor.KEY of the catalogue."""
    return Check(name, CheckVerdict.good, _texts(key, values))


def warning(name: str, key: str, **values: object) -> Check:
    """With the advice doctor.KEY.advice."""
    return Check(name, CheckVerdict.warning, _texts(key, values), _texts(f"{key}.advice", values))


def bad(name: str, key: str, **values: object) -> Check:
    """With the advice doctor.KEY.advice."""
    return Check(name, CheckVerdict.bad, _texts(key, values), _texts(f"{key}.advice", values))


def from_error(name: str, error: Exception) -> Check:
    """Our own errors already name the place and what to do; they exist in English only."""
    hint = getattr(error, "hint", None)
    advice: Texts | None = dict.fromkeys(LANGUAGES, hint) if hint else None
    return Check(name, CheckVerdict.bad, dict.fromkeys(LANGUAGES, str(error)), advice)


def _texts(key: str, values: dict[str, object]) -> Texts:
    return {language: text(f"doctor.{key}", language, **values) for language in LANGUAGES}
