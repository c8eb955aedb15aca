"""`paceline bench run` of the reference GPT-2 on 1, 2 and 4 ranks of this machine: scaling, and where the loss goes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from e2e.bench.test_backends import EXAMPLE
from paceline.bench.result import read_result
from support.bench.result_trees import paceline


@pytest.mark.timeout(2400)  # six trainings: a minute alone, five among ten neighbours
def test_the_shipped_example_scales_and_says_where_the_time_goes(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "gpt2")
    bench = tmp_path / "gpt2" / "bench.yaml"
    bench.write_text(bench.read_text().replace("epochs: 8", "epochs: 4"))
    done = paceline("bench", "run", bench, "--repeat", 1, "--out", tmp_path / "out", "--lang", "en", patience=2300)
    assert done.returncode == 0, done.stderr
    result = read_result(tmp_path / "out" / "result.json")
    assert [each.ranks for each in result.measurements] == [1, 2, 4]
    assert not [each for each in result.warnings if "this machine was busy" not in each], result.warnings
    first, _, largest = result.measurements
    assert first.efficiency == 1.0
    assert largest.efficiency == pytest.approx(largest.throughput.mean / 4 / first.throughput.mean)
    assert re.search(r"scaling efficiency about \d+ % \(single run\)", done.stdout)
    for size in result.measurements:
        assert size.profile and size.profile.diagnosis and size.profile.step_ms
        assert size.profile.diagnosis.run.ranks == size.ranks
        assert sum(size.profile.shares.values()) == pytest.approx(1, abs=0.05)
    assert [(each.ranks, each.against) for each in result.losses] == [(2, 1), (4, 1)]
    for loss in result.losses:
        assert sum(loss.grown_ms.values()) == pytest.approx(loss.step_ms - loss.step_ms_before, abs=0.06 * loss.step_ms)
        assert loss.grown_ms["exposed"] > 0 or loss.grown_ms["waiting"] > 0
        assert all(re.search(r"\d", sentence) for sentence in loss.sentences)
        assert loss.sentences[0] in done.stdout
