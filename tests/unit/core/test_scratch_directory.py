"""Temporary directories outlive a kill only until the next process; directories of one user are his own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline.core.errors import PacelineError
from paceline.core.scratch_directory import (
    private_directory,
    remove_abandoned,
    runtime_directory,
    scratch_directory,
)

KEEP_OPEN = """
import sys, time
from pathlib import Path
from paceline.core.scratch_directory import scratch_directory
with scratch_directory(Path(sys.argv[1])) as path:
    (path / "file").write_text("x")
    print(path, flush=True)
    time.sleep(60)
"""


def test_a_directory_for_the_time_of_a_block(tmp_path: Path) -> None:
    with scratch_directory(tmp_path, before=".run.") as path:
        assert path.name.startswith(".run.paceline-scratch-")
        (path / "file").write_text("x")
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_uses_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KEEP_OPEN, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        path = Path(process.stdout.readline().strip())
        os.utime(path, (time.time() - 3600,) * 2)
        assert remove_abandoned(tmp_path) == 0
        process.send_signal(signal.SIGKILL)
    assert path.exists()
    assert remove_abandoned(tmp_path) == 1
    assert not path.exists()


def test_directories_that_only_look_alike_stay(tmp_path: Path) -> None:
    for name in (
        "paceline-scratch-",
        "paceline-scratch-my_notes_of_today",
        "paceline-0",
        ".run.paceline-scratch-abcdefgh",
    ):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / "paceline-scratch-abcdefgh").symlink_to(tmp_path)
    (tmp_path / "paceline-scratch-young_one".replace("_one", "_on")).mkdir()
    assert remove_abandoned(tmp_path) == 0
    assert remove_abandoned(tmp_path / "nowhere") == 0


def test_a_directory_that_others_prepared_is_refused(tmp_path: Path) -> None:
    assert private_directory(tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for name in ("open", "link"):
        with pytest.raises(PacelineError, match="only you can write to"):
            private_directory(tmp_path / name)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")
def test_a_meeting_point_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"paceline-{os.getuid()}").mkdir()
    os.chown(tmp_path / f"paceline-{os.getuid()}", 65534, 65534)
    with pytest.raises(PacelineError, match="only you can write to"):
        runtime_directory()


def test_the_runtime_directory_of_the_session_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runtime_directory() == tmp_path / "paceline"
