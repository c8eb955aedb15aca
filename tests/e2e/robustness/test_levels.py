"""Every level and switch that the profilers document: a diagnosis without a traceback, or one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from robustness.damage import link_tree

import paceline
from paceline.core.errors import UsageError
from paceline.simulate import ClusterSpec, simulate

SWITCHES = {
    "level 0": r"communication.*\.json|analysis\.db",
    "no timeline": r"trace_view\.json",
    "no kernels": r"kernel_details\.csv|op_statistic\.csv",
    "no memory": r"memory_record\.csv|operator_memory\.csv|npu_module_mem\.csv",
    "no host calls": r"api_statistic\.csv",
}
SPEC = ClusterSpec(hosts=1, devices=4, dp=4, tp=1, pp=1, steps=4, layers=2, micro_batches=2)


@pytest.fixture(scope="module", params=["ascend-text", "ascend-text-ms", "ascend-db"])
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("levels") / "run"
    simulate(target, SPEC, ("slow-rank:1:1.5",), request.param)
    return target


def every_combination() -> Iterator[tuple[str, ...]]:
    for count in (0, 1, 2, len(SWITCHES)):
        yield from combinations(SWITCHES, count)


def test_every_combination_of_switches_is_diagnosed_or_refused_in_one_sentence(recording: Path, tmp_path: Path) -> None:
    unlike = []
    for number, off in enumerate(every_combination()):
        tree = tmp_path / str(number)
        link_tree(recording, tree)
        for path in list(tree.rglob("*")):
            if any(re.fullmatch(SWITCHES[switch], path.name) for switch in off):
                path.unlink()
        try:
            with paceline.open(tree, store=tmp_path / f"store{number}") as run:
                found = paceline.diagnose(run)
        except UsageError as error:
            assert "Level1" in str(error.hint)
            continue
        culprits = [each.subject.ranks for each in found.findings if each.severity == "high"]
        if culprits != [(1,)]:
            unlike.append((off, culprits))
    assert unlike == []
