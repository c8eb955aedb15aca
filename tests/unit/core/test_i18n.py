"""Every text of the catalogue exists in both languages, with the same placeholders."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Formatter

import pytest

from paceline.core.i18n import LANGUAGES, Language, catalogue, text

AREAS = sorted(path.name.removesuffix(".json") for path in (files("paceline.core") / "texts").iterdir())

RECORDED_TIMES = ("output.part.", "ui.part.", "ui.web.phase.", "cli.column.", "cli.breakdown.column.", "cli.compare.")


def placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}


@pytest.mark.parametrize("area", AREAS)
def test_both_languages_say_the_same(area: str) -> None:
    for key, texts in catalogue(area).items():
        assert key.startswith(f"{area}.") and set(texts) == set(LANGUAGES), key
        assert all(texts.values()), key
        assert placeholders(texts["en"]) == placeholders(texts["zh"]), key


def test_values_are_filled_in() -> None:
    assert text("bench.accuracy_is", "en", accuracy="0.9") == "accuracy 0.9"
    assert text("bench.accuracy_is", "zh", accuracy="0.9") == "精度 0.9"


def test_a_count_decides_between_singular_and_plural() -> None:
    assert [text("bench.size", "en", n=count) for count in (1, 4)] == ["1 rank", "4 ranks"]
    assert text("bench.size", "zh", n=1) == "1 卡"


def test_every_text_that_the_code_names_exists() -> None:
    """Keys written out in full; those that are put together at run time are covered by the tests of their pages."""
    named = re.compile(r"""\btext\(\s*["']([a-z]+\.[\w.]+)["']""")
    source = Path(str(files("paceline")))
    keys = {key for module in source.rglob("*.py") for key in named.findall(module.read_text(encoding="utf-8"))}
    assert keys, "the pattern finds no text any more"
    missing = {key for key in keys if key not in catalogue(key.partition(".")[0])}
    assert not missing


@pytest.mark.parametrize("language", LANGUAGES)
def test_parts_of_the_loss_have_names_of_their_own(language: Language) -> None:
    """A saving of the step and a recorded time stand on one page: two numbers under one name confuse."""
    named = {
        place: {
            key.split(".")[2]: texts[language] for key, texts in catalogue(place).items() if f"{place}.loss." in key
        }
        for place in ("output", "ui")
    }
    parts = set(named["output"])
    assert {"communication", "bubble", "input", "host", "uneven"} < parts
    assert {part: named["ui"][part] for part in parts} == named["output"]
    recorded = {
        texts[language].lower()
        for area in ("output", "ui", "cli")
        for key, texts in catalogue(area).items()
        if key.startswith(RECORDED_TIMES)
    }
    assert len(recorded) > 10
    assert not recorded & {name.lower() for name in named["output"].values()}
