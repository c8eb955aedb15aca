"""CheckpointMonitor: readable files; old ones are kept until new ones are complete, whatever fails."""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.checkpoint.resume.resume_point import find_resume_point
from paceline.core.errors import PacelineError, UsageError
from paceline.training import CheckpointMonitor, Monitored, OutputTree, Ranks, TrainingState
from support.training.running import Training, assert_whole, weights_in


def train(root: Path, steps: int, first: int = 0, *, ranks: Ranks | None = None, **options: Any) -> TrainingState:
    """Train steps whose weights equal the step number."""
    ranks = ranks or Ranks()
    weights = {"w": np.zeros(1000, np.float32), "b": np.zeros(4, np.float16)}
    state = TrainingState(
        ranks.rank,
        ranks.world_size,
        step=first,
        epoch=first // 4 + 1,
        steps_per_epoch=4,
        total_steps=steps,
        batch_size=8,
        loss_scale=512.0,
        weights=lambda: weights,
        trainable=lambda name: name == "w",
        optimizer_state=lambda: {"exp_avg.w": weights["w"] * 2},
    )
    monitor = CheckpointMonitor("gpt", outputs=OutputTree(root), ranks=ranks, **options)
    with Monitored([monitor], state) as loop:
        while state.step < steps:
            loop.step_begin()
            weights["w"][:] = weights["b"][:] = state.step + 1
            loop.step_end(loss=1.0)
            monitor._background.wait()  # the disk is never slower than these steps
            if state.step % 4 == 0:
                loop.epoch_end()
    return state


def names(root: Path, rank: int = 0) -> list[str]:
    found = (root / "checkpoint" / f"rank_{rank}").glob("gpt*")
    return sorted((path.name for path in found), key=lambda name: (len(name), name))


@pytest.mark.parametrize("format", ["ckpt", "safetensors"])
@pytest.mark.parametrize("beside", [True, False])
def test_the_newest_are_kept_with_everything_needed_to_resume(tmp_path: Path, format: str, beside: bool) -> None:
    options = {"save_checkpoint_steps": 2, "keep_checkpoint_max": 2, "async_save": beside, "checkpoint_format": format}
    train(tmp_path, 11, **options)
    assert names(tmp_path) == [f"gpt_rank_0-3_2.{format}", f"gpt_rank_0-3_3.{format}"]
    for name, step in (("3_2", 10), ("3_3", 11)):
        found = weights_in(tmp_path / "checkpoint" / "rank_0" / f"gpt_rank_0-{name}.{format}")
        told = {
            key: found[key].item()
            for key in ("epoch_num", "step_num", "global_step", "loss_scale", "global_batch_size")
        }
        assert told == {
            "epoch_num": 3,
            "step_num": int(name[2:]),
            "global_step": step,
            "loss_scale": 512.0,
            "global_batch_size": 8,
        }
        assert np.all(found["w"] == step) and np.all(found["exp_avg.w"] == 2 * step)
        assert found["b"].dtype == np.float16 and found["b"].shape == (4,)
    meta = json.loads((tmp_path / "checkpoint" / "rank_0" / "meta.json").read_text())
    assert (meta["last_epoch"], meta["last_step"], meta["last_ckpt_file"]) == (3, 3, f"gpt_rank_0-3_3.{format}")
    assert find_resume_point(tmp_path).global_step == 11


def test_a_new_run_next_to_older_files_gets_a_number_and_a_resumed_one_does_not(tmp_path: Path) -> None:
    train(tmp_path, 8, save_checkpoint_steps=4, keep_checkpoint_max=9)
    train(tmp_path, 12, first=8, save_checkpoint_steps=4, keep_checkpoint_max=9)
    assert names(tmp_path) == ["gpt_rank_0-1_4.ckpt", "gpt_rank_0-2_4.ckpt", "gpt_rank_0-3_4.ckpt"]
    train(tmp_path, 4, save_checkpoint_steps=4, keep_checkpoint_max=9)
    assert names(tmp_path)[3:] == ["gpt_rank_0_1-1_4.ckpt"]
    point = find_resume_point(tmp_path)
    assert (point.global_step, point.files[0]) == (4, ("checkpoint/rank_0/gpt_rank_0_1-1_4.ckpt",))


def test_obsolete_checkpoints_after_the_resume_point_do_not_count_for_pruning(tmp_path: Path) -> None:
    train(tmp_path, 12, save_checkpoint_steps=4, keep_checkpoint_max=3)
    newest = tmp_path / "checkpoint" / "rank_0" / "gpt_rank_0-3_4.ckpt"
    newest.write_bytes(newest.read_bytes()[:-100])
    assert find_resume_point(tmp_path).global_step == 8
    train(tmp_path, 11, first=8, save_checkpoint_steps=1, keep_checkpoint_max=2)
    point = find_resume_point(tmp_path)
    assert point.global_step == 11 and "3_4" in point.skipped[0].name
    train(tmp_path, 14, first=11, save_checkpoint_steps=2, keep_checkpoint_max=1)
    assert names(tmp_path) == ["gpt_rank_0-4_2.ckpt"]


