"""First views and drawing in headless Chromium, for benchmarks/web.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMES = 3
SETTLE_MS = 2500
"""What a page may take to ask for everything and draw it, before the drawing is read off."""

_MEASURES = """names => performance.getEntriesByType("measure").filter(one => names.includes(one.name))
    .map(one => one.duration)"""
_SLICES = """() => performance.getEntriesByType("resource").filter(one => one.name.includes("/slices"))
    .map(one => one.duration)"""
_FLUSH = """selector => { const canvas = document.querySelector(selector); const start = performance.now();
    canvas.getContext("2d").getImageData(0, 0, 1, 1); return performance.now() - start; }"""


@dataclass(frozen=True)
class View:
    """One line of the table: what, its limit in ms, where, what must be there, and how it is read off."""

    name: str
    limit: float
    run: str
    page: str
    selector: str
    measure: Callable[[Page], float] | None = None
    """Reads the time off a page that has drawn; without, the time until `selector` is there counts."""


def in_browser(url: str, runs: dict[str, str]) -> list[str]:
    print(f"\nHeadless Chromium, ms, best of {TIMES}")
    missed = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        for view in _VIEWS:
            value = min(_seen(browser, f"{url}/runs/{runs[view.run]}/{view.page}", view) for _ in range(TIMES))
            verdict = "kept" if value <= view.limit else "MISSED"
            print(f"  {view.name:48} {value:10.1f}   limit {view.limit:.0f}: {verdict}", flush=True)
            if value > view.limit:
                missed.append(f"{view.name}: {value:.0f} ms, wanted {view.limit:.0f}")
        browser.close()
    return missed


def _seen(browser: Browser, address: str, view: View) -> float:
    """A new context each time: nothing is in its cache."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        page = context.new_page()
        began = time.perf_counter()
        page.goto(address)
        page.locator(view.selector).first.wait_for()
        if view.measure is None:
            return 1e3 * (time.perf_counter() - began)
        page.wait_for_timeout(SETTLE_MS)
        return view.measure(page)
    finally:
        context.close()


def _drawing(names: list[str], canvas: str) -> Callable[[Page], float]:
    """The longest of each named piece of work, and what the canvas still owed."""

    def measure(page: Page) -> float:
        flush = float(page.evaluate(_FLUSH, canvas))
        return sum(max(page.evaluate(_MEASURES, [name])) for name in names) + flush

    return measure


def _timeline(page: Page) -> float:
    """The longest request for slices and the longest drawing."""
    return float(max(page.evaluate(_SLICES))) + _drawing(["paceline timeline"], ".timeline canvas")(page)


_VIEWS = (
    View("first view of 1,024 ranks", 1500, "ascend-1024", "overview", ".finding"),
    View("step trace of 1,024 ranks", 1500, "ascend-1024", "steps", "[data-table] tbody tr"),
    View("communication of 1,024 ranks", 1500, "ascend-1024", "communication", "[data-table] tbody tr"),
    View("first view of 10,240 ranks", 3000, "cluster-10240", "overview", ".finding"),
    View(
        "heat map, 10,240 ranks",
        50,
        "cluster-10240",
        "overview",
        ".map canvas",
        _drawing(["paceline draw"], ".map canvas"),
    ),
    View(
        "matrix, 1,024 × 1,024",
        50,
        "matrix-1024",
        "communication?tab=matrix",
        ".matrix canvas",
        _drawing(["paceline cells", "paceline draw"], ".matrix canvas"),
    ),
    View("timeline, 5 M events", 300, "timeline-5m", "timeline?open=0-63", ".timeline canvas", _timeline),
)
