"""The --lang option: English or Chinese as asked, or by the terminal's locale."""

from __future__ import annotations

import os

from paceline.core.i18n import Language
from paceline.core.str_enum import StrEnum


class LanguageOption(StrEnum):
    auto = "auto"
    en = "en"
    zh = "zh"


def resolve_language(option: LanguageOption) -> Language:
    """`auto` looks at LC_ALL, LC_MESSAGES and LANG, in this order; English unless they name Chinese."""
    if option is LanguageOption.auto:
        locale = os.environ.get("LC_ALL") or os.environ.get("LC_MESSAGES") or os.environ.get("LANG") or ""
        return "zh" if locale.startswith("zh") else "en"
    return "zh" if option is LanguageOption.zh else "en"