def test_a_step_that_all_ranks_have_is_kept(tmp_path: Path) -> None:
    """Rank 0 is ahead, and may keep one only: the one before stays until rank 1 has the new one."""
    pair = [Ranks(rank, 2, rank, 2) for rank in (0, 1)]
    options = {"save_checkpoint_steps": 1, "keep_checkpoint_max": 1}
    train(tmp_path, 1, ranks=pair[0], **options)
    train(tmp_path, 1, ranks=pair[1], **options)
    state_of_both = find_resume_point(tmp_path)
    assert sorted(state_of_both.files) == [0, 1]
    train(tmp_path, 3, first=1, ranks=pair[0], **options)
    assert names(tmp_path) == ["gpt_rank_0-1_1.ckpt", "gpt_rank_0-1_3.ckpt"]
    assert find_resume_point(tmp_path).global_step == 1
    train(tmp_path, 3, first=1, ranks=pair[1], **options)
    point = find_resume_point(tmp_path)
    assert point.global_step == 3 and [skip.name for skip in point.skipped] == []
    train(tmp_path, 4, first=3, ranks=pair[0], **options)
    assert names(tmp_path) == ["gpt_rank_0-1_3.ckpt", "gpt_rank_0-1_4.ckpt"]


def test_network_and_trainable_weights_are_saved_separately(tmp_path: Path) -> None:
    train(tmp_path, 2, save_checkpoint_steps=2, save_network_params=True, save_trainable_params=True)
    network = weights_in(tmp_path / "checkpoint_network" / "rank_0" / "gpt_rank_0-network.ckpt")
    trainable = weights_in(tmp_path / "checkpoint_trainable" / "rank_0" / "gpt_rank_0-trainable_params.ckpt")
    assert set(network) == {"w", "b"} and set(trainable) == {"w"}


def test_mindformers_v2_is_committed_by_its_tracker_when_all_ranks_have_saved(tmp_path: Path) -> None:
    options = {"save_checkpoint_steps": 2, "keep_checkpoint_max": 2, "use_legacy_format": False}
    train(tmp_path, 4, ranks=Ranks(1, 2, 1, 2), **options)
    assert not (tmp_path / "checkpoint" / "latest_checkpointed_iteration.txt").exists()
    train(tmp_path, 4, ranks=Ranks(0, 2, 0, 2), **options)
    assert (tmp_path / "checkpoint" / "latest_checkpointed_iteration.txt").read_text() == "4"
    point = find_resume_point(tmp_path)
    assert (point.layout, point.epoch, point.step, point.global_step) == ("iteration", 1, 4, 4)
    assert len(point.files[0]) == len(point.files[1]) == 2
    model = weights_in(tmp_path / point.files[1][0])
    assert np.all(model["w"] == 4) and set(model) == {"w", "b"}


