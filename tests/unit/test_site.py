"""The site of the documentation: every page is in both languages, every link leads somewhere, pictures are small.

`make docs` checks links and anchors again, with MkDocs; this test needs no other package.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if "decisions" not in path.parts]
READMES = [ROOT / "README.md", ROOT / "README.zh.md"]
NAV = re.findall(r"^ +- ([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("path", [*PAGES, *READMES], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    missing = [
        target
        for target in LINK.findall(text)
        if not re.match(r"https?:|mailto:", target) and not (path.parent / target).exists()
    ]
    assert missing == []


def test_every_page_of_the_navigation_exists_and_no_other() -> None:
    assert all((DOCS / name).is_file() for name in NAV)
    pages = {path.relative_to(DOCS).as_posix() for path in PAGES if not path.name.endswith(".zh.md")}
    listed = {name for name in pages if name.startswith("knowledge-base/")} | set(NAV)
    assert pages - listed == set()


@pytest.mark.parametrize("folder", ["tutorials", "guides", "reference"])
def test_tutorials_guides_and_reference_are_in_both_languages(folder: str) -> None:
    names = {path.name for path in (DOCS / folder).glob("*.md")}
    assert {name.replace(".md", ".zh.md") for name in names if not name.endswith(".zh.md")} <= names


def test_lines_of_chinese_text_are_joined_without_a_blank() -> None:
    spec = importlib.util.spec_from_file_location("join_chinese_lines", ROOT / "scripts" / "join_chinese_lines.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    join = module.on_page_content
    assert join("<li>每张卡，\n  每一步\n都算。\n<code>x</code></li>") == "<li>每张卡，每一步都算。<code>x</code></li>"
    assert (
        join("<pre>卡\n步</pre>\n<p>steps\nof 卡\n<b>x</b></p>") == "<pre>卡\n步</pre>\n<p>steps\nof 卡\n<b>x</b></p>"
    )


def test_pictures_are_small_and_used() -> None:
    pictures = sorted((DOCS / "pictures").iterdir())
    assert sum(path.stat().st_size for path in pictures) < 2_000_000
    assert all(path.stat().st_size < 150_000 for path in pictures)
    texts = "".join(path.read_text(encoding="utf-8") for path in [*PAGES, *READMES])
    assert [path.name for path in pictures if path.name not in texts] == []
    for path in pictures:
        if path.suffix == ".svg":
            assert "url(http" not in path.read_text(encoding="utf-8")
