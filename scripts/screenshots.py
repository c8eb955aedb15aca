"""Screenshots of every page of a running `paceline serve`: both languages, light and dark, at 1024, 1400 and 1920 pixels.

    make screenshots        # runs of 4 to 1,024 ranks, all of it; or
    paceline serve runs &
    python scripts/screenshots.py http://127.0.0.1:8080 SHOTS [--run NAME …] [--width 1024] [--page overview] [--few]

Written: SHOTS/RUN/PAGE-LANGUAGE-COLOURS-WIDTH.png. Exits 1, naming page and reason, if a page logs to the console, fails a
request, is wider than its window, or is found wanting by axe-core. For people who look at them; tests check the same rules.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from time import sleep

from playwright.sync_api import Page, TimeoutError, sync_playwright

ROOT = Path(__file__).parents[1]
CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
AXE = ROOT / "ui/node_modules/axe-core/axe.min.js"
PAGES = {
    "overview": "overview",
    "steps": "steps",
    "communication": "communication",
    "links": "communication?tab=links",
    "matrix": "communication?tab=matrix",
    "collectives": "communication?tab=collectives",
    "packets": "communication?tab=packets",
    "resources": "resources",
    "timeline": "timeline",
    "what-if": "what-if",
    "card": "cards/{rank}",
    "card-operators": "cards/{rank}?tab=operators",
    "card-memory": "cards/{rank}?tab=memory",
}
WIDTHS = (1024, 1400, 1920)
LANGUAGES = {"en": "en-US", "zh": "zh-CN"}
SCHEMES = ("light", "dark")
PATIENCE_MS = 300_000
"""For the first timeline of a large run on a busy machine."""


def main() -> int:
    arguments = _arguments()
    runs = dict(_runs(arguments.server))
    chosen = arguments.run or sorted(runs)
    views = [
        (language, scheme, width)
        for width in arguments.width or WIDTHS
        for language in LANGUAGES
        for scheme in SCHEMES
        if not arguments.few or (language == "en") == (scheme == "light")
    ]
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for language, scheme, width in views:
            context = browser.new_context(
                viewport={"width": width, "height": 900},
                locale=LANGUAGES[language],
                color_scheme=scheme,
                bypass_csp=True,
            )
            page = _watched(context.new_page(), problems)
            for name in chosen:
                _read(arguments.server, runs[name])
                rank = _first_rank(arguments.server, runs[name])
                for title, path in PAGES.items():
                    if arguments.page and title not in arguments.page:
                        continue
                    target = arguments.shots / name.replace("/", "_") / f"{title}-{language}-{scheme}-{width}.png"
                    page.goto(f"{arguments.server}/runs/{runs[name]}/{path.format(rank=rank)}")
                    problems += [f"{target}: {problem}" for problem in _photograph(page, target, width)]
            context.close()
        browser.close()
    print("\n".join(problems) or "nothing wrong")
    return 1 if problems else 0


def _watched(page: Page, problems: list[str]) -> Page:
    page.on("console", lambda message: problems.append(f"{page.url}: console: {message.text}"))
    page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
    return page


def _photograph(page: Page, target: Path, width: int) -> Iterator[str]:
    try:
        page.wait_for_selector("main h1, main h2", timeout=PATIENCE_MS)
        page.wait_for_function("!document.querySelector('.busy, .waiting-table, main progress')", timeout=PATIENCE_MS)
    except TimeoutError:
        yield f"still busy after {PATIENCE_MS / 1e3:.0f} s"
        return
    page.wait_for_timeout(250)
    target.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(target), full_page=True)
    if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
        yield f"{wide} pixels wide"
    page.add_script_tag(path=str(AXE))
    for violation in page.evaluate("axe.run().then(found => found.violations)"):
        yield f"axe: {violation['id']}: {violation['nodes'][0]['html'][:120]}"


def _runs(server: str) -> Iterator[tuple[str, str]]:
    """Name and id of every run."""
    while (found := _get(f"{server}/api/v1/runs?limit=500"))["scanning"]:
        sleep(0.2)
    for run in found["runs"]:
        yield run["name"], run["id"]


def _read(server: str, run: str) -> None:
    request = urllib.request.Request(f"{server}/api/v1/runs/{run}/open", method="POST")
    urllib.request.urlopen(request).close()
    while _get(f"{server}/api/v1/runs/{run}")["state"]["phase"] not in ("ready", "failed"):
        sleep(0.2)


def _first_rank(server: str, run: str) -> int:
    """The rank a finding names first, else the one farthest above its peers."""
    rows = _get(f"{server}/api/v1/runs/{run}/tables/step-trace?limit=1")["rows"]
    return int(rows[0][0]) if rows else 0


def _get(address: str) -> dict:  # type: ignore[type-arg]
    with urllib.request.urlopen(address) as answer:
        return json.load(answer)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("shots", type=Path)
    parser.add_argument("--run", action="append")
    parser.add_argument("--page", action="append")
    parser.add_argument("--width", action="append", type=int)
    parser.add_argument("--few", action="store_true", help="English in light, Chinese in dark only")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
