"""Reports: the same content on a terminal, as Markdown and as one HTML file, in two languages, harmless whatever it holds."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import msgspec
import pytest

from bench.result_trees import a_result
from paceline.bench.baseline import compare
from paceline.bench.report.charts import bars, scaling_chart, trend
from paceline.bench.report.content import page_of
from paceline.bench.report.html import to_html
from paceline.bench.report.markdown import to_markdown
from paceline.bench.report.page import number
from paceline.bench.report.terminal import print_page
from paceline.bench.report.words import _WORDS
from paceline.bench.result import OutlierPart, ProfilePart, Result
from paceline.bench.scaling import losses, with_efficiency

EVIL = '<script>alert(1)</script> | [red] `x` "&'


@pytest.fixture
def result() -> Result:
    """Everything a report can say, with names nobody should choose."""
    small, large = a_result((50.0,), ranks=1).largest, a_result((90.0, 92.0, 91.0), ranks=2).largest
    profiles = [
        ProfilePart(source="p", step_ms=step, shares={"compute": 0.7, "exposed": 0.3}, titles_zh=(EVIL,),
                    diagnosis={"findings": [{"title": EVIL, "gain": {"percent": 4.0}}]}) for step in (20.0, 40.0)
    ]  # fmt: skip
    outlier = OutlierPart(kind="rank", name="1", value=40.0, peers=50.0, percent=-20.0, runs=3)
    sizes = with_efficiency([
        msgspec.structs.replace(small, profile=profiles[0]),
        msgspec.structs.replace(large, profile=profiles[1], outliers=(outlier,)),
    ])  # fmt: skip
    made = msgspec.structs.replace(
        a_result(name=EVIL), measurements=sizes, losses=losses(sizes, cores=1), warnings=(EVIL,), average_power=300.0
    )
    return msgspec.structs.replace(made, comparisons=compare(made, made, EVIL))


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name in ("src", "href")]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_html_holds_everything_and_runs_and_loads_nothing(result: Result, language: str) -> None:
    page = to_html(page_of(result, language))
    tags = _Tags()
    tags.feed(page)
    assert "script" not in tags.seen and tags.seen.count("svg") == 2
    assert "&lt;script&gt;" in page and "default-src 'none'" in page and not re.search(r"https?:|url\(|@import", page)
    assert ("扩展效率" if language == "zh" else "efficiency") in page
    assert 'class="culprit"' in page


def test_markdown_tables_have_as_many_cells_in_every_row(result: Result) -> None:
    text = to_markdown(page_of(result, "en"))
    assert "<script>" not in text and r"\<script\>" in text
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert len(tables) >= 5
    for table in tables:
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(counts) == 1, table


def test_terminal_shows_the_answer_first(result: Result, capsys: pytest.CaptureFixture[str]) -> None:
    print_page(page_of(result, "en"))
    said = capsys.readouterr().out
    assert (
        said.index("91.0 ± 1.000 samples/s on 2 rank(s)") < said.index("Score") < said.index("Where the lost time goes")
    )
    assert "[red]" in said and "Every card" not in said
    print_page(page_of(result, "zh"), whole=True)
    assert "1 号卡 40.0 样本/秒，同类 50.0（-20.0 %），3 次运行" in capsys.readouterr().out


def test_both_languages_know_every_word_and_take_the_same_values() -> None:
    for key, (english, chinese) in _WORDS.items():
        assert set(re.findall(r"{(\w+)", english)) == set(re.findall(r"{(\w+)", chinese)), key


def test_numbers_have_the_digits_they_deserve() -> None:
    assert [number(value) for value in (14151.18, 381.9, 9.5, 0.71386, 0.0, None)] == [
        "14,151", "381.9", "9.500", "0.7139", "0", "–"
    ]  # fmt: skip


def test_charts_of_nothing_and_of_thousands_can_be_drawn() -> None:
    assert "<svg" in trend([a_result((0.0,)), a_result((0.0,), number=1)], "t")
    assert bars(["0", "1"], [0.0, 0.0], {"1"}, "t").count("<rect") == 2
    assert "<svg" in scaling_chart([a_result((0.001,), ranks=1).largest, a_result((3e9,), ranks=4096).largest], "zh")


def test_of_a_thousand_cards_the_slowest_are_shown_and_that_is_said() -> None:
    result = a_result((1024.0,), ranks=1024)
    cards = tuple(0.5 if card == 1000 else 1.0 for card in range(1024))
    run = msgspec.structs.replace(result.largest.repetitions[0], cards=(cards,))
    outlier = OutlierPart(kind="rank", name="1000", value=0.5, peers=1.0, percent=-50.0, runs=1)
    size = msgspec.structs.replace(result.largest, repetitions=(run,), outliers=(outlier,))
    page = to_html(page_of(msgspec.structs.replace(result, measurements=(size,)), "en"))
    assert "The slowest 64 of 1,024 cards" in page and page.count("<rect") == 64 and page.count('class="culprit"') == 1
