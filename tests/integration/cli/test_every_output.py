"""Every command, given names with control sequences and bytes that are not UTF-8, in three encodings: no traceback, and
nothing of a name reaches the terminal as a command."""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path

import pytest

from paceline.cli.main import COMMANDS, main
from paceline.simulate import ClusterSpec, simulate

EVIL = b"=run\x1b]0;owned\x07\x1b[31m\xff\xe2\x80\xae"
"""A window title, a colour, a byte that is no UTF-8 and a turn of the direction of writing."""
# {run}: a profile in a directory of that name; {file}: no profile, of that name; {out}: a new path of that name
WORDS: dict[str, list[list[str]]] = {
    "diagnose": [["{run}", "--out", "{out}"], ["{file}"]],
    "breakdown": [["{run}"], ["{file}"]],
    "what-if": [["{run}"], ["{run}", "--fix", "{file}"]],
    "compare": [["{run}", "{run}"], ["{run}", "{file}"]],
    "serve": [["{file}", "--port", "0"]],
    "watch": [["{file}", "--once"], ["{run}", "--once"]],
    "show": [["{run}"], ["{run}", "ranks"], ["{run}", "{file}"], ["{file}"]],
    "sql": [["{run}", "SELECT path FROM ranks"], ["{run}", 'SELECT * FROM "{file}"']],
    "export": [["{run}", "--to", "csv", "-o", "{out}"], ["{run}", "--to", "csv", "-o", "{file}"]],
    "index": [["{run}"], ["{file}"]],
    "demo": [["{file}"]],
    "simulate": [["{file}"], ["{out}", "--fault", "{file}"]],
    "copy": [["{file}", "{out}"], ["{run}", "{out}"]],
    "sync": [["{run}", "{out}"]],
    "ls": [["{run}"], ["{file}"], ["{out}"]],
    "slim": [["{run}", "{out}"], ["{file}", "{out}"]],
    "collect": [["--host", "{file}", "-o", "{out}"]],
    "cache": [["info"]],
    "kb": [["{file}"]],
    "schema": [["{file}"]],
    "msadvisor": [["-d", "{run}"], ["-d", "{file}"]],
    "checkpoint": [["inspect", "{file}"], ["verify", "{file}"], ["inspect", "{run}"]],
    "bench": [["run", "{file}"], ["score", "{run}"], ["report", "{file}"]],
    "job": [["submit", "{file}"], ["status", "{file}"], ["stop", "{file}"]],
    "doctor": [["{file}"]],
    "rank-table": [["check", "{file}"]],
    "profile": [["{run}"], ["{file}"]],
    "hccl-parser": [["{file}"]],
}
THEIR_OWN_OUTPUT = {"launch", "run-profiled", "train"}
"""They run the user's program, whose output is shown as it is."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = os.fsencode(tmp_path_factory.mktemp("evil"))
    spec = ClusterSpec(hosts=1, devices=2, dp=2, tp=1, pp=1, steps=2, layers=1)
    simulate(Path(os.fsdecode(root + b"/plain")), spec, (), "kineto")
    shutil.move(root + b"/plain", root + b"/" + EVIL)
    with open(root + b"/file-" + EVIL, "wb") as file:  # noqa: PTH123 (bytes)
        file.write(b"\x1b[31m nothing\n")
    named = {"run": root + b"/" + EVIL, "file": root + b"/file-" + EVIL, "out": root + b"/out-" + EVIL}
    return {name: os.fsdecode(path) for name, path in named.items()}


def test_no_command_is_forgotten() -> None:
    assert WORDS.keys() | THEIR_OWN_OUTPUT == set(COMMANDS)


@pytest.mark.parametrize(("encoding", "language"), [("ascii", "en"), ("gb2312", "zh"), ("latin-1", "en")])
@pytest.mark.parametrize("command", WORDS)
def test_no_name_reaches_the_terminal_as_a_command(
    command: str,
    encoding: str,
    language: str,
    places: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PACELINE_CACHE", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PACELINE_LANG", language)
    for words in WORDS[command]:
        out_names = {**places, "out": places["out"] + str(len(words)) + encoding + command}
        given = [word.format(**out_names) for word in words]
        said = run(["paceline", command, *given], encoding, monkeypatch)
        for sequence in (b"\x1b", b"\x07", b"\r", "\N{RIGHT-TO-LEFT OVERRIDE}".encode()):
            assert sequence not in said, said
        said.decode(encoding)


def run(words: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """What the command writes to both streams; any exception but SystemExit fails the test."""
    written = io.BytesIO()
    streams = [io.TextIOWrapper(written, encoding=encoding, errors="strict") for _ in range(2)]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    try:
        main()
    except SystemExit:
        pass
    finally:
        for stream in streams:
            stream.flush()
    return written.getvalue()
