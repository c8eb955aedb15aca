"""Real torch jobs, four gloo ranks under torchrun: exactly the requested steps, in each of the three ways."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; `make test` installs it")

from support.profiling.torchrun import (
    BIN,
    JOB,
    RANKS,
    command,
    diagnosed,
    environment,
    recorded_steps,
    run,
    start,
    until,
    weights,
)

pytestmark = pytest.mark.timeout(2400)
STEPS = 16
SLOW = 2
RECORDINGS = 5
"""The machine itself can slow another rank during a whole recording; one clean recording is enough."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The weights after training without profiling."""
    folder = tmp_path_factory.mktemp("plain")
    run(job(folder, "plain"), folder / "log")
    found = weights(folder)
    assert len(found) == RANKS
    return found


def job(folder: Path, way: str) -> list[str]:
    """Rank 2 does three times the work of the others."""
    return command(JOB, folder, way, "--steps", STEPS, "--slow", SLOW)


def test_schedule_records_its_active_steps_on_the_selected_ranks(tmp_path: Path, plain: list[str]) -> None:
    """skip 1, then wait 1, warm up 1, record 2, four times (from 0); training ends within the last of these steps."""
    messages = run(job(tmp_path, "schedule"), tmp_path / "log")
    asked = [3, 4, 7, 8, 11, 12, 15]
    assert recorded_steps(tmp_path / "data") == {0: asked, 2: asked}
    assert (
        messages.count("Stop profiler while current state is RECORD_AND_SAVE, perhaps the scheduling cycle has not")
        == 2
    )
    assert all(path.name.endswith("_ascend_pt") for path in (tmp_path / "data").iterdir())
    infos = sorted(path.name for path in (tmp_path / "data").glob("*/profiler_info_*.json"))
    assert infos == ["profiler_info_0.json"] * 4 + ["profiler_info_2.json"] * 4
    assert weights(tmp_path) == plain


def test_unchanged_script_is_profiled_and_its_slowed_rank_is_found(tmp_path: Path, plain: list[str]) -> None:
    words = [str(BIN / "paceline"), "run-profiled", *job(tmp_path, "plain")]
    asked = {
        "start": True,
        "start_step": 3,
        "stop_step": 14,
        "aicore_metrics": "None",
    }
    named: list[Any] = []
    for attempt in range(RECORDINGS):
        data = tmp_path / f"data-{attempt}"
        messages = run(words, tmp_path / "log", MS_PROFILER_OPTIONS=json.dumps(asked | {"output_path": str(data)}))
        assert messages.count("key 'aicore_metrics' is now called 'aic_metrics'") == 1
        assert recorded_steps(data) == {rank: list(range(3, 15)) for rank in range(RANKS)}
        assert weights(tmp_path) == plain
        findings = diagnosed(data, tmp_path / f"store-{attempt}")["findings"]
        assert findings, "nothing found"
        named.append(findings[0]["subject"]["ranks"])
        if named[-1] == [SLOW]:
            return
    pytest.fail(f"the slowed rank was not named first in {RECORDINGS} of {RECORDINGS} recordings: {named}")


def test_unchanged_script_is_recorded_completely_by_default(tmp_path: Path) -> None:
    """On rank 1 of 2; the time after the last step is not read as a step."""
    words = [str(BIN / "paceline"), "run-profiled", "--output", str(tmp_path / "data"), "--ranks", "1"]
    run([*words, *command(JOB, tmp_path, "plain", "--steps", 5, ranks=2)], tmp_path / "log")
    assert recorded_steps(tmp_path / "data") == {1: [1, 2, 3, 4, 5]}


class Dynamic:
    """A job that watches FOLDER/config and stops at gates until they are opened."""

    def __init__(self, folder: Path, *more: object) -> None:
        self.folder, self.config = folder, folder / "config" / "profiler_config.json"
        self.log = folder / "log"
        self.process = start(command(JOB, folder, "dynamic", *more), self.log)
        self.config_before = ""

    def states(self) -> list[dict[str, Any]]:
        found = (self.folder / "config" / ".paceline").glob("*/rank*.json")
        return [json.loads(path.read_text()) for path in sorted(found)]

    def all_at(self, step: int) -> bool:
        return all((self.folder / f"at-{rank}-{step}").exists() for rank in range(RANKS))

    def write(self, text: str) -> None:
        """As editors do: truncate the file, then write it."""
        self.config.write_text(text)

    def request_recording(self, start: int, stop: int) -> None:
        self.write(json.dumps({**json.loads(self.config_before), "start_step": start, "stop_step": stop}))
        until(lambda: self._seen(start), what=f"all ranks see the request for step {start}")

    def _seen(self, start: int) -> bool:
        states = self.states()
        return len(states) == RANKS and all(state["start"] == start for state in states)

    def pass_gate(self, step: int) -> None:
        (self.folder / f"gate-{step}").touch()

    def looked_again(self) -> None:
        """Wait until every rank has published a new status, and so has polled the file."""
        paths = list((self.folder / "config" / ".paceline").glob("*/rank*.json"))
        before = {path: path.stat().st_mtime_ns for path in paths}
        until(lambda: all(path.stat().st_mtime_ns != before[path] for path in paths), what="a word of every rank")


