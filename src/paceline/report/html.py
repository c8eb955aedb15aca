"""The one-file HTML report: page, data and code in one file that opens from disk, with no network at all."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from paceline.errors import PacelineError
from paceline.report.data import ReportData
from paceline.report.masking import masked
from paceline.report.table import packed
from paceline.whole import write_whole

STATIC = Path(__file__).parent / "static"
LANGUAGES = ("en", "zh")

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


def write_html(report: ReportData, target: Path, *, language: str = "en", mask_hosts: bool = False) -> None:
    """Write the report; the file appears whole or not at all."""
    write_whole(target, render_html(report, language=language, mask_hosts=mask_hosts))


def render_html(report: ReportData, *, language: str = "en", mask_hosts: bool = False) -> str:
    """The page as text; `language` is the one it opens in, the reader can switch."""
    script, style = _bundle("report.js"), _bundle("report.css")
    shown = masked(report) if mask_hosts else report
    return _PAGE.format(
        language="zh-CN" if language == "zh" else "en",
        policy=_policy(script, style),
        title=html.escape(_title(shown)),
        style=style,
        data=_json(shown, language),
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


def _title(report: ReportData) -> str:
    return f"{Path(report.source).name} · Paceline" if report.source else "Paceline"


def document(report: ReportData, language: str) -> dict[str, object]:
    """What the page is given, JSON-ready: schema "paceline.report/1"."""
    return {
        "schema": "paceline.report/1",
        "version": version("paceline"),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "language": language if language in LANGUAGES else "en",
        "source": report.source,
        "formats": list(report.formats),
        "layout": dict(report.layout),
        "hosts": list(report.hosts),
        "nominal": dict(report.nominal),
        "warnings": list(report.warnings),
        "more_warnings": report.more_warnings,
        "all_links": report.all_links,
        "unplaced_links": report.unplaced_links,
        "diagnoses": _finite(report.diagnoses),
        "tables": {name: packed(table) for name, table in report.tables.items()},
    }


def _json(report: ReportData, language: str) -> str:
    """The data as JSON that cannot end its own script element: `<` is written as \\u003c."""
    text = json.dumps(document(report, language), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _finite(value: object) -> object:
    """JSON knows no NaN: what is not a number is unknown, null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
