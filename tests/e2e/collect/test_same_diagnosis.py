"""`paceline diagnose` gives the same result for a recording, its copy in a bucket, and its slimmed copies."""

from __future__ import annotations

import json
import os
from pathlib import Path

from support.collect.clusters import add_raw_data, simulated
from support.storage.servers import paceline


def test_diagnosis_is_the_same_local_remote_slimmed_and_re_encoded(bucket: str, tmp_path: Path) -> None:
    source = simulated(tmp_path / "raw", "ascend-text", hosts=1, devices=4, steps=4)
    add_raw_data(next(source.glob("*_ascend_pt")), 2_000_000)
    env = {name: os.environ[name] for name in os.environ if name.startswith(("AWS_", "PACELINE_", "HOME"))}
    for words in (
        ("copy", source, f"obs://{bucket}/run"),
        ("slim", source, tmp_path / "slim"),
        ("slim", f"obs://{bucket}/run", tmp_path / "tables", "--encode", "parquet"),
    ):
        done = paceline(*words, env=env)
        assert done.returncode == 0, done.stderr
    findings = []
    for number, place in enumerate((source, f"obs://{bucket}/run", tmp_path / "slim", tmp_path / "tables")):
        answer = tmp_path / f"{number}.json"
        done = paceline("diagnose", place, "--json", answer, env=env)
        assert done.returncode == 0, done.stderr
        findings.append(json.loads(answer.read_text())["findings"])
    assert [finding["id"] for finding in findings[0]] == ["slow-rank"]
    assert findings[1:] == [findings[0]] * 3
