"""Control sequences and formulas in names."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

import paceline
from paceline.core.text_encoding import CONTROLS, FORMULA, printable, spreadsheet_cell, without_controls


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – 中文\ttab\nline", "plain – 中文\ttab\nline"),
        ("\x1b[31mred\x07", "�[31mred�"),
        ("a\x00b\x7fc\x9bd", "a�b�c�d"),
        ("user\u202egnp.exe", "user�gnp.exe"),
        ("50 %\r100 %\r\n", "50 %\n100 %\n"),
    ],
)
def test_controls_are_shown_as_such(text: str, shown: str) -> None:
    assert without_controls(text) == shown
    assert without_controls(shown) == shown


@pytest.mark.parametrize(
    ("value", "cell"),
    [("=1+1", "'=1+1"), ("-2", "'-2"), ("＝x", "'＝x"), ("\t=1", "'\t=1"), ("a=1", "a=1"), (-2, -2), (None, None)],
)
def test_a_formula_becomes_text(value: object, cell: object) -> None:
    assert spreadsheet_cell(value) == cell


def test_patterns_mean_the_same_to_duckdb() -> None:
    characters = [chr(code) for code in [*range(1, 0x300), *range(0x2000, 0x2070), 0xFF1D, 0xFF0B, 0x4E2D]]
    for pattern in (CONTROLS, FORMULA):
        found = duckdb.execute(
            f"SELECT regexp_matches(c, '{pattern}') FROM (SELECT unnest($1) AS c)", [characters]
        ).fetchall()
        assert [bool(match) for (match,) in found] == [bool(re.search(pattern, each)) for each in characters]


def test_undecodable_names_can_be_written() -> None:
    assert printable(b"run-\xff".decode("utf-8", "surrogateescape")) == "run-\\udcff"


def test_only_our_console_prints() -> None:
    """rich's own console would pass control sequences of names on."""
    root = Path(paceline.__file__).parent
    wrong = [
        str(file)
        for file in root.rglob("*.py")
        if re.search(r"from rich.console import .*\bConsole\b", file.read_text())
    ]
    assert not wrong
