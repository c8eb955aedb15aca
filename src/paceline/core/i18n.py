"""The one catalogue of texts people see: core/texts/<area>.json holds each text once, both languages beside each other.

    {"bench.headline": {"en": "{throughput} samples/s on {ranks} ranks", "zh": "{ranks} 卡，{throughput} 样本/秒"}}

A key begins with its area, which names the file; the pages of ui/ import ui.json itself. Placeholders are those of
`str.format`, and `{n:run|runs}` for "1 run" or "3 runs" (not in ui.json). tests/unit/core/test_i18n.py checks that both
languages of every text exist and name the same placeholders.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from string import Formatter
from typing import Any, Literal

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


def text(key: str, language: Language, **values: object) -> str:
    """The text of a key in a language; an unknown key is a programming error."""
    template = catalogue(key.partition(".")[0])[key][language]
    return _FORMATTER.vformat(template, (), values) if values else template


class _PluralFormatter(Formatter):
    """`{n:run|runs}` is "1 run" or "3 runs"."""

    def format_field(self, value: Any, format_spec: str) -> str:
        one, bar, many = format_spec.partition("|")
        if not bar:
            return format(value, format_spec)
        return f"{value} {one if str(value) == '1' else many}"


_FORMATTER = _PluralFormatter()


@lru_cache(maxsize=None)
def catalogue(area: str) -> dict[str, dict[str, str]]:
    """All texts of an area, by key and language."""
    # Not importlib.resources: importing it takes 10 ms, in every command.
    found: dict[str, dict[str, str]] = json.loads(
        Path(__file__).with_name("texts").joinpath(f"{area}.json").read_bytes()
    )
    return found
