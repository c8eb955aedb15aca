"""Write a report page as one HTML file: no network, everything escaped, light and dark; the UI's script draws the charts."""

from __future__ import annotations

from html import escape

import msgspec

from paceline.output.one_file_page import content_policy, json_in_html, ui_bundle
from paceline.output.page.charts import PageChart
from paceline.output.page.page import PageLink, PageSection, PageTable, ReportPage, link_address

_STYLE = """
body{margin:0 auto;max-width:1120px;padding:24px 20px 60px;background:var(--paper)}
h1{font-size:16px;font-weight:600;color:var(--ink-soft);margin:0}
.headline{font-size:24px;line-height:1.3;margin:4px 0 28px;font-weight:400}
section{margin:0;padding:0}section>h2{font-size:15px;margin:30px 0 8px;padding-bottom:4px;border-bottom:1px solid var(--rule)}
p,li{margin:4px 0}section>ul{padding-left:20px;margin:6px 0}
.wide{overflow-x:auto}table{border-collapse:collapse;margin:8px 0}
th{color:var(--ink-soft);font-weight:500;white-space:nowrap}
th,td{padding:3px 14px 3px 0;text-align:right;vertical-align:top}td{white-space:nowrap}th.t,td.t{text-align:left}
td.t{white-space:normal;overflow-wrap:break-word;max-width:56ch}
tbody tr:hover{background:var(--tint)}
.page-chart{max-width:720px;margin:10px 0}
footer{margin-top:40px;color:var(--ink-soft);font-size:13px}
"""
_PAGE = """<!doctype html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title} · Paceline</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p class="headline">{headline}</p>
{sections}
<footer>Paceline</footer>
{script}
</body>
</html>
"""


def to_html(page: ReportPage, *, base: str = "") -> str:
    """Words and tables are there without the script, which is inside the file if it has charts.

    `base` leads from the file to the directory that the page belongs to.
    """
    has_charts = any(section.chart is not None for section in page.sections)
    script = ui_bundle("report.js") if has_charts else ""
    style = ui_bundle("report.css") + _STYLE
    return _PAGE.format(
        lang="zh-CN" if page.language == "zh" else "en",
        policy=content_policy(script, style),
        title=escape(page.title),
        style=style,
        headline=escape(page.headline).replace(" %", "&nbsp;%"),
        sections="\n".join(_section(section, base) for section in page.sections),
        script=f"<script>{script}</script>" if script else "",
    )


def _section(section: PageSection, base: str) -> str:
    lines = [*map(escape, section.sentences), *(_link(link, base) for link in section.links)]
    kind, around = ("li", "ul") if section.table is None and len(lines) > 1 else ("p", "div")
    sentences = "".join(f"<{kind}>{line}</{kind}>" for line in lines)
    table = _table(section.table) if section.table else ""
    chart = _chart(section.chart) if section.chart else ""
    return f"<section><h2>{escape(section.title)}</h2><{around}>{sentences}</{around}>{chart}{table}</section>"


def _link(link: PageLink, base: str) -> str:
    return f'<a href="{escape(link_address(link, base))}">{escape(link.name)}</a>'


def _chart(chart: PageChart) -> str:
    """Its data; the script puts the drawing beside it. The table of the section has the same numbers."""
    data = json_in_html(msgspec.json.encode(chart))
    return f'<div class="page-chart"><script type="application/json">{data}</script></div>'


def _table(table: PageTable) -> str:
    def cells(row: tuple[str, ...], kind: str) -> str:
        marks = [' class="t"' if place in table.texts else "" for place in range(len(row))]
        return "".join(f"<{kind}{mark}>{escape(cell)}</{kind}>" for cell, mark in zip(row, marks, strict=True))

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    return f'<div class="wide"><table><thead><tr>{cells(table.heads, "th")}</tr></thead><tbody>{body}</tbody></table></div>'
