"""Two hundred clusters, all layouts and faults, fixed seeds: the same trials as benchmarks/accuracy.py."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from pathlib import Path
from types import ModuleType

import pytest

CLUSTERS = 200


def _benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "accuracy.py"
    spec = importlib.util.spec_from_file_location("accuracy", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["accuracy"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(2400)
def test_the_true_cause_comes_first_and_a_healthy_cluster_is_left_alone() -> None:
    accuracy = _benchmark()
    results = [accuracy.examine(trial) for trial in accuracy.trials(seed=1, most=CLUSTERS)]
    broken = [result for result in results if result.trial.faults]
    healthy = [result for result in results if not result.trial.faults]
    missed = [accuracy.line(result) for result in results if not result.right]
    assert len(broken) + len(healthy) == CLUSTERS and len(healthy) > 20
    assert [accuracy.line(result) for result in healthy if not result.right] == []
    assert sum(result.right for result in broken) >= 0.97 * len(broken), "\n".join(missed)
    errors = [result.error for result in broken if result.error is not None]
    assert statistics.median(errors) <= 0.03
