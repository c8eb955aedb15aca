"""The table of the ablation in docs/robustness.md and in its Chinese page: one writer, the same numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from robustness import ablation_page
from robustness.verdicts import Outcome

from paceline.core.i18n import Language

RESULTS: list[tuple[str, str, Outcome]] = [
    ("kineto", "cut", "same, less sure"),
    ("kineto", "cut", "refused"),
    ("ascend-text", "swapped", "same, as sure"),
]


def test_the_table_counts_outcomes_of_each_layout_and_kind() -> None:
    assert ablation_page.table(RESULTS, "en").splitlines()[2:] == [
        "| ascend-text | swapped | 1 | 0 | 0 | 1 |",
        "| kineto | cut | 2 | 1 | 1 | 0 |",
    ]
    assert ablation_page.table(RESULTS, "zh").splitlines() == [
        "| 格式 | 文件 | 用例数 | 拒绝 | 相同，置信度降低 | 相同，置信度不变 |",
        "|---|---|---:|---:|---:|---:|",
        "| ascend-text | 互换 | 1 | 0 | 0 | 1 |",
        "| kineto | 截断 | 2 | 1 | 1 | 0 |",
    ]


def test_both_pages_are_written_and_the_rest_of_them_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: dict[Language, Path] = {"en": tmp_path / "en.md", "zh": tmp_path / "zh.md"}
    monkeypatch.setattr(ablation_page, "PAGES", pages)
    for path in pages.values():
        path.write_text(f"before\n{ablation_page.BEGIN}old\n{ablation_page.END}\nafter\n", encoding="utf-8")
    ablation_page.write_pages(RESULTS)
    english, chinese = (path.read_text(encoding="utf-8") for path in pages.values())
    assert english.startswith(f"before\n{ablation_page.BEGIN}3 cases: 0 other, with a warning · 1 refused · 0 same")
    assert f"{ablation_page.BEGIN}3 个用例：0 不同，有告警 · 1 拒绝 · 0 相同" in chinese
    assert english.endswith(f"| 0 |\n{ablation_page.END}\nafter\n") and "old" not in english + chinese


def test_both_published_tables_have_the_same_numbers() -> None:
    english, chinese = (path.read_text(encoding="utf-8") for path in ablation_page.PAGES.values())
    assert numbers(chinese) == numbers(english) != []
    for name in ("cut", "swapped", "same, less sure"):
        assert f"| {name} |" in english and f"| {ablation_page.CHINESE[name]} |" in chinese


def numbers(page: str) -> list[list[str]]:
    section = page.partition(ablation_page.BEGIN)[2].partition(ablation_page.END)[0]
    return [re.findall(r"\d+", row) for row in section.splitlines() if row.startswith("|")]
