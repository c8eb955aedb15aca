"""The one-file HTML report: page, data and code in one file that opens from disk, with no network at all."""

from __future__ import annotations

import html
from pathlib import Path

import msgspec

from paceline.core.atomic_write import atomic_write_text
from paceline.core.i18n import Language
from paceline.output.one_file_page import content_policy, json_in_html, ui_bundle
from paceline.output.report import report_document
from paceline.output.report_data import ReportData

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
    script, style = ui_bundle("report.js"), ui_bundle("report.css")
    return _PAGE.format(
        language="zh-CN" if language == "zh" else "en",
        policy=content_policy(script, style),
        title=html.escape(_title(data)),
        style=style,
        data=json_in_html(msgspec.json.encode(report_document(data, language))),
        script=script,
    )


def _title(data: ReportData) -> str:
    return f"{Path(data.source).name} · Paceline" if data.source else "Paceline"
