"""Saving by time: ranks with different clocks and disks save at the same steps and synchronise rarely."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.training import TrainingState
from paceline.training.checkpointing import save_schedule
from paceline.training.checkpointing.save_schedule import EverySeconds


class Ranks:
    """Ranks as threads in lockstep, with a fake clock."""

    def __init__(self, count: int, seconds: float) -> None:
        self.now = 0.0
        self.asked = 0
        self._count = count
        self._given: dict[int, Sequence[float]] = {}
        self._all_here = threading.Barrier(count)
        states = [
            TrainingState(rank, count, sum_over_ranks=lambda own, r=rank: self._sum(r, own)) for rank in range(count)
        ]  # type: ignore[misc]
        self._times = [EverySeconds(seconds, state) for state in states]

    def end_step(self, step: int, busy: Sequence[bool]) -> list[bool]:
        found = [False] * self._count

        def ask(rank: int) -> None:
            found[rank] = self._times[rank].is_due(step, busy=busy[rank], took=0.0)

        threads = [threading.Thread(target=ask, args=(rank,)) for rank in range(self._count)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(600)
        return found

    def _sum(self, rank: int, own: Sequence[float]) -> Sequence[float]:
        self._given[rank] = own
        self._all_here.wait(600)
        total = [sum(each) for each in zip(*self._given.values(), strict=True)]
        self._all_here.wait(600)
        self.asked += rank == 0
        return total


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(save_schedule, "monotonic", lambda: now[0])
    return now


def test_saving_every_ten_seconds_synchronises_rarely_and_at_the_same_step(clock: list[float]) -> None:
    ranks, saved = Ranks(3, 10.0), []
    for step in range(1, 1001):
        clock[0] += 0.1
        due = ranks.end_step(step, [False] * 3)
        assert len(set(due)) == 1
        saved += [clock[0]] if due[0] else []
    gaps = [after - before for before, after in zip([0.0, *saved], saved, strict=False)]
    assert len(saved) == 9 and all(10.0 <= gap < 10.3 for gap in gaps)
    assert ranks.asked < 100  # of a thousand steps


def test_no_rank_saves_while_another_still_writes_and_it_is_logged_once(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    ranks = Ranks(2, 1.0)
    for step in range(1, 31):
        clock[0] += 0.1
        assert ranks.end_step(step, [False, True]) == [False, False]
    clock[0] += 0.1
    assert ranks.end_step(31, [False, False]) == [True, True]
    assert caplog.text.count("saving a checkpoint takes longer than 1 s") == 1


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.floats(0.0, 30.0), st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_ranks_always_agree(steps: list[tuple[float, bool, bool]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        now = [0.0]
        patched.setattr(save_schedule, "monotonic", lambda: now[0])
        ranks = Ranks(2, 20.0)
        for step, (seconds, first, second) in enumerate(steps, 1):
            now[0] += seconds
            assert len(set(ranks.end_step(step, [first, second]))) == 1


SCRIPT = """
import sys, time, torch
from paceline.training import CheckpointMonitor, Monitored, OutputTree, torch_state
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
model = torch.nn.Linear(4, 4)
monitor = CheckpointMonitor("m", outputs=OutputTree(sys.argv[1]), save_checkpoint_seconds=1, keep_checkpoint_max=0,
                            async_save=True)
saves = 0
with Monitored([monitor], torch_state(model)) as loop:
    go_on = torch.ones(1)
    while go_on:
        loop.step_begin()
        time.sleep(0.02 if rank else 0.01)
        loop.step_end(loss=0.0)
        # Until there are three; both ranks stop at the same step.
        go_on = torch.tensor(float(len(list(monitor._directory(rank).glob("m*"))) < 3))
        torch.distributed.all_reduce(go_on, op=torch.distributed.ReduceOp.MAX)
torch.distributed.destroy_process_group()
"""


def test_two_real_ranks_save_the_same_steps_by_the_first_ones_clock(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "paceline", "launch", "--ranks", "2", str(script), str(tmp_path / "run")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    saved = [
        {path.name.replace(f"rank_{rank}", "") for path in (tmp_path / f"run/checkpoint/rank_{rank}").glob("m*")}
        for rank in (0, 1)
    ]
    assert saved[0] == saved[1] and len(saved[0]) >= 3
