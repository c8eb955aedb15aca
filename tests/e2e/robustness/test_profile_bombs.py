"""Small profiles and archives that would cost gigabytes or minutes: one sentence each, in little time and memory."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from io import RawIOBase
from pathlib import Path

import duckdb
import pytest

MOST_SECONDS = 30.0
"""Of processor time: tests run beside others, which share its caches and threads."""
MOST_BYTES = 512 << 20
HEAD = b'{"schemaVersion":1,"distributedInfo":{"rank":0,"world_size":1},"traceEvents":['
EVENT = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":1},'
BLANKS = b" " * (1 << 20)


def gzip_of(path: Path, *blocks: bytes) -> None:
    with gzip.open(path, "wb", 6) as file:
        for block in blocks:
            file.write(block)


def blanks_in_gzip(target: Path) -> None:
    gzip_of(target / "rank0.pt.trace.json.gz", HEAD, *[BLANKS] * 512, b"]}")


def events_in_gzip(target: Path) -> None:
    gzip_of(target / "rank0.pt.trace.json.gz", HEAD, *[EVENT * 20_000] * 200, EVENT[:-1], b"]}")


def one_long_name(target: Path) -> None:
    gzip_of(target / "rank0.pt.trace.json.gz", HEAD, b'{"ph":"X","name":"', *[b"x" * (1 << 20)] * 200, b'"}]}')


def deep_arrays(target: Path) -> None:
    (target / "rank0.json").write_bytes(HEAD + b"[" * 5_000_000)


def deep_metadata(target: Path) -> None:
    (target / "rank0.json").write_bytes(b'{"schemaVersion":1,"distributedInfo":' + b"[" * 3_000_000)


def blanks_in_zip(target: Path) -> None:
    archive = zipfile.ZipFile(target / "run.zip", "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("rank0.pt.trace.json", "w", force_zip64=True) as member:
        for _ in range(512):
            member.write(BLANKS)


def blanks_in_xz(target: Path) -> None:
    (target / "rank0.json.xz").write_bytes(lzma.compress(HEAD + BLANKS * 200, preset=0))


class _Blanks(RawIOBase):
    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        view[:] = b" " * len(view)
        return len(view)


def blanks_in_tar(target: Path) -> None:
    with tarfile.open(target / "run.tgz", "w:gz", compresslevel=6) as archive:
        member = tarfile.TarInfo("rank0.pt.trace.json")
        member.size = 512 << 20
        archive.addfile(member, _Blanks())  # type: ignore[arg-type]


def parquet_of_equal_rows(target: Path) -> None:
    columns = "0 AS rank, 1 AS step, 'k' AS name, 1::BIGINT AS start, 1::BIGINT AS duration"
    options = "FORMAT parquet, ROW_GROUP_SIZE 10000000, COMPRESSION zstd"
    with closing(duckdb.connect()) as connection:
        connection.execute(f"COPY (SELECT {columns} FROM range(20000000)) TO '{target}/kernels.parquet' ({options})")
    (target / "paceline.json").write_text(json.dumps({"schema": "paceline.tables/1"}))


def parquet_with_a_lying_footer(target: Path) -> None:
    with closing(duckdb.connect()) as connection:
        connection.execute(f"COPY (SELECT 0 AS rank, range AS step FROM range(3)) TO '{target}/steps.parquet'")
    content = bytearray((target / "steps.parquet").read_bytes())
    content[-8:-4] = (2**31 - 1).to_bytes(4, "little")
    (target / "steps.parquet").write_bytes(content)
    (target / "paceline.json").write_text(json.dumps({"schema": "paceline.tables/1"}))


def endless_view(target: Path) -> None:
    with closing(sqlite3.connect(target / "report.sqlite")) as report:
        report.executescript("""
            CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
            CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
            CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS
                WITH RECURSIVE c(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM c)
                SELECT id AS start, id + 1 AS "end", 1 AS demangledName, 1 AS streamId, 0 AS deviceId,
                       1 AS correlationId, 0 AS globalPid FROM c;
        """)


def computed_text(target: Path) -> None:
    """Each row costs 400 MB that are nowhere in the file."""
    with closing(sqlite3.connect(target / "report.sqlite")) as report:
        report.executescript("""
            CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
            CREATE TABLE StringIds (id INTEGER, value TEXT GENERATED ALWAYS AS (hex(zeroblob(200000000))) VIRTUAL);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, "end" INT, demangledName INT, streamId INT,
                deviceId INT, correlationId INT, globalPid INT);
            INSERT INTO StringIds (id) VALUES (1), (2), (3);
            INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL
                VALUES (0, 50, 1, 7, 0, 1, 16777216), (100, 150, 2, 7, 0, 2, 16777216), (200, 250, 3, 7, 0, 3, 16777216);
        """)


# The peak of the program's own memory: ru_maxrss would count pytest's, from before the program was loaded.
MEASURED = """
import re, time
from pathlib import Path
from paceline.cli.main import main
try:
    main()
finally:
    print(time.process_time(), re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""
BOMBS: tuple[Callable[[Path], None], ...] = (
    blanks_in_gzip, events_in_gzip, one_long_name, deep_arrays, deep_metadata, blanks_in_zip, blanks_in_xz, blanks_in_tar,
    parquet_of_equal_rows, parquet_with_a_lying_footer, endless_view, computed_text,
)  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.__name__)
def test_a_bomb_ends_soon_in_little_memory_and_a_sentence(bomb: Callable[[Path], None], tmp_path: Path) -> None:
    source = tmp_path / "bomb"
    source.mkdir()
    bomb(source)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, "diagnose", str(source), "--out", str(tmp_path / "report")],
        capture_output=True,
        text=True,
        env={**os.environ, "PACELINE_CACHE": str(tmp_path / "cache")},
    )
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("paceline: ") and len(done.stderr.splitlines()) <= 5, done.stderr
    seconds, kilobytes = done.stdout.split()[-2:]
    assert float(seconds) < MOST_SECONDS, done.stderr
    assert int(kilobytes) * 1024 < MOST_BYTES, done.stderr


def test_a_low_limit_on_address_space_is_said_instead_of_crashed_into(tmp_path: Path) -> None:
    for limit in ("200000", "400000", "800000"):
        line = f"ulimit -v {limit}; exec {sys.executable} -m paceline diagnose {tmp_path}"
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
        assert done.returncode == 1, done.stderr
        assert "the address space is limited to" in done.stderr
        assert "Traceback" not in done.stderr
