"""JAX's XPlane profiles: one made by hand, and a real one of eight MI300X."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.formats.xplane.reader import READER
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

Field = tuple[int, "int | bytes"]


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def message(*fields: Field) -> bytes:
    """Fields as (number, integer or bytes)."""
    parts = (
        varint(number << 3) + varint(value)
        if isinstance(value, int)
        else varint(number << 3 | 2) + varint(len(value)) + value
        for number, value in fields
    )
    return b"".join(parts)


def named(key: int, name: str) -> bytes:
    return message((1, key), (2, message((1, key), (2, name.encode()))))


def event(kind: int, start_ns: int, duration_ns: int, correlation: int = 0) -> bytes:
    stat = [(4, message((1, 1), (3, correlation)))] if correlation else []
    return message((1, kind), (2, start_ns * 1000), (3, duration_ns * 1000), *stat)


def line(name: str, begin: int, *events: bytes) -> Field:
    return 3, message((2, name.encode()), (3, begin), *((4, each) for each in events))


def plane(name: str, names: dict[int, str], *lines: Field) -> Field:
    known = ((4, named(key, text)) for key, text in names.items())
    return 1, message((2, name.encode()), *lines, *known, (5, named(1, "correlation_id")))


def write(path: Path) -> None:
    path.parent.mkdir(parents=True)
    gpu = {1: "fusion.3", 2: "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3: "MemcpyD2D"}
    work = [event(1, 0, 700, 5), event(2, 700, 200, 6), event(3, 900, 50)]
    calls = [event(1, 0, 10, 5), event(1, 20, 10, 6), event(2, 0, 900)]
    tpu = [
        line("Steps", 1000, event(8, 0, 500), event(9, 500, 400)),
        line("XLA Ops", 1000, event(1, 10, 100), event(1, 600, 300)),
    ]
    path.write_bytes(
        message(
            plane(
                "/device:GPU:1",
                gpu,
                line("Stream #17(Kernel)", 5000, *work),
                line("XLA Modules", 5000, event(1, 0, 950)),
            ),
            plane("/device:TPU:0", {1: "dot.1", 8: "41", 9: "42"}, *tpu),
            plane("/device:GPU:2", {}, line("Stream #18", 5000)),
            plane("/host:CPU", {1: "cuLaunchKernel", 2: "Execute"}, line("python", 4900, *calls)),
            (4, b"node9"),
        )
    )


def test_every_device_with_work_is_a_rank_with_its_kernels_launches_and_steps(tmp_path: Path) -> None:
    write(tmp_path / "run" / "node9.xplane.pb")
    batch, parts = read_all(READER, tmp_path / "run", tmp_path)
    assert [(part.rank, part.root) for part in parts] == [(0, "node9.xplane.pb#0"), (1, "node9.xplane.pb#1")]
    assert rows(batch, "ranks", "DISTINCT host", "host IS NOT NULL") == [("node9",)]
    assert sorted(rows(batch, "kernels", "rank, name, start, duration, launch")) == [
        (0, "dot.1", 1010, 100, None),
        (0, "dot.1", 1600, 300, None),
        (1, "MemcpyD2D", 5900, 50, None),
        (1, "fusion.3", 5000, 700, 4900),
        (1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 5700, 200, 4920),
    ]
    assert sorted(rows(batch, "steps", "step, start, duration, computing", "rank = 0")) == [
        (41, 1000, 500, 100),
        (42, 1500, 400, 300),
    ]
    assert rows(batch, "collectives", "rank, op, duration") == [(1, "all_reduce", 200)]


@pytest.mark.parametrize("length", [0, 1, 40, 200])
def test_a_file_that_was_cut_is_no_recording_and_no_crash(length: int, tmp_path: Path) -> None:
    path = tmp_path / "run" / "node9.xplane.pb"
    write(path)
    path.write_bytes(path.read_bytes()[:length])
    assert read_all(READER, tmp_path / "run", tmp_path)[1] == []


@needs_fixtures
def test_a_real_profile_has_eight_devices(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    name = "jax_mi300.xplane.pb"
    (tmp_path / "run" / name).symlink_to(FIXTURES / "real" / "unread-formats" / name)
    batch, parts = read_all(READER, tmp_path / "run", tmp_path)
    assert len(parts) == 8
    found = rows(batch, "kernels", "rank, count(*), count(launch)", "true GROUP BY rank ORDER BY rank")
    assert found == [(0, 60, 60), *((rank, 25, 25) for rank in range(1, 8))]
