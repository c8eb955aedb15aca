"""Every page for users is in English and Chinese, with the same structure: headings, tables and commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FOR_DEVELOPERS = (
    "add-a-command.md",
    "add-a-page.md",
    "add-a-reader.md",
    "add-a-rule.md",
    "architecture.md",
    "newcomers-test.md",
    "decisions/",
)
"""English only: they are about the code, which is in English."""
ENGLISH = [
    name
    for name in sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    if not name.endswith(".zh.md") and not name.startswith(FOR_DEVELOPERS)
]
CODE = re.compile(r"^```[^\n]*\n.*?^```$|^ {4}\S[^\n]*\n(?:\n* {4}\S[^\n]*\n)*", re.MULTILINE | re.DOTALL)
CHINESE = re.compile("[\u4e00-\u9fff]")


@pytest.mark.parametrize("name", ENGLISH)
def test_the_chinese_page_has_the_same_structure(name: str) -> None:
    path = DOCS / name.replace(".md", ".zh.md")
    english, chinese = ((DOCS / name).read_text(encoding="utf-8"), path.read_text(encoding="utf-8"))
    assert headings(chinese) == headings(english)
    assert table_rows(chinese) == table_rows(english)
    assert links(chinese) == links(english)
    assert differing_code(english, chinese) == []
    assert CHINESE.search(chinese)


def test_no_chinese_page_is_left_over() -> None:
    for path in DOCS.rglob("*.zh.md"):
        assert path.with_name(path.name.replace(".zh.md", ".md")).is_file(), path


def test_the_chinese_readme_leads_to_chinese_pages() -> None:
    readme = (DOCS.parent / "README.zh.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\bdocs/([\w/-]+\.md)\b", readme))
    assert named & set(ENGLISH) == set()


def headings(page: str) -> list[int]:
    """The level of each."""
    return [len(marks) for marks in re.findall(r"^(#+) ", CODE.sub("", page), re.MULTILINE)]


def table_rows(page: str) -> int:
    return len(re.findall(r"^\|", CODE.sub("", page), re.MULTILINE))


def links(page: str) -> set[str]:
    """Pages that it leads to; pictures and reports of their own language are not compared."""
    return set(re.findall(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)", page))


def differing_code(english: str, chinese: str) -> list[tuple[str, str]]:
    """Lines that are not the same; comments, and lines that say something in Chinese, may differ."""
    ours, theirs = code_lines(english), code_lines(chinese)
    pairs = [
        (one, other) for one, other in zip(ours, theirs, strict=False) if one != other and not CHINESE.search(other)
    ]
    return pairs if len(ours) == len(theirs) else [("lines of code:", f"{len(ours)}, {len(theirs)} in Chinese"), *pairs]


def code_lines(page: str) -> list[str]:
    lines = "\n".join(CODE.findall(re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL))).splitlines()
    return [" ".join(re.sub(r"(?:^|\s+)# .*", "", line).replace(" --lang zh", "").split()) for line in lines]


def test_a_difference_is_found() -> None:
    page = "# A\n\n    paceline ls a  # all\n    paceline show b\n\n    paceline kb\n\n```sh\nmake demo\n```\n"
    assert code_lines(page) == ["paceline ls a", "paceline show b", "", "paceline kb", "", "```sh", "make demo", "```"]
    assert differing_code(page, page.replace("# all", "# 全部").replace("kb", "kb --lang zh")) == []
    assert differing_code(page, page.replace("show b", "show c")) == [("paceline show b", "paceline show c")]
    assert differing_code(page, page.replace("    paceline kb\n", ""))
    assert headings(page) == [1]
