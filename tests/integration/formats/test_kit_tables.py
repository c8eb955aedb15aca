"""Cases of the independent kit read right: groups, steps, collectives and links as its simulator had them.

PACELINE_KIT_CASES names other cases than the sample ("k03 k15"), for a run over the whole suite.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import paceline
from support.kit_tables import (
    build_cases,
    collectives_torn_apart,
    expected_tables,
    group_kinds,
    links_that_differ,
    needs_kit,
    steps_that_differ,
)

CASES = os.environ.get("PACELINE_KIT_CASES", "k02 k04 k06 k16").split()
"""Ascend text, MindInsight r1.3, msadvisor with RDMA and a slow link, MindInsight r1.5 with a pipeline."""


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("kit")
    build_cases(target, CASES)
    return target


@needs_kit
@pytest.mark.parametrize("name", CASES)
def test_a_case_is_read_as_it_was_simulated(cases: Path, name: str, tmp_path: Path) -> None:
    tables = expected_tables(cases, name)
    with paceline.open(cases / "cases" / name, store=tmp_path) as run:
        assert group_kinds(run) == {tuple(group["ranks"]): group["kind"] for group in tables["groups"]}
        assert steps_that_differ(run, tables) == []
        assert collectives_torn_apart(run, tables) == 0
        assert links_that_differ(run, tables) == []
