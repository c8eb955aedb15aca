"""The word check finds what the style guide asks not to use, and nothing else."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "check_words.py"


@pytest.fixture(scope="module")
def words() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_words", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_words"] = module  # NamedTuple looks its module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "text",
    [
        "mended: 292.4",
        "step_ms_mended = 1",
        "outputs go home",
        "results come\n    # home at the end",
        "is no key here",
        "the old door",
        "12.0 ms a step",
        "own_time",
        "Whoever wrote it",
        "what is wrong is said with its line",
    ],
)
def test_words_to_avoid_are_found(words: ModuleType, text: str) -> None:
    assert len(words.uses(text, "x.py")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "recommend, amendment, commended",
        "indoor, roadmap, broader",
        "renewed, a new file, the headroom, no room for a time",
        "home directory, Path.home(), homebrew",
        "its own timeout, own timestamps",
        "a step takes 5 ms; ms per step; in a step",
        "inhabitants, goods, for goodput",
    ],
)
def test_other_words_are_not(words: ModuleType, text: str) -> None:
    assert words.uses(text, "x.py") == []


def test_a_use_is_reported_with_file_line_and_replacement(words: ModuleType) -> None:
    (use,) = words.uses("fine\nfine\nthe courier\n", "src/a.py")

    assert str(use) == "src/a.py:3: 'courier': say 'upload worker, upload process'"


def test_every_exception_names_a_pattern_a_file_and_a_reason(words: ModuleType) -> None:
    for each in words.ALLOWED:
        assert each.pattern in words.WORDS and (words.ROOT / each.path).is_file() and each.reason
