"""1,024 ranks: a file that can be mailed, and an answer without scrolling."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from playwright.sync_api import expect, sync_playwright

from paceline.metrics.network.links import MOST_LINKS
from paceline.metrics.table import Table
from paceline.output.html_report import write_html
from paceline.output.report_data import ReportData

expect.set_options(timeout=120_000)
RANKS, CULPRIT = 1024, 517
LARGEST = 8_000_000


@pytest.fixture(scope="module")
def large(report: ReportData) -> ReportData:
    """The small report blown up to 1,024 ranks on 128 hosts, with as many links as a page ever draws."""
    rank = np.arange(RANKS, dtype=float)
    random = np.random.default_rng(1)
    hosts = [f"host-{number // 8:03}" for number in range(RANKS)]
    one = np.full(RANKS, 10.0)
    compute = np.where(rank == CULPRIT, 130.0, 100.0) + random.normal(0, 0.5, RANKS)
    parts = {
        "duration": one * 18,
        "compute": compute,
        "overlapped": one,
        "exposed": one,
        "waiting": 140 - compute,
        "tail": one * 0,
        "free": one,
        "data": one,
    }
    self_time, reference = compute + 30, one * 13
    compared = {"self_time": self_time, "reference": reference, "excess": self_time / reference - 1}
    per_host = {name: column[::8] for name, column in (parts | compared).items()}
    numbers = {"ranks": one[::8] * 0.8, "median_rank": rank[::8], "worst_rank": rank[::8]}
    pairs = random.choice(RANKS * RANKS, MOST_LINKS, replace=False)
    links = {
        "src": pairs // RANKS,
        "dst": pairs % RANKS,
        "bytes": random.uniform(1e8, 2e8, MOST_LINKS),
        "time": random.uniform(5, 20, MOST_LINKS),
    }
    bandwidth = links["bytes"] / links["time"] / 1e6
    links |= {"bandwidth": bandwidth, "reference": bandwidth, "ratio": bandwidth / bandwidth}
    links |= {"peers": bandwidth, "utilisation": bandwidth / bandwidth.max(), "busy": bandwidth > 0}
    tables = dict(report.tables) | {
        "ranks": Table({"rank": rank, "stage": rank // 512, "recorded": one}, {"host": hosts}),
        "breakdown": Table({"rank": rank, "steps": one} | parts | compared, {}),
        "host_breakdown": Table(
            numbers | per_host | {"worst_excess": per_host["excess"]}, {"host": list(dict.fromkeys(hosts))}
        ),
        "cluster_breakdown": Table({name: column.mean(keepdims=True) for name, column in parts.items()}, {}),
        "links": Table(
            {name: np.asarray(column, dtype=float) for name, column in links.items()},
            {"transport": ["RDMA"] * MOST_LINKS},
        ),
    }
    english = report.diagnoses["en"]
    subject = msgspec.structs.replace(english.findings[0].subject, ranks=(CULPRIT,))
    accused = msgspec.structs.replace(english.findings[0], title="Rank 517 is slow", subject=subject)
    diagnosis = msgspec.structs.replace(english, findings=(accused,))
    fields = {name: getattr(report, name) for name in report.__dataclass_fields__}
    changed = {"diagnoses": {"en": diagnosis}, "hosts": sorted(set(hosts)), "tables": tables}
    return ReportData(**{**fields, **changed, "all_links": RANKS * (RANKS - 1)})


def test_a_thousand_ranks_stay_small_and_the_culprit_is_in_sight(large: ReportData, tmp_path: Path) -> None:
    target = tmp_path / "large.html"
    write_html(large, target)
    assert target.stat().st_size < LARGEST
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium",
            timeout=600_000,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"],
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(target.as_uri())
        expect(page.locator(".finding").first).to_contain_text("Rank 517 is slow")
        expect(page.locator(".map canvas")).to_be_in_viewport(ratio=1)
        page.locator("button.main").first.click()
        expect(page.locator("#time .row.culprit")).to_have_attribute("data-rank", str(CULPRIT))
        expect(page.locator("#time .row.culprit")).to_be_in_viewport()
        assert page.locator("#time .row").count() < 60
        expect(page.locator("#links")).to_contain_text("150,000 busiest links")
        assert errors == []
        browser.close()
