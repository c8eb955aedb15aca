"""Archives, compressed files and sources without a profile, opened as users open them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

import paceline
from paceline.core.errors import PacelineError, UsageError
from paceline.metrics.breakdown import breakdown
from paceline.storage.archives import with_archives
from paceline.storage.file_tree import walk


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def trace(rank: int, world: int = 2) -> bytes:
    """Two steps of one kernel each."""
    events = []
    for step in range(2):
        at = 1000 * step
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": at, "dur": 900},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at + 10, "dur": 5,
             "args": {"correlation": step + 1}},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at + 20, "dur": 500 + 100 * rank,
             "args": {"correlation": step + 1, "stream": 7, "device": 0}},
        ]  # fmt: skip
    head = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": world}, "deviceProperties": []}
    return json.dumps({**head, "traceEvents": events}).encode()


def members() -> dict[str, bytes]:
    return {f"job/rank{rank}.json": trace(rank) for rank in range(2)} | {"job/weights.bin": b"\0" * 100}


def write_archive(path: Path) -> Path:
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members().items():
                archive.writestr(name, content)
        return path
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, content in members().items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    compress = {".gz": gzip.compress, ".tgz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": zstd}
    path.write_bytes(compress.get(path.suffix, bytes)(plain.getvalue()))
    return path


def zstd(content: bytes) -> bytes:
    program = shutil.which("zstd")
    if not program:
        pytest.skip("the program zstd is not installed")
    return subprocess.run([program, "-qc"], input=content, stdout=subprocess.PIPE, check=True).stdout


def computing(source: Path, tmp_path: Path) -> list[tuple[int, int, int]]:
    with paceline.open(source, store=tmp_path / "store") as run:
        return sorted(run.sql("SELECT rank, step, computing FROM steps").fetchall())


EXPECTED = [(0, 0, 500_000), (0, 1, 500_000), (1, 0, 600_000), (1, 1, 600_000)]


@pytest.mark.parametrize(
    "name", ["run.zip", "run.tar", "run.tgz", "run.tar.gz", "run.tar.xz", "run.tar.bz2", "run.tar.zst"]
)
def test_an_archive_is_a_source(name: str, tmp_path: Path, cache: Path) -> None:
    source = write_archive(tmp_path / name)
    assert computing(source, tmp_path) == EXPECTED
    assert [path.name for path in cache.rglob("*.bin")] == []
    assert breakdown(source, store=tmp_path / "store").ranks == (0, 1)


def test_a_directory_of_archives_is_a_source(tmp_path: Path) -> None:
    source = tmp_path / "reports"
    source.mkdir()
    for rank in range(2):
        with zipfile.ZipFile(source / f"node{rank}.zip", "w") as archive:
            archive.writestr("trace.json", trace(rank))
    assert computing(source, tmp_path) == EXPECTED


def test_archives_beside_a_profile_are_left_alone(tmp_path: Path, cache: Path) -> None:
    source = tmp_path / "run"
    source.mkdir()
    (source / "rank0.json").write_bytes(trace(0, world=1))
    write_archive(source / "dataset.tar.gz")
    assert computing(source, tmp_path) == EXPECTED[:2]
    assert not (cache / "unpacked").exists()


@pytest.mark.parametrize(("end", "compress"), [(".zst", zstd), (".xz", lzma.compress), (".bz2", bz2.compress)])
def test_compressed_traces_are_read(end: str, compress: object, tmp_path: Path) -> None:
    source = tmp_path / "run"
    source.mkdir()
    assert callable(compress)
    for rank in range(2):
        (source / f"rank{rank}.json{end}").write_bytes(compress(trace(rank)))
    assert computing(source, tmp_path) == EXPECTED
    (source / f"rank1.json{end}").write_bytes(compress(trace(1).replace(b"600", b"700")))
    assert computing(source, tmp_path) == [*EXPECTED[:2], (1, 0, 700_000), (1, 1, 700_000)]


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    whole = write_archive(tmp_path / "whole.tar.gz").read_bytes()
    source = tmp_path / "cut.tar.gz"
    source.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match=r"no profile found.*\n.*\n.*cut.tar.gz.*cannot be unpacked"):
        paceline.open(source, store=tmp_path / "store")


def test_no_member_leaves_the_target(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        for name in ("../out.json", "/tmp/out.json", "a/../../out.json", "good/trace.json"):
            archive.writestr(name, trace(0))
    tree = with_archives(walk(tmp_path / "evil.zip"), lambda name: name.endswith(".json"))
    assert [file.relative for file in tree.files] == ["evil.zip", "evil.zip/good/trace.json"]


def test_a_bomb_is_refused(tmp_path: Path, cache: Path) -> None:
    bomb = tmp_path / "bomb.json.xz"
    bomb.write_bytes(lzma.compress(b"[" + b" " * (80 << 20) + b"]"))
    with pytest.raises(PacelineError, match="refused"):
        paceline.open(bomb, store=tmp_path / "store")
    assert [path for path in cache.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("report1.nsys-rep", b"x", "nsys export --type sqlite"),
        ("gemm.ncu-rep", b"x", "ncu-ui"),
        ("host.xplane.pb", b"x", "xprof"),
        ("trace.pftrace", b"x", "ui.perfetto.dev"),
        ("snapshot.pickle", b"\x80\x04\x95 segments device_traces", "pytorch.org/memory_viz"),
        ("nccl_trace_rank_0", b"\x80\x04\x95 version nccl_version pg_config", "flight recorder"),
        ("rank0.et", b"x", "mlcommons/chakra"),
        ("et.json", b'{"schema": "1.0.2-chakra.0.0.4", "pid": 1, "nodes": []}', "et_replay"),
        ("stacks.json", b'{"$schema": "https://www.speedscope.app/file-format-schema.json"}', "speedscope.app"),
        ("other.json", b'[{"ph": "X", "name": "a", "ts": 1, "dur": 2}]', "Chrome traces of another tool"),
        ("PROF_1/device_0/data/hwts.data.0.slice_0", b"x", "msprof --export=on"),
        ("model.safetensors", b"x", "paceline checkpoint inspect"),
        ("train.log", b"step 1", "logs and text"),
        ("trace.json", b"", "empty files"),
        ("thing.xyz", b"x", "unknown kinds"),
    ],
)
def test_without_a_profile_what_is_there_is_named_and_what_reads_it(
    name: str, content: bytes, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "source" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(UsageError, match="no profile found in 1 files") as error:
        paceline.open(tmp_path / "source", store=tmp_path / "store")
    assert said in str(error.value) and path.name in str(error.value)
