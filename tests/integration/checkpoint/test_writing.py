"""Atomic writes: kill -9, a full disk, a changing source, two writers, existing files."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.checkpoint.reshard import WriteOptions
from paceline.checkpoint.strategy.strategy import Strategy, encode_strategy
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.checkpoint.transform import TransformRequest, transform
from paceline.checkpoint.writers import LocalWriter
from paceline.core.errors import PacelineError, UsageError
from paceline.storage.partial_files import PARTIAL_SUFFIX
from paceline.storage.store_errors import ChangedError, FullError
from support.checkpoint.making import random_array, read, same, write_ranks

COLUMNS = TensorLayout((2,), ((), (0,)))
ARRAY = random_array((2048, 1024), "float32", 5)
SMALL = WriteOptions(memory=64 << 20, workers=8)
"""Chunks of 1 MiB."""


@pytest.fixture
def request_(tmp_path: Path) -> TransformRequest:
    source = write_ranks(tmp_path / "a", {"w": ARRAY}, [{"w": COLUMNS}])
    (tmp_path / "s.ckpt").write_bytes(encode_strategy(Strategy(({"w": COLUMNS},)), merged=False, as_json=False))
    return TransformRequest(str(source), str(tmp_path / "b"), str(tmp_path / "s.ckpt"), options=SMALL)


@pytest.fixture
def puts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the chunks that are written from now on."""
    written: list[int] = []
    real = LocalWriter.put

    def put(self: LocalWriter, number: int, low: int, high: int, frame: Any) -> str:
        mark = real(self, number, low, high, frame)
        written.append(number)
        return mark

    monkeypatch.setattr(LocalWriter, "put", put)
    return written


