"""An executor of another distribution: its scheme works with --engine, and it reads a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import paceline
from paceline.core.errors import UsageError
from paceline.run.executors.open_executor import executor_for
from paceline.run.executors.processes import ProcessExecutor
from support.plugin_example import installed
from support.run.profiles import write_rank

PYPROJECT = """
[project]
name = "ownexec"
version = "1.0"
[project.entry-points."paceline.executors"]
own = "ownexec:create"
"""
MODULE = """
from paceline.run.executors.processes import ProcessExecutor

asked = []

def create(address, *, workers):
    asked.append((address, workers))
    return ProcessExecutor(1)
"""


def test_the_scheme_of_the_address_selects_the_executor(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "src" / "ownexec.py").write_text(MODULE)
    write_rank(tmp_path / "run", 0)
    with pytest.MonkeyPatch.context() as patch, installed(tmp_path, patch):
        with paceline.open(tmp_path / "run", store=tmp_path / "store", engine="own://there", workers=3) as run:
            assert run.rows("steps") == 2
        from ownexec import asked  # type: ignore[import-not-found]

        assert asked == [("own://there", 3)]
    with pytest.raises(UsageError, match="--engine own://there: unknown engine"):
        executor_for("own://there")


def test_processes_of_this_machine_are_the_default() -> None:
    for address in (None, "local"):
        executor = executor_for(address, workers=os.cpu_count() or 1)
        assert isinstance(executor, ProcessExecutor) and not executor.is_remote


@pytest.mark.parametrize("address", ["spark://here:1", "dask://", "nonsense"])
def test_an_unknown_address_lists_the_known_schemes(address: str) -> None:
    with pytest.raises(UsageError, match="unknown engine") as raised:
        executor_for(address)
    assert raised.value.hint == "local, dask://host:port, ray://host:port"
