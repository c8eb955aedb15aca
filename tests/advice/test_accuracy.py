"""Two hundred clusters, all layouts and faults, fixed seeds: the same trials as benchmarks/accuracy.py.

They are examined in parts, so that all workers of a test run share them; each part leaves its results for the others, and
is judged together with all that are there: the last one sees all two hundred.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import sys
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

CLUSTERS = 200
PARTS = 20


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_true_cause_comes_first_and_a_healthy_cluster_is_left_alone(
    part: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    accuracy = _benchmark()
    all_trials = list(accuracy.trials(seed=1, most=CLUSTERS))
    broken = sum(bool(trial.faults) for trial in all_trials)
    assert len(all_trials) == CLUSTERS and CLUSTERS - broken > 20
    results = [accuracy.examine(trial) for trial in islice(all_trials, part, None, PARTS)]
    assert [accuracy.line(result) for result in results if not result.trial.faults and not result.right] == []

    missed = [accuracy.line(result) for result in results if not result.right]
    errors = [result.error for result in results if result.trial.faults and result.error is not None]
    parts = _shared(tmp_path_factory, part, {"missed": missed, "errors": errors})
    all_missed = [text for other in parts for text in other["missed"]]
    assert len(all_missed) <= 0.03 * broken, "\n".join(all_missed)
    if len(parts) == PARTS:
        assert statistics.median(error for other in parts for error in other["errors"]) <= 0.03


def _shared(
    tmp_path_factory: pytest.TempPathFactory, part: int, results: dict[str, list[str] | list[float]]
) -> list[dict[str, list[str] | list[float]]]:
    """Leave the results of a part; those of all parts that are done."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "accuracy"
    folder.mkdir(exist_ok=True)
    written = folder / f".{part}"
    written.write_text(json.dumps(results))
    written.rename(folder / f"{part}.json")
    return [json.loads(path.read_text()) for path in folder.glob("*.json")]


def _benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "accuracy.py"
    spec = importlib.util.spec_from_file_location("accuracy", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["accuracy"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module
