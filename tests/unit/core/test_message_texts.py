"""Warnings in the other language: single ones, and that none of the source is forgotten."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from paceline.core.i18n import catalogue
from paceline.core.message_texts import message_in

SOURCE = Path(str(files("paceline")))
READERS = sorted([*(SOURCE / "formats").rglob("*.py"), *(SOURCE / "run" / "evidence").glob("*.py")])
PUT_TOGETHER = {"7 (7; 7 bytes)", "7: 7", "transfers are recorded for 777 collectives77"}
"""Of parts that are listed."""
SINKS = ("warn", "ReadWarning", "EvidenceGap")


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("rank 3: kernel_details.csv:12: is empty", "3 号卡：kernel_details.csv:12：文件为空"),
        (
            "ranks 3, 4 … (12 in all): no collective ends together with another rank's, so clocks are not aligned",
            "3, 4 等 12 张卡：没有与其他卡同时结束的集合通信，时钟未对齐",
        ),
        (
            "transfers are recorded for only 500 of 1,200 collectives (the parser's limit); incomplete: steps 2–4, 7",
            "1,200 个集合通信中只记录了 500 个的传输（解析器上限）；不完整：迭代 2–4, 7",
        ),
        ("4 ranks: no profile: it is gone", "4 卡：没有采集数据：it is gone"),
        ("a sentence nobody listed: 3", "a sentence nobody listed: 3"),
    ],
)
def test_a_sentence_with_its_place(english: str, chinese: str) -> None:
    assert message_in("zh", english) == chinese
    assert message_in("en", english) == english


def test_every_sentence_reads_itself() -> None:
    for key, texts in catalogue("messages").items():
        english = texts["en"].replace("{n}", "7").replace("{list}", "7, 8")
        assert message_in("zh", english) != english, key


def test_no_warning_of_a_reader_is_forgotten() -> None:
    said = {text for module in READERS for text in sentences(ast.parse(module.read_text(encoding="utf-8")))}
    assert len(said) > 60, "the pattern finds no warnings any more"
    forgotten = sorted(text for text in said if message_in("zh", text) == text and text not in PUT_TOGETHER)
    assert forgotten == []


def sentences(module: ast.Module) -> Iterator[str]:
    """Literal texts of warnings and of errors that become warnings, a number at each placeholder."""
    for call in ast.walk(module):
        if isinstance(call, ast.Call) and _called(call) in (*SINKS, "FormatError", "CutOffError"):
            yield from (text for argument in call.args if " " in (text := _literal(argument)))


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _literal(value: ast.expr) -> str:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "7" for part in value.values)
    return ""
