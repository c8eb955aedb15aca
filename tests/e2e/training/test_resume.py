"""Resume point: the newest checkpoint that is complete on every rank; others are skipped with a reason."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.checkpoint.manifest import META, FileRecord, RankMeta, RankRecord, encode
from paceline.checkpoint.resume.resume_point import find_resume_point
from paceline.checkpoint.write_checkpoint import EtagHasher
from paceline.core.errors import PacelineError
from paceline.storage.transfer.transfer import transfer
from support.checkpoint.making import write_ckpt, write_safetensors
from support.storage.servers import paceline

ARRAYS = {"w": np.arange(3000, dtype=np.float32), "global_step": np.asarray([7], np.int32)}


def save(
    root: Path,
    ranks: int,
    steps: list[tuple[int, int]],
    *,
    attempt: str = "one",
    recorded: bool = True,
    prefix: str = "gpt_rank_{}",
) -> None:
    """Write files, then each rank's meta.json, like a saver."""
    for rank in range(ranks):
        place = root / f"rank_{rank}"
        place.mkdir(parents=True, exist_ok=True)
        files = {}
        if (place / META).exists():
            files = json.loads((place / META).read_text())["paceline"]["files"]
            files = {name: FileRecord(**told) for name, told in files.items()}
        for epoch, step in steps:
            name = f"{prefix.format(rank)}-{epoch}_{step}.ckpt"
            path = write_ckpt(place / name, ARRAYS)
            files[name] = FileRecord(path.stat().st_size, tag(path), epoch, step, epoch * 100 + step, attempt)
        record = RankRecord(ranks, files) if recorded else None
        (place / META).write_bytes(encode(RankMeta(*steps[-1], name, record)))


def tag(path: Path) -> str:
    found = EtagHasher(path.stat().st_size)
    found.update(memoryview(path.read_bytes()))
    return found.etag()


def test_ten_comes_after_two(tmp_path: Path) -> None:
    save(tmp_path, 2, [(2, 1), (10, 1), (9, 30)])
    point = find_resume_point(tmp_path)
    assert (point.epoch, point.step, point.global_step) == (10, 1, 1001)
    assert point.files == {rank: (f"rank_{rank}/gpt_rank_{rank}-10_1.ckpt",) for rank in (0, 1)}


