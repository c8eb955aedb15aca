"""A sample of the ablation and of both mutation harnesses (`make ablation`, `make fuzz` run all of them)."""

from __future__ import annotations

from pathlib import Path

import pytest
from robustness import checkpoints, profiles
from robustness.verdicts import GOOD, Outcome

LAYOUTS = ("ascend-text", "ascend-text-ms", "ascend-db", "mindinsight-r13", "kineto")
CASES = 5
"""Of each layout."""


@pytest.fixture(scope="module", params=LAYOUTS)
def seeds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, profiles.Said]:
    found = profiles.make_seeds(tmp_path_factory.mktemp("seeds"), [request.param], profiles.FAULTS[:1])
    assert found, "the fault is not found even in the intact recording"
    return found


def test_damaged_recordings_never_mislead(seeds: dict[Path, profiles.Said]) -> None:
    ablation = profiles.ablation_cases(seeds)
    assert wrong(ablation[:: max(1, len(ablation) // CASES)], GOOD) == []
    assert wrong(profiles.mutation_cases(seeds, CASES, seed=1), profiles.GOOD_OF_MUTATIONS) == []


def wrong(cases: list[profiles.Case], accepted: frozenset[Outcome]) -> list[tuple[Outcome, str, str, str]]:
    found = []
    for case in cases:
        outcome, detail = profiles.run_case(case)
        if outcome not in accepted:
            found.append((outcome, case.file, case.kind, detail))
    return found


def test_damaged_checkpoints_and_configurations_end_in_a_sentence() -> None:
    results = [(case, *checkpoints.run_case(case)) for case in checkpoints.cases(120, seed=2)]
    assert [each for each in results if each[1] not in GOOD] == []
