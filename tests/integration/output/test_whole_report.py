"""Files appear whole, devices stay devices, and what cannot be written is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import PacelineError


def test_a_file_is_replaced_whole_and_nothing_else_stays(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report.html"
    for text in ("first", "第二"):
        atomic_write_text(target, text)
        assert target.read_text(encoding="utf-8") == text
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    atomic_write_text(pipe, "text")
    assert os.read(reader, 10) == b"text" and pipe.is_fifo()
    os.close(reader)


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(PacelineError, match="cannot be written"):
        atomic_write_text(tmp_path / "file" / "report.html", "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(PacelineError, match="folder: cannot be written: Is a directory"):
        atomic_write_text(tmp_path / "folder", "text")
    assert (tmp_path / "file").read_text() == "mine"