def killed(request: TransformRequest, after: int) -> None:
    """The same transform in a process that is killed after some chunks."""
    script = f"""
        import os, signal
        from paceline.checkpoint.reshard import WriteOptions
        from paceline.checkpoint.transform import TransformRequest, transform
        from paceline.checkpoint import reshard
        real, count = reshard._FileWriter._write_chunk, [0]
        def do(self, chunk):
            real(self, chunk)
            count[0] += 1
            if count[0] >= {after}:
                os.kill(os.getpid(), signal.SIGKILL)
        reshard._FileWriter._write_chunk = do
        transform(TransformRequest({request.source!r}, {request.target!r}, {request.source_strategy!r},
                          options=WriteOptions(memory=64 << 20, workers=8)))
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert ended.returncode == -signal.SIGKILL


def final_files(target: str) -> list[Path]:
    return [path for path in Path(target).rglob("*") if path.is_file() and not path.name.endswith(PARTIAL_SUFFIX)]


def test_a_killed_run_leaves_no_file_and_resumes(request_: TransformRequest, puts: list[int]) -> None:
    killed(request_, after=3)
    assert not final_files(request_.target)
    transform(request_)
    total = -(-ARRAY.nbytes // SMALL.chunk) + (1 if ARRAY.nbytes % SMALL.chunk == 0 else 0)
    assert 0 < len(puts) <= total - 3
    (made,) = final_files(request_.target)
    assert same(read(made)["w"], ARRAY)
    assert not list(Path(request_.target).rglob(f"*{PARTIAL_SUFFIX}"))


def test_a_killed_run_whose_source_changed_starts_over(
    request_: TransformRequest, puts: list[int], tmp_path: Path
) -> None:
    killed(request_, after=3)
    other = random_array(ARRAY.shape, "float32", 6)
    write_ranks(tmp_path / "a", {"w": other}, [{"w": COLUMNS}])
    transform(request_)
    (made,) = final_files(request_.target)
    assert same(read(made)["w"], other)


def test_after_a_reboot_chunks_are_written_again(
    request_: TransformRequest, puts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(request_, after=3)
    monkeypatch.setattr("paceline.checkpoint.reshard._boot_id", lambda: "another boot")
    transform(request_)
    assert len(puts) == len(set(puts)) == -(-(ARRAY.nbytes + 40) // SMALL.chunk)


def test_running_again_writes_nothing(request_: TransformRequest, puts: list[int]) -> None:
    assert transform(request_).files == 1
    puts.clear()
    again = transform(request_)
    assert (again.files, again.same, puts) == (0, 1, [])


def test_existing_files_are_compared_and_replaced_only_with_overwrite(
    request_: TransformRequest, puts: list[int], own_cache: Path
) -> None:
    transform(request_)
    shutil.rmtree(own_cache)  # without a journal, content decides
    puts.clear()
    assert transform(request_).same == 1
    assert not puts
    (made,) = final_files(request_.target)
    made.write_bytes(b"something of the user's")
    with pytest.raises(UsageError, match="already exists with other content"):
        transform(request_)
    assert made.read_bytes() == b"something of the user's"
    options = WriteOptions(memory=64 << 20, workers=8, overwrite=True)
    transform(TransformRequest(request_.source, request_.target, request_.source_strategy, options=options))
    assert same(read(made)["w"], ARRAY)


def test_ranks_written_one_by_one_are_the_ranks_written_together(request_: TransformRequest, tmp_path: Path) -> None:
    rows = TensorLayout((4,), ((0,), ()))
    (tmp_path / "t.ckpt").write_bytes(encode_strategy(Strategy(({"w": rows},)), merged=False, as_json=False))
    request = TransformRequest(request_.source, request_.target, request_.source_strategy, str(tmp_path / "t.ckpt"))
    for rank in (3, 1):
        assert transform(request, [rank]).files == 1
    outcome = transform(request)
    assert (outcome.files, outcome.same) == (2, 2)
    with pytest.raises(UsageError, match="invalid rank 4: the target has ranks 0 to 3"):
        transform(request, [4])


def test_a_source_that_changes_while_it_is_read_leaves_no_file(
    request_: TransformRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LocalWriter.put

    def put(self: LocalWriter, *arguments: Any) -> str:
        os.utime(next(Path(request_.source).rglob("*.ckpt")), ns=(1, 1))
        return real(self, *arguments)

    monkeypatch.setattr(LocalWriter, "put", put)
    with pytest.raises(ChangedError, match="changed while it was read"):
        transform(request_)
    assert not final_files(request_.target)


def test_a_second_writer_is_refused(request_: TransformRequest) -> None:
    killed(request_, after=3)
    (partial,) = Path(request_.target).rglob(f".*{PARTIAL_SUFFIX}")
    with partial.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(PacelineError, match="another process is writing this file"):
            transform(request_)
    assert not final_files(request_.target)


def test_partial_files_of_another_source_are_not_reused(request_: TransformRequest, tmp_path: Path) -> None:
    killed(request_, after=3)
    other = random_array(ARRAY.shape, "float32", 8)
    write_ranks(tmp_path / "other", {"w": other}, [{"w": COLUMNS}])
    killed(TransformRequest(str(tmp_path / "other"), request_.target, request_.source_strategy), after=5)
    transform(request_)
    (made,) = final_files(request_.target)
    assert same(read(made)["w"], ARRAY)
    assert not list(Path(request_.target).rglob(f"*{PARTIAL_SUFFIX}"))


def test_a_checkpoint_is_not_written_into_itself(request_: TransformRequest) -> None:
    with pytest.raises(UsageError, match="target and source are the same"):
        transform(TransformRequest(request_.source, request_.source + "/", request_.source_strategy))


def test_a_disk_that_is_too_small_is_reported_before_writing(
    request_: TransformRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 9, 1_000_000))
    with pytest.raises(FullError, match=r"0\.01 GB needed, 0\.00 GB free"):
        transform(request_)
    assert not Path(request_.target).exists()


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("may not mount a file system here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_fills_up_leaves_no_file_and_resume_finishes(
    request_: TransformRequest, tiny_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = TransformRequest(request_.source, str(tiny_disk / "b"), request_.source_strategy, options=SMALL)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, 1 << 40))
    with pytest.raises(FullError, match="no space left"):
        transform(request)
    assert not final_files(request.target)
    subprocess.run(["mount", "-o", "remount,size=64m", str(tiny_disk)], check=True)
    transform(request)
    (made,) = final_files(request.target)
    assert same(read(made)["w"], ARRAY)


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_too_little_memory_is_refused(memory: int) -> None:
    with pytest.raises(UsageError, match="is too small"):
        WriteOptions(memory=memory)
