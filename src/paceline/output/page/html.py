"""Write a report page as one HTML file: no script, no network, everything escaped, light and dark."""

from __future__ import annotations

import base64
import hashlib
from html import escape

from paceline.output.page.page import PageSection, PageTable, ReportPage

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2733;--soft:#5b6b7b;--line:#d9e0e7;--paper:#fff;--blue:#2b6cb0;--red:#c53030;
--grey:#9aa7b4}
@media(prefers-color-scheme:dark){:root{--ink:#e3e9ef;--soft:#9fb0c0;--line:#2f3b47;--paper:#151b21;--blue:#63a4e0;--red:#f07070;--grey:#6b7a88}}
body{margin:0 auto;max-width:960px;padding:24px 20px 60px;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,"Noto Sans","Noto Sans CJK SC","PingFang SC","Microsoft YaHei",sans-serif}
h1{font-size:16px;font-weight:600;color:var(--soft);margin:0}
.answer{font-size:24px;line-height:1.3;margin:4px 0 28px}
h2{font-size:15px;margin:30px 0 8px;padding-bottom:4px;border-bottom:1px solid var(--line)}
p,li{margin:4px 0}ul{padding-left:20px;margin:6px 0}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:8px 0}
th{color:var(--soft);font-weight:500;white-space:nowrap}
th,td{padding:3px 14px 3px 0;text-align:right;vertical-align:top}th.t,td.t{text-align:left;overflow-wrap:anywhere}
tbody tr:hover{background:color-mix(in srgb,var(--blue) 8%,transparent)}
svg{display:block;width:100%;max-width:720px;height:auto;margin:10px 0}
.label{font-size:12px;fill:var(--soft)}.grid{stroke:var(--line);fill:none}.line{stroke:var(--blue);fill:none;stroke-width:2}
.ideal{stroke:var(--grey);fill:none;stroke-width:1.5;stroke-dasharray:5 4}.whisker{stroke:var(--blue);stroke-width:1.5;opacity:.6}
.dot,.bar{fill:var(--blue)}.culprit{fill:var(--red)}
footer{margin-top:40px;color:var(--soft);font-size:13px}
"""
_PAGE = """<!doctype html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title} · Paceline</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p class="answer">{headline}</p>
{sections}
<footer>Paceline</footer>
</body>
</html>
"""


def to_html(page: ReportPage) -> str:
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode("ascii")
    return _PAGE.format(
        lang="zh-CN" if page.language == "zh" else "en",
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        title=escape(page.title),
        style=_STYLE,
        headline=escape(page.headline).replace(" %", "&nbsp;%"),
        sections="\n".join(_section(section) for section in page.sections),
    )


def _section(section: PageSection) -> str:
    kind, around = ("li", "ul") if section.table is None and len(section.sentences) > 1 else ("p", "div")
    sentences = "".join(f"<{kind}>{escape(sentence)}</{kind}>" for sentence in section.sentences)
    table = _table(section.table) if section.table else ""
    return f"<section><h2>{escape(section.title)}</h2><{around}>{sentences}</{around}>{section.chart}{table}</section>"


def _table(table: PageTable) -> str:
    def cells(row: tuple[str, ...], kind: str) -> str:
        marks = [' class="t"' if place in table.texts else "" for place in range(len(row))]
        return "".join(f"<{kind}{mark}>{escape(cell)}</{kind}>" for cell, mark in zip(row, marks, strict=True))

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    return f'<div class="wide"><table><thead><tr>{cells(table.heads, "th")}</tr></thead><tbody>{body}</tbody></table></div>'
