"""Wrapping: lines fit, nothing is lost, Chinese breaks between characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from paceline.cli.console.text_width import indented, wrapped


def test_english_breaks_at_blanks() -> None:
    assert wrapped("one card is slower than its peers", 14) == ["one card is", "slower than", "its peers"]


def test_chinese_breaks_between_characters_and_keeps_punctuation_with_its_word() -> None:
    # Ten cells are five characters; the comma would be the sixth, so its word goes with it.
    assert wrapped("最慢的链路，降速", 10) == ["最慢的链", "路，降速"]
    assert wrapped("检查（link down 次数）", 11) == ["检查（link", "down 次数）"]


def test_margins_are_kept() -> None:
    assert list(indented("one two", 7, first="1 ", rest="  ")) == ["1 one", "  two"]


@given(st.text(alphabet="ab 慢卡，。（）-=", max_size=80), st.integers(4, 40))
def test_no_character_is_lost_and_lines_fit(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    for line in lines:
        assert cell_len(line.rstrip()) <= width or len(wrapped(line.strip(), 1)) == 1
