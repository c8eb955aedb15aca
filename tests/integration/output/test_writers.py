"""Output writers: ours and an installed package's are found by name, and write what they promise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.main import application
from paceline.core.errors import PacelineError, UsageError
from paceline.core.plugins import our_plugins
from paceline.output.one_file_page import STATIC
from paceline.output.writer import ENTRY_POINTS, ExportOptions, find_writer
from paceline.run.run import Run
from support.installed import install_package

TOY_WRITER = """
class RankList:
    def default_name(self, source):
        return f"{source}.txt"

    def write(self, run, target, options):
        ranks = [str(rank) for (rank,) in run.sql("SELECT rank FROM ranks ORDER BY rank").fetchall()]
        target.write_text(" ".join(ranks))
        return f"{target}: {len(ranks)} ranks in {options.language}"


RANK_LIST, NO_WRITER = RankList(), 7
"""


@pytest.fixture
def toy_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"rank-list": "toy_writer:RANK_LIST", "nothing": "toy_writer:NO_WRITER"}
    install_package(tmp_path, monkeypatch, name="toy_writer", code=TOY_WRITER, group=ENTRY_POINTS, entries=entries)


@pytest.mark.usefixtures("toy_writer")
def test_a_packages_writer_is_an_output_of_export(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    target = tmp_path / "ranks.txt"
    words = ["export", str(run.source), "--to", "rank-list", "--output", str(target), "--lang", "zh"]
    done = CliRunner().invoke(application(), words)
    assert done.exit_code == 0, done.output
    assert target.read_text() == "0 1 2 3 4 5 6 7"
    assert f"{target}: 8 ranks in zh" in done.stderr


@pytest.mark.usefixtures("toy_writer")
def test_an_unknown_writer_lists_the_known_ones_and_a_wrong_one_is_named() -> None:
    with pytest.raises(UsageError, match="--to parket: unknown writer") as error:
        find_writer("parket")
    assert error.value.hint == (
        "known: chrome-trace, cluster-analysis, csv, html, json, msadvisor, nothing, parquet, perfetto, rank-list"
    )
    with pytest.raises(PacelineError, match="--to nothing: toy_writer:NO_WRITER is not a writer"):
        find_writer("nothing")


@pytest.mark.parametrize("name", sorted(our_plugins(ENTRY_POINTS)))
def test_each_of_our_writers_writes_the_run(run: Run, tmp_path: Path, name: str) -> None:
    if name == "html" and not (STATIC / "report.js").exists():
        pytest.skip("the report's page is not built: make ui")
    writer = find_writer(name)
    target = tmp_path / writer.default_name("run")
    assert str(target) in writer.write(run, target, ExportOptions())
    assert any(target.iterdir()) if target.is_dir() else target.stat().st_size > 100


def test_the_diagnosis_is_written_in_the_language_asked_for(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "diagnosis.json"
    find_writer("json").write(run, target, ExportOptions(language="zh"))
    assert "号卡" in json.loads(target.read_text(encoding="utf-8"))["findings"][0]["title"]


@pytest.mark.parametrize("name", ["json", "html", "msadvisor", "cluster-analysis"])
def test_a_writer_that_needs_all_ranks_says_so(run: Run, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="--ranks does not go with"):
        find_writer(name).write(run, tmp_path / "out", ExportOptions(ranks="0-3"))
    assert not (tmp_path / "out").exists()
