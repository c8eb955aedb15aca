"""Cases of the independent kit read right: every table as its simulator had it (support/kit_tables.py says what is compared).

The sample has one case per layout and kind of parallelism. `make kit-tables` runs the whole fixed suite and generated cases:

PACELINE_KIT_CASES       other cases than the sample ("k03 k15"), or "all"
PACELINE_KIT_GENERATED   this many generated cases instead
PACELINE_KIT_SEED        their seed
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import paceline
from support.kit_tables import build_cases, differences, generate_cases, load_case, needs_kit

SAMPLE = "k02 k04 k06 k16 k36 k38"
"""Ascend text, MindInsight r1.3, msadvisor with RDMA and a slow link, MindInsight r1.5 with a pipeline, torch, torch with
tensor, data and pipeline parallelism."""
SHOWN = 20
ALL = " ".join(f"k{number:02d}" for number in range(1, 51))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("kit")
    if count := int(os.environ.get("PACELINE_KIT_GENERATED", "0")):
        generate_cases(target, count=count, seed=int(os.environ.get("PACELINE_KIT_SEED", "1")))
    else:
        chosen = os.environ.get("PACELINE_KIT_CASES", SAMPLE)
        build_cases(target, (ALL if chosen == "all" else chosen).split())
    return target


@needs_kit
def test_cases_are_read_as_they_were_simulated(cases: Path, tmp_path: Path) -> None:
    wrong: dict[str, list[str]] = {}
    for path in sorted((cases / "cases").iterdir()):
        with paceline.open(path, store=tmp_path / path.name) as run:
            if found := differences(run, load_case(cases, path.name)):
                wrong[path.name] = [f"{len(found)} differences", *found[:SHOWN]]
    assert wrong == {}, json.dumps(wrong, indent=1)