@pytest.fixture
def dynamic(tmp_path: Path) -> Iterator[Dynamic]:
    started = Dynamic(tmp_path, "--steps", 100000, "--gate", 1, "--gate", 7, "--gate", 12)
    try:
        until(started.config.exists, what="the default configuration")
        until(lambda: len(started.states()) == RANKS, what="all ranks")
        started.config_before = started.config.read_text()
        yield started
    finally:
        started.process.terminate()
        started.process.wait(timeout=600)


def test_configuration_is_rewritten_and_broken_then_a_rank_is_killed(dynamic: Dynamic, tmp_path: Path) -> None:
    dynamic.request_recording(2, 5)
    dynamic.pass_gate(1)
    until(lambda: dynamic.all_at(7), what="step 7")
    dynamic.write('{"start_step": 8, "stop_')
    dynamic.looked_again()
    dynamic.looked_again()
    dynamic.request_recording(8, 10)
    dynamic.pass_gate(7)
    until(lambda: dynamic.all_at(12), what="step 12")

    assert dynamic.log.read_text().count("is not valid JSON") >= RANKS
    data = tmp_path / "data"
    expected = {f"rank{rank}_start{a}_stop{b}" for rank in range(RANKS) for a, b in ((2, 5), (8, 10))}
    assert {path.name for path in data.iterdir()} == expected
    for rank in range(RANKS):
        assert recorded_steps(data / f"rank{rank}_start2_stop5") == {rank: [2, 3, 4, 5]}
        assert recorded_steps(data / f"rank{rank}_start8_stop10") == {rank: [8, 9, 10]}

    dynamic.request_recording(14, 90000)
    dynamic.pass_gate(12)
    until(lambda: dynamic.all_at(16), what="step 16")
    victim = next(state for state in dynamic.states() if state["rank"] == 1)
    assert victim["state"] == "recording"
    os.kill(victim["pid"], signal.SIGKILL)
    dynamic.process.wait(timeout=600)
    assert len(dynamic.states()) == RANKS, "every rank's file is whole"
    assert json.loads(dynamic.config.read_text())["start_step"] == 14
    result = diagnosed(data, tmp_path / "store")
    assert result["run"]["ranks"] == RANKS
    assert set(result["run"]["steps"]) >= {8, 9, 10}


def test_profile_now_records_the_next_steps_of_a_running_job(tmp_path: Path) -> None:
    """On ranks 1 and 3 only, from the same step on."""
    running = Dynamic(tmp_path, "--steps", 100000, "--pause", 0.02)
    try:
        until(lambda: running.all_at(3), what="step 3")
        words = [
            str(BIN / "paceline"),
            "profile",
            "now",
            "--job",
            str(tmp_path),
            "--steps",
            "3",
            "--ranks",
            "1,3",
            "--json",
        ]
        done = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=600)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        status = subprocess.run(
            [str(BIN / "paceline"), "profile", "status", "--job", str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert len(status.stdout.splitlines()) == RANKS
    finally:
        running.process.terminate()
        running.process.wait(timeout=600)
    asked = list(range(answer["start_step"], answer["stop_step"] + 1))
    assert len(asked) == 3
    assert recorded_steps(tmp_path / "data") == {1: asked, 3: asked}
    assert [Path(each["path"]).parent.name for each in answer["recordings"]] == [
        f"rank{rank}_start{asked[0]}_stop{asked[-1]}" for rank in (1, 3)
    ]


def test_dynamic_recording_does_not_change_the_result(tmp_path: Path, plain: list[str]) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "profiler_config.json").write_text(json.dumps({"start_step": 1, "stop_step": 4}))
    run(job(tmp_path, "dynamic"), tmp_path / "log")
    assert recorded_steps(tmp_path / "data") == {rank: [1, 2, 3, 4] for rank in range(RANKS)}
    assert weights(tmp_path) == plain
