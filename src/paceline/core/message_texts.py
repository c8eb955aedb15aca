"""Warnings of readers and of benchmarks in the language of the page that shows them.

Readers and benchmarks write one English sentence, often into a file that is shown much later; the page that shows it asks here
for the other language. `core/texts/messages.json` has the sentences as templates: what stands at a placeholder is kept, and is
looked up itself, because sentences contain others ("ranks 3, 4: …"). A sentence that is not listed stays as it is.
"""

from __future__ import annotations

import re
from functools import lru_cache
from string import Formatter

from paceline.core.i18n import Language, catalogue

_VALUES = {"n": r"[\d,]+", "list": r"[\d, –]+"}
"""What may stand at a placeholder of this name; anything at others."""
_COLONS: dict[Language, str] = {"en": ": ", "zh": "："}


def message_in(language: Language, message: str) -> str:
    """A warning, with who and where before it.

    >>> message_in("zh", "rank 3: kernel_details.csv:12: is empty")
    '3 号卡：kernel_details.csv:12：文件为空'
    """
    if language == "en":
        return message
    pieces = message.split(": ")
    for count in range(len(pieces)):
        found = _sentence(": ".join(pieces[count:]), language)
        if found is not None:
            places = [_sentence(place, language) or place for place in pieces[:count]]
            return _COLONS[language].join([*places, found])
    return message


def _sentence(message: str, language: Language) -> str | None:
    for key, pattern in _patterns():
        found = pattern.fullmatch(message)
        if found is not None:
            values = {name: message_in(language, value) for name, value in found.groupdict().items()}
            return catalogue("messages")[key][language].format(**values)
    return None


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """By key, those with most words of their own first."""
    found = []
    for key, texts in catalogue("messages").items():
        parts = list(Formatter().parse(texts["en"]))
        pattern = "".join(
            re.escape(said) + (f"(?P<{name}>{_VALUES.get(name, '.+?')})" if name else "") for said, name, _, _ in parts
        )
        found.append((sum(len(said) for said, _, _, _ in parts), key, re.compile(pattern, re.DOTALL)))
    return tuple((key, pattern) for _, key, pattern in sorted(found, key=lambda each: -each[0]))
