"""History: kept whole or not at all, never changed, readable whatever happened."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from paceline.bench.history import latest_result, load_history, save_result
from paceline.bench.report.history_content import history_page
from paceline.core.errors import FormatError, UsageError
from paceline.core.i18n import LANGUAGES
from paceline.output.page.html import to_html
from support.bench.result_trees import a_result, charts_of, paceline, written

_WRITER = """
import sys
from pathlib import Path
from support.bench.result_trees import a_result
from paceline.bench.history import save_result
import msgspec
result = a_result(tuple(float(n) for n in range(1, 2001)))
number = 0
print("ready", flush=True)
while True:
    number += 1
    save_result(msgspec.structs.replace(result, id=f"run-{number:06}"), Path(sys.argv[1]))
"""


def test_results_are_kept_in_order_and_never_changed(tmp_path: Path) -> None:
    for number, value in enumerate((100.0, 110.0, 90.0)):
        save_result(a_result((value,), number=number), tmp_path)
    assert [each.throughput_ratio for each in load_history(tmp_path).results] == [100.0, 110.0, 90.0]
    kept = save_result(a_result((1.0,), number=0), tmp_path)
    assert latest_result("model", tmp_path).throughput_ratio == 110.0, "90 is a regression"
    assert b"100.0" in kept.read_bytes()


def test_killed_in_the_middle_of_writing_leaves_history_readable(tmp_path: Path) -> None:
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE, env=environment
        )
        assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
        before = len(list(tmp_path.glob("run-*.json")))
        while len(list(tmp_path.glob("run-*.json"))) < before + 2 and writer.poll() is None:
            pass
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        found = load_history(tmp_path)
        assert found.warnings == () and len(found.results) >= 2
        for path in tmp_path.glob("run-*.json"):
            path.unlink()


def test_a_file_that_is_no_result_is_said_and_does_not_hide_the_others(tmp_path: Path) -> None:
    save_result(a_result(number=1), tmp_path)
    (tmp_path / "0-torn.json").write_text('{"schema": "paceline.bench/1", "id":')
    (tmp_path / "1-other.json").write_text('{"schema": "something/1"}')
    written(msgspec.structs.replace(a_result(), proc_end_time="yesterday"), tmp_path / "2-time.json")
    written(msgspec.structs.replace(a_result(), measurements=()), tmp_path / "3-empty.json")
    found = load_history(tmp_path)
    assert len(found.results) == 1 and len(found.warnings) == 4
    assert any("proc_end_time: 'yesterday' is not a time" in each for each in found.warnings)


def test_unsafe_names_are_refused_and_unknown_ones_said(tmp_path: Path) -> None:
    with pytest.raises(FormatError):
        save_result(msgspec.structs.replace(a_result(), id="../../etc/passwd"), tmp_path)
    with pytest.raises(UsageError, match="no benchmark named nothing"):
        latest_result("nothing", tmp_path)


def test_trend_is_one_page_without_network(tmp_path: Path) -> None:
    results = [a_result((100.0 + n, 104.0 + n), number=n, name="<b>&") for n in range(12)]
    for language in LANGUAGES:
        page = to_html(history_page(results, language))
        assert [len(chart["points"]) for chart in charts_of(page)] == [12]
        assert "<b>&" not in page and "&lt;b&gt;&amp;" in page
        words = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
        assert "http:" not in words and "https:" not in words and "default-src 'none'" in words


def test_history_command_lists_and_draws(tmp_path: Path) -> None:
    for number in range(3):
        save_result(a_result((100.0 + number,), number=number))
    done = paceline("bench", "history", "model", "--html", tmp_path / "h.html", "--lang", "en")
    assert done.returncode == 0 and "throughput of 3 runs" in done.stdout and "+1.0 %" in done.stdout
    assert (tmp_path / "h.html").read_text().startswith("<!doctype html>")
    empty = paceline("bench", "history", "--store", tmp_path / "none")
    assert empty.returncode == 0 and "No benchmark was run here yet" in empty.stdout


def test_report_command_compares_with_another_result(tmp_path: Path) -> None:
    before, after = written(a_result((100.0,)), tmp_path / "a.json"), written(a_result((80.0,)), tmp_path / "b.json")
    done = paceline("bench", "report", after, "--baseline", before, "--lang", "en", "--markdown", tmp_path / "r.md")
    assert done.returncode == 5 and "worse" in done.stdout
    assert "| throughput, 4 ranks | 100.0 | 80.0 | -20.0 % |" in (tmp_path / "r.md").read_text()
    assert paceline("bench", "report", before, "--baseline", after).returncode == 0
    broken = paceline("bench", "report", tmp_path / "r.md")
    assert broken.returncode == 1 and "not a benchmark result" in broken.stderr


def test_a_name_that_was_never_benchmarked_is_told(tmp_path: Path) -> None:
    save_result(a_result((1.0,)), tmp_path)
    done = paceline("bench", "history", "modle", "--store", tmp_path)
    assert done.returncode == 2
    assert "no benchmark named modle in the history" in done.stderr
