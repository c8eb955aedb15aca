"""Pages for everybody: axe-core finds nothing to complain about, in light and in dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from support.web.browsing import watched
from support.web.servers import Server

AXE = Path(__file__).parents[3] / "ui" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = (
    "overview",
    "steps",
    "communication",
    "communication?links=5",
    "communication?tab=matrix",
    "communication?tab=collectives",
    "resources",
    "timeline",
    "what-if",
    "cards/5?tab=operators",
    "cards/5?tab=host",
)
_RUN = """async rules => (await axe.run(document, { resultTypes: ["violations"], ...(rules ? { runOnly: rules } : {}) }))
    .violations.map(one => `${one.id}: ${one.nodes[0].html.slice(0, 200)}`)"""


def violations(page: Page, rules: list[str] | None = None) -> list[str]:
    expect(page.locator(".busy, .waiting-table")).to_have_count(0)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: Any = page.evaluate(_RUN, rules)
    return list(found)


@pytest.mark.parametrize(("scheme", "rules"), [("light", None), ("dark", ["color-contrast"])])
def test_no_page_keeps_anybody_out(browser: Browser, server: Server, scheme: str, rules: list[str] | None) -> None:
    run = server.timeline("llama-16")
    trouble: list[str] = []
    page = watched(browser, server, trouble, color_scheme=scheme)
    for path in ("/", *(f"/runs/{run}/{one}" for one in PAGES)):
        page.goto(server.url + path)
        expect(page.locator("main h1").first).to_be_attached()
        assert violations(page, rules) == [], path
    page.context.close()
    assert trouble == []
