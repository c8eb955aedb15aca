"""Reports: the same content on a terminal, as Markdown and as one HTML file, in two languages, harmless whatever it holds."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from paceline.bench.report.content import result_page
from paceline.bench.result import BenchResult, ExpectationPart, NodeFacts, OutlierPart, ProfilePart, SpreadPart
from paceline.bench.statistics.baseline import compare
from paceline.bench.statistics.scaling import scaling_losses, with_efficiency
from paceline.cli.bench_results import show
from paceline.core.i18n import Language
from paceline.core.message import message, said_at
from paceline.diagnosis.finding import Diagnosis, Finding, Gain, RunFacts, StepTimes, Subject
from paceline.jobs.backend import WorkerUtilisation
from paceline.output.page.html import to_html
from paceline.output.page.markdown import to_markdown
from paceline.output.page.page import PageSection, ReportPage, format_number
from paceline.output.page.terminal import print_page
from support.bench.result_trees import a_result, charts_of

EVIL = '<script>alert(1)</script> | [red] `x` "&'


def diagnosis_titled(title: str) -> Diagnosis:
    finding = Finding(
        id="slow-rank",
        severity="high",
        confidence=0.9,
        chronic=True,
        subject=Subject(),
        gain=Gain(step_ms_now=50.0, step_ms_fixed=48.0, percent=4.0),
        title=title,
        evidence=(),
        advice=(),
        see="kb/slow-rank",
    )
    facts = RunFacts(
        source="p",
        formats=(),
        ranks=2,
        hosts=1,
        steps=(),
        step_ms=StepTimes(None, None, None),
        missing_ranks=(),
        warnings=(),
    )
    return Diagnosis(run=facts, findings=(finding,))


@pytest.fixture
def result() -> BenchResult:
    """Everything a report can say, with names nobody should choose."""
    small, large = a_result((50.0,), ranks=1).largest, a_result((90.0, 92.0, 91.0), ranks=2).largest
    profiles = [
        ProfilePart(
            source="p",
            step_ms=step,
            shares={"compute": 0.7, "exposed": 0.3},
            titles_zh=(EVIL,),
            diagnosis=diagnosis_titled(EVIL),
        )
        for step in (20.0, 40.0)
    ]
    outlier = OutlierPart(kind="rank", name="1", value=40.0, peers=50.0, percent=-20.0, runs=3, card=1)
    sizes = with_efficiency(
        [
            msgspec.structs.replace(small, profile=profiles[0]),
            msgspec.structs.replace(large, profile=profiles[1], outliers=(outlier,)),
        ]
    )
    made = msgspec.structs.replace(
        a_result(name=EVIL),
        measurements=sizes,
        losses=scaling_losses(sizes, cores=1),
        warnings=(EVIL,),
        average_power=300.0,
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
def test_html_holds_everything_and_loads_nothing(result: BenchResult, language: Language) -> None:
    page = to_html(result_page(result, language))
    tags = _Tags()
    tags.feed(page)
    charts = charts_of(page)
    assert [chart["kind"] for chart in charts] == ["line", "bars"]
    assert tags.seen.count("script") == 3 and "<script>alert(1)" not in page, "two of data, and the UI's own"
    words = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    assert (
        "&lt;script&gt;" in words and "default-src 'none'" in words and not re.search(r"https?:|url\(|@import", words)
    )
    assert ("扩展效率" if language == "zh" else "efficiency") in words
    assert all(all(chart["axes"]) for chart in charts), "every axis says what it is"
    assert [(point["label"], point["deviation"] is None) for point in charts[0]["points"]] == [
        ("1", True),
        ("2", False),
    ]
    assert [point["culprit"] for point in charts[1]["points"]] == [False, True]


def test_markdown_tables_have_as_many_cells_in_every_row(result: BenchResult) -> None:
    text = to_markdown(result_page(result, "en"))
    assert "<script>" not in text and r"\<script\>" in text
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert len(tables) >= 5
    for table in tables:
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(counts) == 1, table


def test_terminal_shows_the_answer_first(result: BenchResult, capsys: pytest.CaptureFixture[str]) -> None:
    print_page(result_page(result, "en"))
    said = capsys.readouterr().out
    assert (
        said.index("91.0 ± 2.5 samples/s (95 %, 3 runs) on 2 ranks")
        < said.index("Score")
        < said.index("Where scaling loses time")
    )
    assert "(if fixed: 50.0 → 48.0 ms per step, 4.0 % less time)" in said
    assert "[red]" in said and "Every card" not in said
    print_page(result_page(result, "zh"), details=True)
    assert "1 号卡：40.0 样本/秒，同组其他卡 50.0（-20.0 %），出现于 3 次运行" in capsys.readouterr().out


def test_numbers_have_the_digits_they_deserve() -> None:
    assert [format_number(value) for value in (14151.18, 381.9, 9.5, 0.71386, 0.0, None)] == [
        "14,151",
        "381.9",
        "9.500",
        "0.7139",
        "0",
        "–",
    ]


def test_a_report_without_charts_needs_no_script() -> None:
    page = to_html(ReportPage("t", "h", (PageSection("s", ("words",)),), "en"))
    assert "<script" not in page and "script-src" not in page


def test_of_a_thousand_cards_the_slowest_are_shown_and_that_is_said() -> None:
    result = a_result((1024.0,), ranks=1024)
    cards = tuple(0.5 if card == 1000 else 1.0 for card in range(1024))
    run = msgspec.structs.replace(result.largest.repetitions[0], cards=(cards,))
    outlier = OutlierPart(kind="rank", name="1000", value=0.5, peers=1.0, percent=-50.0, runs=1, card=1000)
    size = msgspec.structs.replace(result.largest, repetitions=(run,), outliers=(outlier,))
    page = to_html(result_page(msgspec.structs.replace(result, measurements=(size,)), "en"))
    assert "The slowest 64 of 1,024 cards" in page and len(charts_of(page)[0]["points"]) == 64
    assert [point["label"] for point in charts_of(page)[0]["points"] if point["culprit"]] == ["1000"]


def test_every_node_is_shown_with_its_hardware_its_use_and_its_throughput() -> None:
    result = a_result((300.0, 302.0), ranks=6)
    nodes = tuple(NodeFacts(host=f"node-{n}", cards=2, card="910B", topology={"HCCS": 1}, cores=96) for n in range(3))
    runs = tuple(
        msgspec.structs.replace(
            each,
            cards=tuple((50.0 + number, 50.0 if node != 2 else 20.0) for node in range(3)),
            utilisation=tuple(WorkerUtilisation(f"worker-{n}", cards=0.8 - 0.2 * number) for n in range(3)),
        )
        for number, each in enumerate(result.largest.repetitions)
    )
    outlier = OutlierPart(kind="node", name="2", value=70.0, peers=100.0, percent=-30.0, runs=2, node=2)
    size = msgspec.structs.replace(result.largest, nodes=3, repetitions=runs, outliers=(outlier,))
    made = msgspec.structs.replace(result.provenance, nodes=nodes)
    page = result_page(msgspec.structs.replace(result, measurements=(size,), provenance=made), "en")
    (section,) = [each for each in page.sections if each.title == "Nodes"]
    assert section.table is not None and section.chart is not None
    assert section.table.rows[2] == ("2", "node-2", "2 × 910B", "HCCS × 1", "96", "70.0 %", "70.5")
    assert [(point.value, point.culprit) for point in section.chart.points] == [
        (100.5, False),
        (100.5, False),
        (70.5, True),
    ]
    assert section.chart.points[0].deviation == pytest.approx(0.5**0.5), "of 100 and 101"


@pytest.mark.parametrize(("after", "told"), [(0.70, True), (0.748, False), (0.80, False)])
def test_a_larger_size_that_learns_less_is_said(after: float, told: bool) -> None:
    sizes = [
        msgspec.structs.replace(
            a_result((speed,), ranks=ranks).largest,
            accuracy=SpreadPart(count=1, mean=accuracy, deviation=None, least=accuracy, most=accuracy),
        )
        for ranks, speed, accuracy in ((1, 50.0, 0.75), (4, 180.0, after))
    ]
    page = to_markdown(result_page(msgspec.structs.replace(a_result(), measurements=tuple(sizes)), "en"))
    assert ("Accuracy falls from 0.7500 to 0.7000 with 4 ranks" in page) is told


@pytest.mark.parametrize(
    ("file", "address"), [("report.html", "profile-1.html"), ("elsewhere/report.html", "../run/profile-1.html")]
)
def test_the_recording_is_one_click_away(file: str, address: str, tmp_path: Path) -> None:
    place = tmp_path / "run"
    target = place / file if file == "report.html" else tmp_path / file
    target.parent.mkdir(parents=True)
    profile = ProfilePart(source="p", step_ms=1.0, shares={}, diagnosis=diagnosis_titled("t"), report="profile-1.html")
    made = a_result()
    size = msgspec.structs.replace(made.largest, profile=profile)
    page = result_page(msgspec.structs.replace(made, measurements=(size,)), "en")
    show(page, target.with_suffix(".md"), target, place, silent=True)
    assert f'<a href="{address}">' in target.read_text(encoding="utf-8")
    assert f"]({address})" in target.with_suffix(".md").read_text(encoding="utf-8")


def test_the_chinese_report_names_metrics_and_warnings_in_chinese() -> None:
    made = a_result()
    slow = message("slow_card", node=0, n=1, value=4.0, peers=5.0, percent=-20.0)
    said = (said_at(message("place_size", n=2), message("no_profile", error="it is gone")), slow)
    failed = ExpectationPart(metric="stragglers", limit=0.0, relation="<=", value=1.0, passed=False, sure=True)
    result = msgspec.structs.replace(
        made,
        expectations=(failed,),
        verdict="FAIL",
        comparisons=compare(made, made, "last"),
        warnings=tuple(map(str, said)),
        warnings_said=said,
    )
    page = to_markdown(result_page(result, "zh"))
    assert "FAIL（未达标）：慢卡/慢节点数 1 \\> 0" in page and "| 慢卡/慢节点数 |" in page
    assert "吞吐，4 卡" in page and "2 卡：没有采集数据：it is gone" in page and "节点 0 的 1 号卡慢" in page
    assert "throughput" not in page and "stragglers" not in page
