"""Direct I/O: for any length and alignment of the buffer, the file holds the data written."""

from __future__ import annotations

import os
import random
import tempfile
import threading
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.storage.local_io.direct_io import DirectFile, aligned_buffer
from paceline.storage.local_io.file_writes import write_all

BLOCK = 4096


@settings(max_examples=60, deadline=None)
@given(
    length=st.one_of(st.integers(0, 3 * BLOCK), st.integers(0, 3 << 20)),
    start=st.one_of(st.integers(0, 50).map(lambda n: n * BLOCK), st.integers(0, 3 * BLOCK)),
    in_place=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_the_file_holds_the_data_written(length: int, start: int, in_place: bool, seed: int) -> None:
    given = random.Random(seed).randbytes(length)
    data: bytes | memoryview = given
    if in_place:
        data = aligned_buffer(length)
        data[:] = given
    with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:  # a disk; /tmp may be memory
        direct = DirectFile(Path(file.name))
        done = direct.write(data, start)
        direct.close()
        assert 0 <= done <= length and done % BLOCK == 0
        write_all(file.fileno(), memoryview(data)[done:], start + done)
        assert os.pread(file.fileno(), length + 1, start) == given


def test_every_thread_reuses_its_own_buffer() -> None:
    mine = aligned_buffer(BLOCK)
    mine[:3] = b"abc"
    others: list[bytes] = []
    thread = threading.Thread(target=lambda: others.append(bytes(aligned_buffer(BLOCK)[:3])))
    thread.start()
    thread.join()
    assert others == [b"\0\0\0"] and bytes(aligned_buffer(BLOCK)[:3]) == b"abc"


def test_buffers_of_very_large_parts_are_not_kept() -> None:
    large = aligned_buffer(17 << 20)
    large[:3] = b"abc"
    assert bytes(aligned_buffer(17 << 20)[:3]) == b"\0\0\0"
