"""Names of any bytes, terminals of any encoding: shown without tracebacks, and without running what a name holds."""

from __future__ import annotations

import gzip
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.simulate import ClusterSpec, simulate

HOSTILE = "=\x1b]0;owned\x07\x1b[31m\u202e"
PACELINE = [sys.executable, "-m", "paceline.cli.main"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rank that is slow in an operator with a hostile name."""
    target = tmp_path_factory.mktemp("hostile") / "run"
    simulate(
        target, ClusterSpec(hosts=2, devices=2, dp=4, tp=1, pp=1, steps=4, layers=2), ["slow-rank:2:1.6"], "kineto"
    )
    for file in target.glob("*.gz"):
        trace = json.loads(gzip.decompress(file.read_bytes()))
        for event in trace["traceEvents"]:
            if event.get("cat") == "kernel" and "nccl" not in event["name"]:
                event["name"] = HOSTILE + event["name"]
        file.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return target


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ask(*words: bytes | str | Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*PACELINE, *map(os.fspath, words)], capture_output=True, env={**os.environ, **environment})


@pytest.mark.parametrize(
    "command", [["show", "kernels"], ["show", "ranks"], ["diagnose", "--out", "report"], ["breakdown"]]
)
def test_no_control_sequence_of_a_name_is_printed(run: Path, command: list[str]) -> None:
    done = ask(command[0], run, *command[1:])
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"\x07" not in done.stdout + done.stderr


def test_colours_reach_a_terminal_and_names_do_not(run: Path) -> None:
    ours, theirs = pty.openpty()
    hostile = "select name from kernels where name like '%owned%' limit 3"
    subprocess.run([*PACELINE, "sql", str(run), hostile], stdout=theirs, stderr=theirs, check=True)
    os.close(theirs)
    shown = os.read(ours, 1 << 20)
    assert b"\x1b[1m" in shown  # a bold head
    assert b"\x1b]0;owned" not in shown
    assert b"\x1b[31m" not in shown
    assert "�]0;owned".encode() in shown


def test_formulas_become_text_in_csv(run: Path, tmp_path: Path) -> None:
    done = ask("show", run, "kernels", "--format", "csv")
    ask("export", run, "--to", "csv", "-o", tmp_path / "tables")
    for table in (done.stdout.decode(), (tmp_path / "tables" / "kernels.csv").read_text()):
        assert "'=�]0;owned" in table
        assert ",=" not in table
        assert "\x1b" not in table


@pytest.mark.parametrize("encoding", ["ascii", "gb2312", "latin-1", "gbk", "utf-8"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_any_encoding_of_the_terminal(run: Path, encoding: str, language: str) -> None:
    done = ask("diagnose", run, "--out", "report", "--lang", language, PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    assert b"59 %" in done.stdout
    done.stdout.decode(encoding)
    if encoding == "ascii" and language == "en":
        assert b"4 ranks - 2 hosts" in done.stdout


def test_closed_streams(run: Path) -> None:
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        line = f"{sys.executable} -m paceline.cli.main show {run} {closed}"
        done = subprocess.run(["sh", "-c", line], capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")


def test_directories_whose_names_are_not_utf_8(run: Path, tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/runs/\xff\xfe"
    shutil.copytree(os.fsencode(run), odd)
    for source in (os.fsencode(tmp_path / "runs"), odd):
        for command in (["diagnose", "--out", "report"], ["show"], ["show", "ranks"], ["breakdown"]):
            done = ask(command[0], source, *command[1:])
            assert done.returncode == 0, done.stderr
    assert rb"\udcff" in ask("show", os.fsencode(tmp_path / "runs"), "ranks").stdout
