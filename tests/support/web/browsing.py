"""Chromium as tests drive it: pages that note everything odd."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page

from support.web.servers import Server

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


def watched(browser: Browser, server: Server, trouble: list[str], **context: object) -> Page:
    """A page at 1280 pixels that notes everything odd."""
    opened = browser.new_context(viewport={"width": 1280, "height": 900}, **({"locale": "en-US"} | context)).new_page()  # type: ignore[arg-type]
    opened.set_default_timeout(120_000)
    host = urlsplit(server.url).netloc
    opened.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.on("response", lambda one: trouble.append(f"{one.status} {one.url}") if one.status >= 400 else None)
    opened.on("request", lambda one: trouble.append(one.url) if urlsplit(one.url).netloc not in (host, "") else None)
    return opened


def drawn(page: Page, canvas: str) -> None:
    """Wait until a canvas shows at least three colours."""
    page.wait_for_function(
        """selector => {
            const canvas = document.querySelector(selector);
            if (!canvas || canvas.width < 200) return false;
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            const colors = new Set();
            for (let i = 0; i < pixels.length && colors.size < 3; i += 4)
                if (pixels[i + 3] > 250) colors.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
            return colors.size >= 3;
        }""",
        arg=canvas,
    )


def fits(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
