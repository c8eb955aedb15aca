"""The one-file HTML report: page, data and code in one file that opens from disk, with no network at all."""

from __future__ import annotations

import base64
import hashlib
import html
from pathlib import Path

import msgspec

from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import PacelineError
from paceline.core.i18n import Language
from paceline.output.report import Report, report_document
from paceline.output.report_data import ReportData

STATIC = Path(__file__).parent / "static"

_PAGE = """<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="app"></div>
<noscript>
This report draws itself with JavaScript, all of it inside this file. 本报告需启用 JavaScript，代码均在本文件内。
</noscript>
<script type="application/json" id="paceline-data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def write_html(data: ReportData, target: Path, *, language: Language = "en") -> None:
    """Write the report; the file appears whole or not at all."""
    atomic_write_text(target, render_html(data, language=language))


def render_html(data: ReportData, *, language: Language = "en") -> str:
    """The page as text; `language` is the one it opens in, the reader can switch."""
    script, style = _bundle("report.js"), _bundle("report.css")
    return _PAGE.format(
        language="zh-CN" if language == "zh" else "en",
        policy=_policy(script, style),
        title=html.escape(_title(data)),
        style=style,
        data=_json(report_document(data, language)),
        script=script,
    )


def _bundle(name: str) -> str:
    """A built file of the UI; built, not committed."""
    try:
        text = (STATIC / name).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise PacelineError(
            f"the report's page is not built: {STATIC / name} is missing",
            hint="run `make ui` in Paceline's source tree (needs npm), or install a released wheel, which carries it",
        ) from error
    closing = "</script" if name.endswith(".js") else "</style"
    return text.replace(closing, closing.replace("/", "\\/"))


def _policy(script: str, style: str) -> str:
    """Nothing may load, run or be sent but what stands in this file, by hash."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _title(data: ReportData) -> str:
    return f"{Path(data.source).name} · Paceline" if data.source else "Paceline"


def _json(report: Report) -> str:
    """The data as JSON that cannot end its own script element: `<` is written as \\u003c."""
    text = msgspec.json.encode(report).decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
