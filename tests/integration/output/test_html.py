"""The HTML file: complete in itself, safe against what names may hold, honest about a missing build."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.core.errors import PacelineError
from paceline.output import one_file_page
from paceline.output.html_report import render_html, write_html
from paceline.output.masking import HostMask, mask_hosts
from paceline.output.report_data import ReportData

HOSTILE = "</script><script>alert(1)</script>\"'<!--&\u2028"


def data_in(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="paceline-data">(.*?)</script>', page, re.S)
    assert found
    document: dict[str, Any] = json.loads(found.group(1))
    return document


def renamed(report: ReportData, name: str) -> ReportData:
    """The report as if host node2 had another name."""
    tables = {key: table.map_texts(lambda text: text.replace("node2", name)) for key, table in report.tables.items()}
    return replace(report, hosts=["node1", name], tables=tables, source=f"/runs/{name}")


def test_nothing_outside_the_file_is_referred_to(report: ReportData) -> None:
    page = render_html(report)
    markup = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", page, flags=re.S)
    assert not re.search(r"""(src|href|action)\s*=|url\(|@import|https?://""", markup)
    assert not re.search(r"url\(|@import", "".join(re.findall(r"<style>(.*?)</style>", page, re.S)))
    assert "default-src 'none'" in page


def test_hostile_names_stay_text(report: ReportData) -> None:
    page = render_html(renamed(report, HOSTILE))
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert "alert(1)</script>" not in page
    document = data_in(page)
    assert document["hosts"] == ["node1", HOSTILE]
    assert HOSTILE in document["tables"]["ranks"]["host"]


def test_both_languages_are_inside_and_the_first_one_is_chosen(report: ReportData) -> None:
    page = render_html(report, language="zh")
    assert '<html lang="zh-CN">' in page
    document = data_in(page)
    assert document["language"] == "zh"
    assert set(document["diagnoses"]) == {"en", "zh"}


def test_a_number_that_is_none_becomes_null(report: ReportData) -> None:
    findings = data_in(render_html(report))["diagnoses"]["en"]["findings"]
    assert findings[1]["evidence"][0]["value"] is None


def test_masked_hosts_occur_nowhere(report: ReportData) -> None:
    page = render_html(mask_hosts(replace(report, source="/home/someone/node2-run")))
    assert "node1" not in page
    assert "node2" not in page
    assert "someone" not in page
    document = data_in(page)
    assert document["hosts"] == ["host-1", "host-2"]
    assert document["warnings"] == ["host-2_10004/trace_view.json: cut off"]
    assert document["diagnoses"]["en"]["findings"][0]["title"].startswith("Rank 5 (host host-2)")


def test_masking_an_address_leaves_longer_addresses_and_numbers_alone() -> None:
    mask = HostMask(["10.0.0.1", "10.0.0.12", "7"])
    assert mask.text("10.0.0.12 waits for 10.0.0.1 in step 7") == "host-2 waits for host-1 in step 7"
    assert mask.text("7") == "host-3"


def test_a_missing_build_names_the_command(report: ReportData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_file_page, "STATIC", tmp_path)
    with pytest.raises(PacelineError, match="not built") as caught:
        write_html(report, tmp_path / "report.html")
    assert "make ui" in str(caught.value.hint)
    assert list(tmp_path.iterdir()) == []


def test_writing_replaces_the_old_file_and_leaves_nothing_else(report: ReportData, tmp_path: Path) -> None:
    target = tmp_path / "new" / "report.html"
    write_html(report, target)
    write_html(report, target, language="zh")
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]
    assert 'lang="zh-CN"' in target.read_text(encoding="utf-8")
