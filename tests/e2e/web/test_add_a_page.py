"""docs/add-a-page.md is true: its example is applied to a copy of the sources, built, served and opened in a browser."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from paceline import simulate
from support.web.browsing import watched
from support.web.doc_example import REPOSITORY, apply_example, copy_sources
from support.web.servers import Serve

TOOLS = REPOSITORY / "ui/node_modules/.bin"
RUN = simulate.ClusterSpec(hosts=2, devices=2, dp=4, tp=1, pp=1, steps=3, layers=2, micro_batches=2, seed=6)


@pytest.fixture(scope="module")
def changed_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("example")
    copy_sources(target)
    apply_example(target)
    return target


def test_the_example_type_checks_and_its_texts_are_complete(changed_sources: Path) -> None:
    subprocess.run([TOOLS / "tsc", "--noEmit"], cwd=changed_sources / "ui", check=True)
    texts = json.loads((changed_sources / "src/paceline/core/texts/ui.json").read_text(encoding="utf-8"))
    assert {"ui.nav.hosts", "ui.web.hosts.title", "ui.column.slowest"} <= set(texts)
    assert all(text["en"] and text["zh"] for text in texts.values())


def test_the_new_page_shows_the_new_table_with_the_new_column(
    changed_sources: Path, serve: Serve, browser: Browser, tmp_path: Path
) -> None:
    subprocess.run([TOOLS / "vite", "build", "--mode", "web"], cwd=changed_sources / "ui", check=True)
    simulate.simulate(tmp_path / "runs/small", RUN, ["slow-rank:3:1.5"], "ascend-text")
    server = serve(tmp_path / "runs", source=changed_sources / "src")
    run = server.ready("small")
    rows = server.rows(run, "hosts")
    assert (rows[0]["host"], rows[0]["ranks"], rows[0]["slowest"]) == ("node2", 2, 3)
    assert rows[0]["self_time"] > rows[1]["self_time"] > 0

    trouble: list[str] = []
    page = watched(browser, server, trouble)
    page.goto(f"{server.url}/runs/{run}/overview")
    page.get_by_role("link", name="Hosts", exact=True).click()
    expect(page.locator("#hosts h2")).to_have_text("Step time and self time of every host, per step")
    expect(page.locator("[data-table=hosts] th")).to_contain_text(
        ["Host", "Ranks", "Step time", "Self time", "Slowest rank"]
    )
    expect(page.locator("[data-table=hosts] tbody tr")).to_have_count(2)
    page.context.close()
    assert trouble == []
