"""The report in a real browser, from disk, as a reader opens it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from paceline.output.html_report import write_html
from paceline.output.report_data import ReportData, report_data
from paceline.run.run import Run

expect.set_options(timeout=120_000)
CHROMIUM = "/usr/bin/chromium"
# As root and without a network Chromium needs these; without them it looks for its maker's hosts at every start.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=600_000)
        yield chromium
        chromium.close()


@pytest.fixture
def trouble() -> list[str]:
    """Console errors, exceptions and requests beyond the file itself."""
    return []


@pytest.fixture
def page(browser: Browser, trouble: list[str]) -> Iterator[Page]:
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.set_default_timeout(120_000)
    opened.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.on("request", lambda request: trouble.append(request.url) if not request.url.startswith("file:") else None)
    yield opened
    opened.close()


def show(page: Page, report: ReportData, target: Path, language: str = "en") -> None:
    write_html(report, target / "report.html", language=language)
    page.goto((target / "report.html").as_uri())


def test_the_answer_comes_first_and_show_me_leads_to_the_marked_culprit(
    page: Page, report: ReportData, tmp_path: Path, trouble: list[str]
) -> None:
    show(page, report, tmp_path)
    first = page.locator(".finding").first
    expect(first).to_contain_text("Rank 5 (host node2): computing is 30 % slower than on the peers")
    expect(first).to_contain_text("If fixed: 412 → 351 ms per step (1.17× faster, 14.8 % less time)")
    expect(page.locator(".speed")).to_contain_text("412 ms")
    first.locator("button.main").click()
    culprit = page.locator("#time .row.culprit")
    expect(culprit).to_have_attribute("data-rank", "5")
    expect(culprit).to_be_in_viewport()
    assert trouble == []


def test_the_language_switches_in_the_page(page: Page, report: ReportData, tmp_path: Path, trouble: list[str]) -> None:
    show(page, report, tmp_path)
    page.click("#language")
    expect(page.locator("#findings h2")).to_have_text("训练慢在哪里")
    expect(page.locator(".finding").first).to_contain_text("5 号卡（主机 node2）计算慢 30 %")
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    page.click("#language")
    expect(page.locator("#findings h2")).to_have_text("What slows this run down")
    assert trouble == []


def test_a_slow_link_is_marked_in_the_table_and_on_the_matrix(
    page: Page, report: ReportData, tmp_path: Path, trouble: list[str]
) -> None:
    show(page, report, tmp_path)
    page.locator(".finding").nth(1).locator("button.main").click()
    expect(page.locator("#links tr.culprit")).to_contain_text("0 → 1")
    expect(page.locator("#links")).to_be_in_viewport()
    assert "200,16,46" in _colors(page, "#links canvas")
    page.locator("#links canvas").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tip")).to_contain_text("HCCS")
    assert trouble == []


def test_every_chart_draws_in_both_themes(
    browser: Browser, report: ReportData, tmp_path: Path, trouble: list[str]
) -> None:
    for scheme, paper in (("light", "rgb(251, 251, 250)"), ("dark", "rgb(20, 22, 26)")):
        page = browser.new_page(color_scheme=scheme)  # type: ignore[arg-type]
        page.on("pageerror", lambda error: trouble.append(str(error)))
        show(page, report, tmp_path)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
        for canvas in (".map canvas", "#arrivals canvas", "#operators canvas", "#links canvas"):
            assert len(_colors(page, canvas)) >= 3, canvas
        page.close()
    assert trouble == []


def test_hostile_names_are_shown_not_run(page: Page, report: ReportData, tmp_path: Path, trouble: list[str]) -> None:
    name = "</script><img src=x onerror=alert(1)>\"'"
    tables = {key: table.map_texts(lambda text: text.replace("node2", name)) for key, table in report.tables.items()}
    page.on("dialog", lambda dialog: trouble.append(dialog.message))
    show(page, replace(report, hosts=["node1", name], tables=tables), tmp_path)
    expect(page.locator("#time .hostname").nth(1)).to_have_text(name)
    assert page.locator("img").count() == 0
    assert trouble == []


def test_a_healthy_run_says_so_and_an_empty_one_says_why(
    page: Page, run: Run, report: ReportData, tmp_path: Path, trouble: list[str]
) -> None:
    healthy = {
        language: msgspec.structs.replace(diagnosis, findings=()) for language, diagnosis in report.diagnoses.items()
    }
    show(page, report_data(run, healthy), tmp_path)
    expect(page.locator("#findings .empty")).to_contain_text("Nothing stands out")
    show(page, replace(report, diagnoses={}, tables={"ranks": report.tables["ranks"]}), tmp_path)
    expect(page.locator("#findings .empty")).to_contain_text("No diagnosis")
    assert page.locator(".empty").count() >= 8
    assert trouble == []


def _colors(page: Page, canvas: str) -> set[str]:
    """Distinct colours drawn on a canvas."""
    page.locator(canvas).wait_for()
    page.wait_for_function("selector => document.querySelector(selector).width > 300", arg=canvas)
    found = page.evaluate(
        """selector => {
            const canvas = document.querySelector(selector);
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            const colors = new Set();
            for (let i = 0; i < pixels.length; i += 4)
                if (pixels[i + 3] > 250) colors.add(`${pixels[i]},${pixels[i + 1]},${pixels[i + 2]}`);
            return [...colors];
        }""",
        canvas,
    )
    return set(found)
