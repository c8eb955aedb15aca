"""Real runs of FSDP2, tensor parallelism, a pipeline and experts: four gloo processes on this machine, faults built in.

What stands for computing takes its time whatever else the machine does; the processes still share few cores, so times are
compared only where a recording of the healthy program was quiet (its own steps alike), and a recording may be repeated.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import paceline
from paceline.diagnosis.finding import Diagnosis, StepTimes

pytest.importorskip("torch", reason="torch is not installed; `make test` installs it")

PROGRAM = Path(__file__).parents[2] / "support" / "real_runs" / "gloo_layouts.py"
WORLD = 4
RECORDINGS = 4
QUIET = 1.1
"""The longest step of a quiet recording over its shortest."""
NAMED = {
    "fsdp-compute": ({"slow-rank"}, (2,)),
    "fsdp-input": ({"input-bound"}, (1,)),
    "tp-compute": ({"slow-rank"}, (2,)),
    "tp-input": ({"input-bound"}, (1,)),
    "pp-compute": ({"stage-imbalance", "slow-rank"}, (2,)),
    "pp-input": ({"input-bound"}, (0,)),
    "pp-send": ({"stage-imbalance", "slow-rank", "host-bound", "slow-link"}, (1,)),
    "ep-compute": ({"slow-rank"}, (2,)),
    "ep-experts": ({"expert-imbalance"}, (3,)),
}
HEALTHY = ("fsdp-none", "tp-none", "pp-none", "ep-none")
PRICED = ("fsdp-compute", "fsdp-input", "tp-compute", "tp-input", "pp-input", "ep-compute")
"""Fixing their fault leaves the healthy program: a heavy stage or popular expert is dealt out instead."""

Recordings = dict[int, dict[str, Diagnosis]]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    return {}


def recorded(recordings: Recordings, factory: pytest.TempPathFactory) -> Iterator[dict[str, Diagnosis]]:
    """What is diagnosed of every case, one recording after the other; recorded when it is first asked for."""
    for attempt in range(RECORDINGS):
        if attempt not in recordings:
            folder = factory.mktemp(f"recording-{attempt}")
            run_all(folder)
            recordings[attempt] = {
                case: paceline.diagnose(paceline.open(str(folder / case), store=folder / "store" / case))
                for case in (*HEALTHY, *NAMED)
            }
        yield recordings[attempt]


def run_all(folder: Path) -> None:
    command = [sys.executable, str(PROGRAM)]
    cases = [*HEALTHY, *NAMED]
    processes = [
        subprocess.Popen([*command, str(rank), str(folder), *cases], stderr=subprocess.PIPE, text=True)
        for rank in range(WORLD)
    ]
    try:
        for rank, process in enumerate(processes):
            _, errors = process.communicate(timeout=600)
            assert process.returncode == 0, f"rank {rank}: {errors}"
    finally:
        for process in processes:
            process.kill()  # one that failed leaves the others waiting for it


@pytest.mark.timeout(4800)
@pytest.mark.parametrize("case", NAMED)
def test_cause_and_rank_come_first(case: str, recordings: Recordings, tmp_path_factory: pytest.TempPathFactory) -> None:
    causes, ranks = NAMED[case]
    found = []
    for each in recorded(recordings, tmp_path_factory):
        repairs = [one for one in each[case].findings if one.id not in ("pipeline-bubble", "comm-exposed", "jitter")]
        found = [(one.id, one.subject.ranks) for one in repairs]
        if found and found[0][0] in causes and found[0][1] == ranks:
            return
    pytest.fail(f"{case}: found {found}")


@pytest.mark.timeout(4800)
@pytest.mark.parametrize("case", HEALTHY)
def test_nobody_is_blamed_in_a_healthy_run(
    case: str, recordings: Recordings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    blamed: list[str] = []
    for each in recorded(recordings, tmp_path_factory):
        blamed = [
            one.title
            for one in each[case].findings
            if one.severity in ("high", "medium") and 0 < len(one.subject.ranks) < WORLD
        ]
        if not blamed:
            return
    pytest.fail(f"{case}: blamed {blamed}")


@pytest.mark.timeout(4800)
@pytest.mark.parametrize("case", PRICED)
def test_the_step_without_the_fault_is_predicted_within_a_tenth(
    case: str, recordings: Recordings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of the recordings that were made; a busy machine is no reason to record again. The fault is the same in every step."""
    healthy, quiet = f"{case.split('-')[0]}-none", []
    for each in recordings.values() or [next(recorded(recordings, tmp_path_factory))]:
        steps, first = each[healthy].run.step_ms, each[case].findings[0]
        assert steps.median
        if _is_even(steps) and _is_even(each[case].run.step_ms):
            quiet.append((first.gain.step_ms_fixed, steps.median))
    if not quiet:
        pytest.skip("this machine is too busy to compare times: steps of one run differ by more than a tenth")
    assert any(abs(predicted / measured - 1) <= 0.1 for predicted, measured in quiet), quiet


def _is_even(steps: StepTimes) -> bool:
    assert steps.min and steps.max
    return steps.max <= QUIET * steps.min
