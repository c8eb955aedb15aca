"""The language of what commands say: as asked, or as the terminal's locale says."""

from __future__ import annotations

import os
from enum import StrEnum


class Language(StrEnum):
    auto = "auto"
    en = "en"
    zh = "zh"


def is_chinese(language: Language) -> bool:
    if language is Language.auto:
        locale = os.environ.get("LC_ALL") or os.environ.get("LC_MESSAGES") or os.environ.get("LANG") or ""
        return locale.startswith("zh")
    return language is Language.zh
