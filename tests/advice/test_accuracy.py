"""Two hundred clusters, all layouts and faults, fixed seeds: the same trials as benchmarks/accuracy.py."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

import pytest

CLUSTERS = 200


def _benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "accuracy.py"
    sys.path.insert(0, str(path.parent))  # the processes of the pool import it by name
    spec = importlib.util.spec_from_file_location("accuracy", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["accuracy"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(2400)
def test_the_true_cause_comes_first_and_a_healthy_cluster_is_left_alone() -> None:
    accuracy = _benchmark()
    # Forked workers would inherit DuckDB's threads.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(accuracy.examine, accuracy.trials(seed=1, most=CLUSTERS)))
    broken = [result for result in results if result.trial.faults]
    healthy = [result for result in results if not result.trial.faults]
    missed = [accuracy.line(result) for result in results if not result.right]
    assert len(broken) + len(healthy) == CLUSTERS and len(healthy) > 20
    assert [accuracy.line(result) for result in healthy if not result.right] == []
    assert sum(result.right for result in broken) >= 0.97 * len(broken), "\n".join(missed)
    errors = [result.error for result in broken if result.error is not None]
    assert statistics.median(errors) <= 0.03