def broken(root: Path, how: str) -> None:
    newest = root / "rank_1" / "gpt_rank_1-3_1.ckpt"
    data = newest.read_bytes()
    if how == "cut":
        newest.write_bytes(data[:-1])
    elif how == "flipped":
        newest.write_bytes(data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
    elif how == "gone":
        newest.unlink()
    elif how == "empty":
        newest.write_bytes(b"")
    elif how == "not committed":
        meta = json.loads((root / "rank_1" / META).read_text())
        del meta["paceline"]["files"][newest.name]
        (root / "rank_1" / META).write_text(json.dumps(meta))
    elif how == "another start":
        meta = json.loads((root / "rank_1" / META).read_text())
        meta["paceline"]["files"][newest.name]["attempt"] = "two"
        (root / "rank_1" / META).write_text(json.dumps(meta))


WAYS = {
    "cut": "12,0",
    "flipped": "is damaged: its checksum",
    "gone": "rank 1 has no file",
    "empty": "has 0 bytes",
    "not committed": "rank 1 did not finish writing it",
    "another start": "different starts of the training (one, two)",
}


@pytest.mark.parametrize(("how", "reason"), WAYS.items())
def test_an_incomplete_newest_checkpoint_is_skipped_and_reported(tmp_path: Path, how: str, reason: str) -> None:
    save(tmp_path, 3, [(1, 1), (2, 1), (3, 1)])
    broken(tmp_path, how)
    point = find_resume_point(tmp_path)
    assert (point.epoch, point.step) == (2, 1)
    assert [skip.name for skip in point.skipped] == ["3_1"] and reason in point.skipped[0].reason


@pytest.mark.parametrize("how", ["cut", "flipped", "gone", "empty", "not committed", "another start"])
def test_the_same_in_a_bucket_without_reading_files(faulty: str, proxy: object, tmp_path: Path, how: str) -> None:
    save(tmp_path / "c", 3, [(1, 1), (2, 1), (3, 1)])
    broken(tmp_path / "c", how)
    url = f"s3://{faulty}/run"
    transfer(tmp_path / "c", f"{url}/checkpoint").raise_failures()
    proxy.forget()  # type: ignore[attr-defined]
    point = find_resume_point(url)
    assert (point.epoch, point.step) == (2, 1) and WAYS[how] in point.skipped[0].reason
    read = [request.path for request in proxy.seen if request.method == "GET" and ".ckpt" in request.path]  # type: ignore[attr-defined]
    assert read == []  # names, sizes and ETags were enough


def test_a_rank_without_files_is_missing_when_others_recorded_the_world_size(tmp_path: Path) -> None:
    save(tmp_path, 3, [(1, 1)])
    for path in (tmp_path / "rank_2").iterdir():
        path.unlink()
    with pytest.raises(PacelineError, match="rank 2 has no file of it"):
        find_resume_point(tmp_path)
    with pytest.raises(PacelineError, match="ranks 2, 3 have no file of it"):
        find_resume_point(tmp_path, ranks=4)
    assert len(find_resume_point(tmp_path, ranks=2).files) == 2


def test_a_later_run_in_the_same_directory_is_newer_than_all_of_an_earlier_one(tmp_path: Path) -> None:
    save(tmp_path, 2, [(5, 1), (6, 1)])
    save(tmp_path, 2, [(1, 2)], prefix="gpt_rank_{}_1", attempt="two")
    assert find_resume_point(tmp_path).files[1] == ("rank_1/gpt_rank_1_1-1_2.ckpt",)
    save(tmp_path, 1, [(2, 2)], prefix="gpt_rank_{}_1", attempt="two")
    meta = json.loads((tmp_path / "rank_0" / META).read_text())
    assert meta["paceline"]["world_size"] == 1
    assert find_resume_point(tmp_path, ranks=2).epoch == 1


def test_files_without_records_are_checked_by_structure(tmp_path: Path) -> None:
    save(tmp_path, 2, [(1, 1), (2, 1), (3, 1)], recorded=False)
    write_ckpt(tmp_path / "rank_0" / "gpt_rank_0-4_1.ckpt", ARRAYS)
    write_ckpt(tmp_path / "rank_1" / "gpt_rank_1-4_1.ckpt", ARRAYS)  # written, and killed before meta.json
    (tmp_path / "rank_0" / "gpt_rank_0-3_1.ckpt").write_bytes(b"\x0a\x90\x4e\x0a")
    point = find_resume_point(tmp_path)
    assert (point.epoch, point.global_step) == (2, 7)
    assert [skip.name for skip in point.skipped] == ["4_1", "3_1"]
    assert "did not finish" in point.skipped[0].reason and "damaged or truncated" in point.skipped[1].reason
    assert any("structure" in note for note in point.notes)


def test_files_of_mindspore_alone_have_no_ranks(tmp_path: Path) -> None:
    write_ckpt(tmp_path / "CKP-2_9.ckpt", ARRAYS)
    write_ckpt(tmp_path / "CKP-10_9.ckpt", ARRAYS)
    point = find_resume_point(tmp_path)
    assert point.files == {0: ("CKP-10_9.ckpt",)} and point.global_step == 7


def iterations(root: Path, numbers: list[int], *, tracker: str | None) -> None:
    for number in numbers:
        place = root / f"iteration_{number:08d}"
        for rank in (0, 1):
            for kind in ("model", "opt"):
                write_safetensors(place / f"gpt-{kind}-{rank:07d}-0000002.safetensors", ARRAYS)
        told = {"epoch_num": 1, "step_num": number, "global_step": number, "loss_scale": 1.0, "global_batch_size": 8}
        (place / "common.json").write_text(json.dumps(told))
        (place / "metadata.json").write_text('{"state_dict_metadata": {}, "storage_data": {}}')
    if tracker is not None:
        (root / "latest_checkpointed_iteration.txt").write_text(tracker)


def test_iterations_beyond_the_tracker_are_not_committed(tmp_path: Path) -> None:
    iterations(tmp_path, [9, 10, 100], tracker="10")
    point = find_resume_point(tmp_path)
    assert (point.layout, point.global_step) == ("iteration", 10)
    assert "tracker" not in point.skipped[0].name and "contains 10" in point.skipped[0].reason
    (tmp_path / "iteration_00000010" / "gpt-opt-0000001-0000002.safetensors").write_bytes(b"no")
    (tmp_path / "iteration_00000009" / "common.json").write_text("{")
    with pytest.raises(
        PacelineError, match=r"(?s)iteration_00000010.*too short for a safetensors.*iteration_00000009.*common.json"
    ):
        find_resume_point(tmp_path)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("soon")
    assert find_resume_point(tmp_path).global_step == 100


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.binary(max_size=200),
    st.sampled_from(
        ["meta.json", "gpt_rank_0-2_1.ckpt", "latest_checkpointed_iteration.txt", "iteration_00000001/common.json"]
    ),
)
def test_random_bytes_cause_no_crash(tmp_path: Path, data: bytes, name: str) -> None:
    root = tmp_path / "fuzz"
    shutil.rmtree(root, ignore_errors=True)
    save(root, 1, [(1, 1), (2, 1)])
    if "ckpt" in name or "meta" in name:
        (root / "rank_0" / name).write_bytes(data)
    else:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    try:
        assert find_resume_point(root).files
    except PacelineError:
        pass


def test_the_command_prints_text_and_json(bucket: str, tmp_path: Path) -> None:
    save(tmp_path / "c", 2, [(1, 1), (2, 1), (3, 1)])
    broken(tmp_path / "c", "flipped")
    env = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "PACELINE_", "HOME"))}
    transfer(tmp_path / "c", f"s3://{bucket}/run/checkpoint")
    done = paceline("checkpoint", "resume-point", tmp_path / "c", env=env)
    assert done.returncode == 0 and done.stdout.startswith("epoch 2, step 1, global step 201, 2 ranks\n")
    assert "skipped: 3_1: " in done.stderr and "checksum" in done.stderr
    told = json.loads(paceline("checkpoint", "resume-point", f"s3://{bucket}/run", "--json", env=env).stdout)
    assert told["global_step"] == 201 and sorted(told["files"]) == ["0", "1"]
    done = paceline("checkpoint", "resume-point", f"s3://{bucket}/else", env=env)
    assert done.returncode == 2 and "no files found" in done.stderr and not done.stdout
    done = paceline("checkpoint", "resume-point", tmp_path / "c", "--ranks", 3, env=env)
    assert done.returncode == 1 and "rank 2 has no file of it" in done.stderr
