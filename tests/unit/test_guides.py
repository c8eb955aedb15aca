"""docs/guides: each row says what is offered and is shown by a test that exists, a command or a reason; both languages agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIVE = ("msadvisor", "mindinsight", "mindspore-profiler", "mindformers-modelarts", "ais-bench")
GUIDES = (*FIVE, "msprof-analyze", "hta", "perfetto")
VERDICTS = {"works": "可用", "better": "更好", "differs": "有意不同", "not offered": "不提供"}


def rows(path: Path) -> list[list[str]]:
    """The cells of all rows of four columns, without heads and rules."""
    lines = [line for line in path.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if len(row) == 4 and row[2]]


@pytest.mark.parametrize("name", GUIDES)
def test_every_row_has_a_verdict_and_a_proof(name: str) -> None:
    found = rows(ROOT / f"docs/guides/{name}.md")
    assert len(found) >= (15 if name in FIVE else 7)
    for guide, here, verdict, shown in found:
        assert guide and here and verdict in VERDICTS, guide
        named = re.findall(r"`([^`]+)`", shown)
        assert named or verdict == "not offered", f"{guide}: neither a test nor a command"
        assert shown, guide
        for test in [one for one in named if one.startswith("tests/")]:
            path, _, function = test.partition("::")
            assert (ROOT / path).is_file(), test
            assert not function or f"def {function}(" in (ROOT / path).read_text(), test


@pytest.mark.parametrize("name", GUIDES)
def test_both_languages_say_the_same(name: str) -> None:
    english, chinese = rows(ROOT / f"docs/guides/{name}.md"), rows(ROOT / f"docs/guides/{name}.zh.md")
    assert [VERDICTS[row[2]] for row in english] == [row[2] for row in chinese]
    for one, other in zip(english, chinese, strict=True):
        assert re.findall(r"`tests/[^`]+`", one[3]) == re.findall(r"`tests/[^`]+`", other[3])
    assert re.search("[\u4e00-\u9fff]", "".join(cell for row in chinese for cell in row[:2]))
