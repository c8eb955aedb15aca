"""Make the pictures of the documentation from a simulated run: the terminal as SVG, pages as PNG (`make pictures`).

    python scripts/make_pictures.py            # docs/pictures; needs Chromium

The run is that of docs/tutorials/tour.md, so that pictures and texts show the same numbers.
"""

from __future__ import annotations

import html
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

TARGET = Path(__file__).parents[1] / "docs" / "pictures"
PACELINE = str(Path(sys.executable).with_name("paceline"))
CHROMIUM = "/usr/bin/chromium"
WIDTH, HEIGHT, COLUMNS = 1180, 760, 118
SIMULATE = ("--fault", "slow-rank:11:1.3", "--seed", "7")
LETTER = 12.2
"""Width of a letter in Rich's pictures."""
LOCALES = {"en": "en-US", "zh": "zh-CN"}
PAGES = {"overview": ("light", "dark"), "steps": ("light",), "timeline": ("light",)}
"""Page → colours in which it is photographed, in both languages."""


def main() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        runs = Path(directory) / "runs"
        environment = {**os.environ, "PACELINE_CACHE": str(Path(directory) / "cache"), "LC_ALL": "C.UTF-8"}
        subprocess.run([PACELINE, "simulate", str(runs / "tour"), *SIMULATE], env=environment, check=True)
        for language in LOCALES:
            (TARGET / f"diagnose-{language}.svg").write_text(terminal(runs, environment, language), encoding="utf-8")
        with served(runs, environment) as server:
            photograph(server)


def terminal(runs: Path, environment: dict[str, str], language: str) -> str:
    """What `paceline diagnose` shows, as SVG without fonts from a network."""
    words = ["diagnose", "tour", "--lang", language]
    shown = subprocess.run(
        [PACELINE, *words, "--out", str(runs.parent / "report")],
        cwd=runs,
        env={**environment, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = [line for line in shown.splitlines() if str(runs.parent) not in line]
    text = Text.from_ansi("\n".join(lines).strip("\n"))
    width = max(line.cell_len for line in text.split("\n"))
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(text)
    picture = console.export_svg(title=f"paceline {' '.join(words)}", unique_id=f"paceline-{language}")
    return _LENGTH.sub(_with_length, re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL))


_LENGTH = re.compile(r'textLength="[\d.]+"( [^>]*>)([^<]*)</text>')


def _with_length(match: re.Match[str]) -> str:
    """Rich gives a text the length of its letters; a Chinese one is two columns wide."""
    return f'textLength="{cell_len(html.unescape(match[2])) * LETTER:g}"{match[1]}{match[2]}</text>'


@contextmanager
def served(runs: Path, environment: dict[str, str]) -> Iterator[str]:
    """The address of a server of these runs, all of them read."""
    server = subprocess.Popen(
        [PACELINE, "serve", str(runs), "--port", "0"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout is not None
        found = next(match for line in server.stdout if (match := re.search(r"http://[\d.]+:\d+", line)))
        yield found[0]
    finally:
        server.terminate()
        server.wait()


def photograph(server: str) -> None:
    run = _read_run(server)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for language, locale in LOCALES.items():
            for name, schemes in PAGES.items():
                for scheme in schemes:
                    context = browser.new_context(
                        viewport={"width": WIDTH, "height": HEIGHT}, locale=locale, color_scheme=scheme, bypass_csp=True
                    )
                    page = context.new_page()
                    page.goto(f"{server}/runs/{run}/{name}")
                    page.wait_for_selector("main h1, main h2", timeout=60_000)
                    page.wait_for_function(
                        "!document.querySelector('.busy, .waiting-table, main progress')", timeout=60_000
                    )
                    page.wait_for_timeout(500)
                    page.screenshot(path=str(TARGET / f"{name}-{language}-{scheme}.png"))
                    context.close()
        browser.close()


def _read_run(server: str) -> str:
    while not (found := _first_runs(server)):
        time.sleep(0.2)
    run = str(found[0]["id"])
    urllib.request.urlopen(urllib.request.Request(f"{server}/api/v1/runs/{run}/open", method="POST")).close()
    while _get(f"{server}/api/v1/runs/{run}")["state"]["phase"] != "ready":
        time.sleep(0.2)
    return run


def _first_runs(server: str) -> list[dict]:  # type: ignore[type-arg]
    """None while the server starts or still looks for runs."""
    try:
        return list(_get(f"{server}/api/v1/runs")["runs"])
    except urllib.error.URLError:
        return []


def _get(address: str) -> dict:  # type: ignore[type-arg]
    with urllib.request.urlopen(address) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
