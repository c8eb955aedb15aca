"""Whatever is typed: one clear line, an exit code, no traceback, and nothing of the machine replaced."""

from __future__ import annotations

import os
import socket
import stat
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from paceline.cli.main import main
from support.run.profiles import write_rank


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "run"
    for rank in range(2):
        write_rank(root, rank, ranks=2)
    return root


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Said:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Said(monkeypatch, capfd)


class Said:
    """What the command says on stderr, which must be an error of a line or two."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capfd = monkeypatch, capfd

    def __call__(self, *words: object) -> str:
        self._monkeypatch.setattr(sys, "argv", ["paceline", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (1, 2)
        captured = self._capfd.readouterr()
        assert captured.out == "" and "Traceback" not in captured.err
        assert captured.err.strip()
        return captured.err


def test_a_pipe_and_a_socket_are_no_source(said: Said, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for name in ("pipe", "socket"):
            assert said("show", name).startswith(f"paceline: {name}: neither a file nor a directory")


@pytest.mark.parametrize("steps", ["9-3", "3-", "-3", "x", "1-99999999999"])
def test_steps_that_are_no_range(said: Said, source: Path, steps: str) -> None:
    assert said("diagnose", source, f"--steps={steps}").startswith(f"paceline: --steps {steps}: ")


def test_steps_that_were_not_recorded_are_told_with_where_to_look(said: Said, source: Path) -> None:
    assert "paceline show SOURCE steps" in said("diagnose", source, "--steps", "70-80")


def test_a_fix_that_is_none_is_told_before_anything_is_printed(said: Said, source: Path) -> None:
    assert "rank:999: this run has no such rank" in said("what-if", source, "--fix", "rank:999")
    assert "possible: rank:N" in said("what-if", source, "--fix", "rank:0", "--fix", "nonsense")


def test_export_of_ranks_the_run_does_not_have(said: Said, source: Path, tmp_path: Path) -> None:
    for kind in ("parquet", "chrome-trace"):
        assert "none of them is in this run" in said("export", source, "--to", kind, "--ranks", "7-9", "-o", "out")
    assert not (tmp_path / "out").exists()


def test_a_directory_is_not_replaced_by_a_file(said: Said, source: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    for words in (("show", source, "steps"), ("sql", source, "select 1"), ("export", source, "--to", "chrome-trace")):
        assert said(*words, "-o", "taken").startswith("paceline: taken: cannot be written: Is a directory")


def test_a_pipe_given_as_output_stays_a_pipe(said: Said, source: Path, tmp_path: Path) -> None:
    """As does /dev/null, which nobody should lose because root took a table of it."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run("show", source, "steps", "-f", "csv", "-o", "pipe").exit_code == 0
        assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
        assert os.read(reader, 1 << 16).startswith(b"rank,step,")
    finally:
        os.close(reader)


def test_a_store_that_is_a_file(said: Said, source: Path, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    assert said("show", source, "--store", "store").startswith("paceline: store")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_behind_stdout_is_told(said: Said, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert said("kb").startswith("paceline: stdout: No space left on device")
        monkeypatch.undo()


@pytest.mark.parametrize(
    "words",
    [("--tp", 0), ("--pp", 0), ("--dp", 0), ("--hosts", 10**6, "--devices", 10**6), ("--fault", "slow-rank:5:1e308")],
)
def test_a_cluster_that_cannot_be(said: Said, tmp_path: Path, words: tuple[object, ...]) -> None:
    said("simulate", "out", *words)
    assert not (tmp_path / "out").exists()


def test_run_profiled_refuses_what_the_profiler_would_pass_over(said: Said) -> None:
    assert "is before --start-step" in said("run-profiled", "--start-step", 5, "--stop-step", 2, "true")
    assert "--start-step" in said("run-profiled", "--start-step", 0, "true")
    assert "Level9" in said("run-profiled", "--level", "Level9", "true")


def test_rank_tables_that_are_none(said: Said, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    assert said("rank-table", "check", tmp_path).startswith(f"paceline: {tmp_path}: Is a directory")
    assert said("rank-table", "convert", "text", "--timeout", 0).startswith("paceline: text: is not a rank table")
    assert "the smaller number comes first" in said("rank-table", "generate", "--host", "10.0.0.1", "--devices", "7-0")


def run(*words: object) -> Result:
    from paceline.cli.main import application

    return CliRunner().invoke(application(), [str(word) for word in words], catch_exceptions=False)


def test_what_is_not_installed_is_told_with_how_to_install_it(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncssh", None)
    assert "pip install 'paceline[storage]'" in said("collect", "--host", "127.0.0.1", "--path", "/x", "-o", "out")