def test_mindformers_v2_reports_the_missing_rank(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.training.checkpointing.mindformers_v2_saver.COMMIT_TIMEOUT", 0.1)
    with caplog.at_level(logging.WARNING):
        train(tmp_path, 2, ranks=Ranks(0, 2, 0, 2), save_checkpoint_steps=2, use_legacy_format=False)
    assert "rank 1 did not save" in caplog.text and "not committed" in caplog.text
    with pytest.raises(PacelineError, match="no checkpoint is complete"):
        find_resume_point(tmp_path)


def test_after_a_failure_waiting_for_dead_ranks_is_short(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise ten minutes, in which the job is killed before its outputs are uploaded."""
    monkeypatch.setattr("paceline.training.monitors.checkpoint._FAILURE_WAIT", 0.1)
    weights = {"w": np.zeros(3, np.float32)}
    monitor = CheckpointMonitor(
        "gpt",
        outputs=OutputTree(tmp_path),
        ranks=Ranks(0, 2, 0, 2),
        save_checkpoint_steps=1,
        async_save=True,
        use_legacy_format=False,
    )
    with (
        pytest.raises(ValueError, match="on fire"),
        Monitored([monitor], TrainingState(weights=lambda: weights)) as loop,
    ):
        loop.step_end()
        raise ValueError("on fire")
    assert "rank 1 did not save in time" in caplog.text


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Any:
    place = tmp_path / "tiny"
    place.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", place]).returncode:
        pytest.skip("needs root to mount a small file system")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("beside", [True, False])
def test_a_full_disk_loses_no_checkpoint_and_no_step_and_is_logged(
    tiny_disk: Path, caplog: pytest.LogCaptureFixture, beside: bool
) -> None:
    options = {"save_checkpoint_steps": 1, "keep_checkpoint_max": 1, "async_save": beside}
    train(tiny_disk, 4, **options)
    filler = tiny_disk / "filler"
    filler.write_bytes(bytes(os.statvfs(tiny_disk).f_bavail * 4096 - 4096 * 2))
    with caplog.at_level(logging.WARNING):
        state = train(tiny_disk, 8, first=4, **options)
    assert state.step == 8
    logged = [record.getMessage() for record in caplog.records if "no space left" in record.getMessage()]
    assert logged and all("training continues" in line for line in logged)
    assert_whole(tiny_disk / find_resume_point(tiny_disk).files[0][0], 4)
    assert not list(tiny_disk.rglob("*.paceline-part"))
    filler.unlink()
    train(tiny_disk, 9, first=8, **options)
    assert find_resume_point(tiny_disk).global_step == 9


FULL_DISK = """
import logging, sys
from pathlib import Path
import numpy as np
from paceline.training import Monitored, TrainingState, cloud_session, monitors_from_config
disk, home = Path(sys.argv[1]), sys.argv[2]
callbacks = [{"type": "MFLossMonitor"}, {"type": "SummaryMonitor", "collect_freq": 1},
             {"type": "CheckpointMonitor", "prefix": "gpt", "save_checkpoint_steps": 5, "async_save": True},
             {"type": "ObsMonitor", "upload_sequence": 5}]
with cloud_session(disk / "run", home, deadline=600) as session:
    weights = {"w": np.zeros(1000, np.float32)}
    state = TrainingState(weights=lambda: weights, total_steps=300)
    with Monitored(monitors_from_config(callbacks, session), state) as loop:
        for step in range(1, 301):
            loop.step_begin()
            weights["w"][:] = step
            loop.step_end(loss=1.0)
            if step == 10:
                session.monitors[2]._background.wait()
                with (disk / "filler").open("wb", buffering=0) as file:
                    try:
                        while True:
                            file.write(bytes(4096))
                    except OSError:
                        pass
print("training is over")
"""


def test_a_full_disk_for_all_outputs_loses_no_step_and_is_logged(tiny_disk: Path, tmp_path: Path) -> None:
    """Logs, summaries, checkpoints and status files: none of them may stop the training."""
    script = tmp_path / "script.py"
    script.write_text(FULL_DISK)
    command = [sys.executable, str(script), str(tiny_disk), str(tmp_path / "home")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    told = done.stdout + done.stderr
    assert done.returncode == 0 and "training is over" in told, told
    assert "Traceback" not in told and "Logging error" not in told, told
    assert told.count("info.log: no space left on device") == 1
    assert "earlier checkpoints are kept, training continues" in told
    point = find_resume_point(tmp_path / "home")
    assert point.global_step == find_resume_point(tiny_disk / "run").global_step is not None
    assert np.all(weights_in(tmp_path / "home" / point.files[0][0])["w"] == point.global_step)


def test_a_slow_disk_makes_saves_rarer_at_the_same_steps_on_all_ranks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()
    weights = {"w": np.zeros(10, np.float32)}
    state = TrainingState(steps_per_epoch=0, weights=lambda: weights)
    monitor = CheckpointMonitor(
        "gpt", outputs=OutputTree(tmp_path), save_checkpoint_steps=2, async_save=True, keep_checkpoint_max=0
    )
    with caplog.at_level(logging.WARNING), Monitored([monitor], state) as loop:
        save = monitor._rank_saver.save
        monitor._rank_saver.save = lambda *words: (gate.wait(600), save(*words))[1]  # type: ignore[method-assign]
        for _ in range(5):
            loop.step_end()
        gate.set()
        monitor._background.wait()
        for _ in range(3):
            loop.step_end()
            monitor._background.wait()
    assert "saving every 4 steps" in caplog.text
    assert {name.rpartition("_")[2] for name in names(tmp_path)} == {"2.ckpt", "8.ckpt"}


def committed(root: Path) -> int:
    try:
        meta = json.loads((root / "checkpoint" / "rank_0" / "meta.json").read_text())
    except FileNotFoundError:
        return 0
    return int(meta["paceline"]["files"][meta["last_ckpt_file"]]["global_step"])


def test_kill_9_at_any_moment_leaves_a_complete_checkpoint(tmp_path: Path) -> None:
    """Save after save of 3 MB, in the loop and in the background, killed at random moments."""
    generator = random.Random(7)
    reached = 0
    for attempt in range(6):
        monitors = [
            {
                "type": "CheckpointMointor",
                "prefix": "gpt",
                "save_checkpoint_steps": 1,
                "keep_checkpoint_max": 1,
                "async_save": attempt % 2 == 1,
            }
        ]
        training = Training(tmp_path / "run", steps=10**6, bytes=3 << 20, monitors=monitors, resume=reached)
        wanted = reached + generator.randint(1, 6)
        training.until(lambda wanted=wanted: committed(tmp_path / "run") >= wanted)
        time.sleep(generator.uniform(0, 0.05))  # somewhere in the saves that follow
        training.kill()
        point = find_resume_point(tmp_path / "run")
        assert point.global_step is not None and point.global_step >= wanted
        assert_whole(tmp_path / "run" / point.files[0][0], point.global_step)
        reached = point.global_step


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="save_checkpoint_steps"):
        CheckpointMonitor(save_checkpoint_steps=0)
    with pytest.raises(UsageError, match="cannot agree on a step without communication"):
        train(tmp_path, 1, ranks=Ranks(0, 2, 0, 2), save_checkpoint_steps=0, save_checkpoint_seconds=5)
    with pytest.raises(UsageError, match="checkpoint_format"):
        CheckpointMonitor(checkpoint_format="pickle")
