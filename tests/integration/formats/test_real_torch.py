"""Real torch recordings: the numbers that their publishers, PyTorch's own tool or plain json + NumPy give."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.formats.kineto.metadata import read_trace_head
from paceline.formats.kineto.quick_steps import UnsupportedTrace, quick_steps
from paceline.formats.kineto.reader import READER
from paceline.storage.file_tree import walk
from support.reader_helpers import FIXTURES, needs_fixtures, read_all, rows

REAL = FIXTURES / "real"
WITHOUT_DEVICE = ("rank_non_gpu", "mtia", "zoology")
pytestmark = needs_fixtures


def one(pattern: str) -> Path:
    [path] = REAL.glob(pattern)
    return path


def steps_of(path: Path, tmp_path: Path, columns: str) -> list[tuple[Any, ...]]:
    batch, _ = read_all(READER, path, tmp_path)
    return sorted(rows(batch, "steps", f"step, {columns}"))


@pytest.mark.parametrize(
    ("name", "steps", "kernels", "loading"),
    [
        (
            "resnet50_num_workers_0",
            [187948, 175153, 179733, 174564, 182172, 165983],
            [98598, 98570, 98596, 98623, 98504, 98641],
            0.3337,
        ),
        (
            "resnet50_num_workers_4",
            [182306, 126183, 127181, 123079, 163461, 124198],
            [99778, 99208, 99114, 99021, 98791, 98956],
            0.0084,
        ),
    ],
)
def test_resnet50_has_the_steps_kernels_and_input_wait_that_pytorch_s_tool_shows(
    name: str, steps: list[int], kernels: list[int], loading: float, tmp_path: Path
) -> None:
    batch, _ = read_all(READER, one(f"kineto-tb_plugin/{name}.*"), tmp_path)
    found = sorted(rows(batch, "steps", "step, duration, data_wait"))
    assert [round(duration / 1000) for _, duration, _ in found] == steps
    sums = (
        "step, (sum(duration) / 1000)::BIGINT FROM in_kernels WHERE type NOT IN ('Memcpy', 'Memset') GROUP BY step --"
    )
    assert [time for _, time in sorted(rows(batch, "kernels", sums))] == kernels
    assert sum(wait for *_, wait in found) / sum(steps) / 1000 == pytest.approx(loading, abs=0.002)


def test_a_host_that_is_two_steps_ahead_does_not_shift_the_device_s_work(tmp_path: Path) -> None:
    path = one("tracelens/mi300_resnet_act_checkpoint*")
    found = steps_of(path, tmp_path, "duration, computing, communication, overlapped, exposed")
    expected = np.array(
        [[18.98, 7.08, 15.86, 4.06, 11.80], [18.98, 7.03, 15.91, 4.03, 11.87], [18.55, 7.08, 15.43, 4.07, 11.36]]
    )
    assert [row[0] for row in found] == [15, 16, 17]
    assert np.array([row[1:] for row in found]) / 1e6 == pytest.approx(expected, abs=0.011)


def test_an_empty_closing_step_is_left_out(tmp_path: Path) -> None:
    [(step, duration)] = steps_of(one("hta/mi250*"), tmp_path, "duration")
    assert (step, duration / 1e6) == (1, pytest.approx(9.29, abs=0.005))


def test_param_s_resnet_loads_input_half_of_the_time_and_waits_for_most_of_it(tmp_path: Path) -> None:
    batch, _ = read_all(READER, one("param-resnet*"), tmp_path)
    found = rows(batch, "steps", "duration, data_wait, free")
    duration, waited, free = np.array(found).sum(axis=0)
    [(loaded,)] = rows(batch, "host_calls", "sum(time)", "layer = 'input'")
    assert len(found) == 31
    assert loaded / duration == pytest.approx(0.507, abs=0.003)
    # The rest is loaded while the device still works on what was launched before.
    assert waited / duration == pytest.approx(0.412, abs=0.003)
    assert free / duration == pytest.approx(0.707, abs=0.003)


@pytest.mark.parametrize("pattern", ["*/*.json.gz", "*.json.gz"])
def test_the_quick_path_gives_the_same_steps(pattern: str, tmp_path: Path) -> None:
    for path in sorted(REAL.glob(pattern)):
        tree = walk(path)
        if not list(READER.find(tree)) or path.name.startswith(WITHOUT_DEVICE):
            continue
        try:
            quick = quick_steps(path, read_trace_head(tree.files[0]).base).columns
        except UnsupportedTrace:
            continue  # the full reader reads it: ROCm writes streams of host calls as text
        names = ("step", "start", "end", "computing", "communication", "exposed", "free")
        whole = steps_of(path, tmp_path, ", ".join(f'"{name}"' for name in names[1:]))
        assert whole == list(zip(*(quick[name].tolist() for name in names if quick[name] is not None), strict=True)), (
            path
        )


# -- who launched what -------------------------------------------------------------------------------------------------


def test_dlrm_s_five_all_to_alls_are_named_and_have_bytes_although_their_kernels_are_called_send_receive(
    tmp_path: Path,
) -> None:
    batch, parts = read_all(READER, REAL / "param-dlrm-8ranks", tmp_path)
    assert len(parts) == 8
    expected = {
        "all_to_all": [6144 * 4, 24 * 8, 384 * 4, 3392 * 4, 6144 * 4],
        "all_reduce": [394241 * 4, 112 * 4, 226960 * 4],
    }
    durations: dict[int, list[int]] = {}
    for rank in range(8):
        for op, sizes in expected.items():
            found = sorted(rows(batch, "collectives", "sequence, bytes, duration", f"rank = {rank} AND op = '{op}'"))
            assert [(sequence, size) for sequence, size, _ in found] == list(enumerate(sizes))
            if op == "all_to_all":
                durations[rank] = [duration // 1000 for *_, duration in found]
    shown = [(min(each), round(sum(each) / 8), max(each)) for each in zip(*durations.values(), strict=True)]
    assert shown == [(10, 3314, 7635), (8, 786, 1108), (7, 152, 176), (7, 116, 133), (10, 372, 545)]
    # The last to arrive has the shortest.
    assert [min(durations, key=lambda rank: durations[rank][at]) for at in range(5)] == [7, 7, 7, 7, 5]


def test_dlrm_hides_as_much_communication_as_hta_says(tmp_path: Path) -> None:
    batch, _ = read_all(READER, REAL / "param-dlrm-8ranks", tmp_path)
    shares = rows(batch, "steps", "rank, 100 * overlapped / communication")
    expected = [4.50, 2.47, 7.88, 3.31, 0.56, 0.64, 7.56, 9.51]
    # HTA leaves copies out of computing: on rank 3 they overlap for 10 µs.
    assert [share for _, share in sorted(shares)] == pytest.approx(expected, abs=0.12)


def test_all_reduces_of_symmetric_memory_are_communication(tmp_path: Path) -> None:
    batch, _ = read_all(READER, one("tracelens/b200*"), tmp_path)
    sums = rows(batch, "collectives", "op, count(*), sum(duration) / 1e6", "true GROUP BY op")
    found = {op: (count, time) for op, count, time in sums}
    assert found["all_reduce"] == (73, pytest.approx(2.12, abs=0.005))
    assert found["all_gather"] == (1, pytest.approx(0.022, abs=0.0005))


def test_kernels_have_the_operator_module_code_and_shapes_that_launched_them(tmp_path: Path) -> None:
    batch, _ = read_all(READER, one("tracelens/b200*"), tmp_path)
    [(launched, kernels)] = rows(batch, "kernels", "count(launch), count(*)")
    assert launched == kernels == 929
    where = "operator = '_C::rotary_embedding'"
    found = rows(batch, "kernels", "DISTINCT module, code, input_shapes, input_types", where)
    assert found == [
        (
            "YaRNScalingRotaryEmbedding_0",
            "torch/_ops.py(1244): __call__",
            "888;888,512;888,64;;131072,64;",
            "long int;c10::BFloat16;c10::BFloat16;Scalar;c10::BFloat16;Scalar",
        )
    ]


# -- odd recordings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("hta/rank_non_gpu*", "only the host was recorded"),
        ("hta/mtia*", "device work of category mtia_ccp_events is not known"),
        ("unread-formats/zoology*", "calls of the device's runtime were recorded, but nothing that ran on the device"),
    ],
)
def test_a_device_that_was_not_recorded_is_not_called_idle(pattern: str, said: str, tmp_path: Path) -> None:
    batch, _ = read_all(READER, one(pattern), tmp_path)
    [warning] = [each for each in batch.warnings if said in each.message]
    assert "nothing is reported about the device" in warning.message
    assert rows(batch, "steps", "count(computing), count(free), count(exposed), count(duration) > 0") == [
        (0, 0, 0, True)
    ]


def test_the_first_kineto_traces_are_read_without_metadata(tmp_path: Path) -> None:
    batch, _ = read_all(READER, one("unread-formats/torch1.8*"), tmp_path)
    assert rows(batch, "kernels", "count(*)", "type NOT IN ('Memcpy', 'Memset')") == [(9564,)]
    assert [step for (step,) in sorted(rows(batch, "steps", "step"))] == [5, 6, 7, 8, 9, 10]


def test_a_trace_that_was_cut_off_is_read_up_to_the_cut(tmp_path: Path) -> None:
    whole = gzip.decompress(one("param-resnet*").read_bytes())
    (tmp_path / "plain").mkdir()
    (tmp_path / "packed").mkdir()
    (tmp_path / "plain" / "train.json").write_bytes(whole[: len(whole) * 6 // 10])
    (tmp_path / "packed" / "train.json.gz").write_bytes(
        gzip.compress(whole)[: len(one("param-resnet*").read_bytes()) // 2]
    )
    for name in ("plain", "packed"):
        batch, _ = read_all(READER, tmp_path / name, tmp_path)
        assert all("everything before the cut is read" in warning.message for warning in batch.warnings)
        assert batch.warnings and rows(batch, "events", "count(*) > 20000") == [(True,)]


def test_the_card_s_memory_is_what_the_driver_said(tmp_path: Path) -> None:
    batch, _ = read_all(READER, one("param-resnet*"), tmp_path)
    for peak, capacity in rows(batch, "ranks_memory", "peak, capacity"):
        assert capacity == 11554586624 and 0 < peak < capacity


# -- what the publishers' own tools say of the whole recording ---------------------------------------------------------


def test_dlrm_s_devices_are_idle_as_long_as_hta_says(tmp_path: Path) -> None:
    """HTA's time begins with the first and ends with the last piece of device work."""
    batch, _ = read_all(READER, REAL / "param-dlrm-8ranks", tmp_path)
    busy = dict(rows(batch, "steps", "rank, computing + exposed"))
    spans = dict(rows(batch, "kernels", "rank, max(start + duration) - min(start)", "true GROUP BY rank"))
    idle = [100 * (1 - busy[rank] / spans[rank]) for rank in range(8)]
    assert idle == pytest.approx([49.34, 34.28, 62.08, 43.20, 53.57, 55.64, 61.80, 75.75], abs=0.01)


def test_dlrm_s_all_to_alls_end_together_and_are_waiting(tmp_path: Path) -> None:
    batch, _ = read_all(READER, REAL / "param-dlrm-8ranks", tmp_path)
    found = rows(batch, "collectives", "sequence, start + duration, duration", "op = 'all_to_all'")
    ends, durations = (
        [[row[column] for row in found if row[0] == sequence] for sequence in range(5)] for column in (1, 2)
    )
    assert max(max(each) - min(each) for each in ends) <= 3_000
    # The last to arrive waits for nobody: what the others need longer is waiting.
    moving = sum(len(each) * min(each) for each in durations)
    assert moving / sum(map(sum, durations)) < 0.01


def test_resnet50_keeps_its_gpu_as_busy_as_pytorch_s_tool_says(tmp_path: Path) -> None:
    batch, _ = read_all(READER, one("kineto-tb_plugin/resnet50_num_workers_0.*"), tmp_path)
    kernels = "sum(duration) FROM in_kernels WHERE type NOT IN ('Memcpy', 'Memset') AND step IS NOT NULL --"
    [(busy,)] = rows(batch, "kernels", kernels)
    [(total,)] = rows(batch, "steps", "sum(duration)")
    assert busy / total == pytest.approx(0.5551, abs=0.0001)


@pytest.mark.parametrize(
    ("pattern", "busy", "total"),
    [("tracelens/b200*", 11.60, 87.41), ("tracelens/sglang*", 9.773, 473.750)],
)
def test_busy_time_is_what_tracelens_says(pattern: str, busy: float, total: float, tmp_path: Path) -> None:
    batch, _ = read_all(READER, one(pattern), tmp_path)
    [(computing, exposed, duration)] = rows(batch, "steps", "computing / 1e6, exposed / 1e6, duration / 1e6")
    assert computing + exposed == pytest.approx(busy, abs=0.005)
    # The step also holds the launch of the first kernel: less than 0.1 ms.
    assert duration == pytest.approx(total, abs=0.1)


@pytest.mark.parametrize(
    ("pattern", "call", "milliseconds"),
    [
        ("tracelens/sglang*", "hipMemcpyWithStream", 463.06),
        ("hta/critical_path_alexnet*", "cudaDeviceGetStreamPriorityRange", 29_927.4),
    ],
)
def test_time_in_a_call_of_the_driver_is_that_call_s_and_no_input(
    pattern: str, call: str, milliseconds: float, tmp_path: Path
) -> None:
    batch, _ = read_all(READER, one(pattern), tmp_path)
    [(time,)] = rows(batch, "host_calls", "sum(time) / 1e6", f"name = '{call}' AND layer = 'runtime'")
    assert time == pytest.approx(milliseconds, abs=0.05)
    assert rows(batch, "host_calls", "name", "layer = 'input'") == []
    assert rows(batch, "steps", "count(data_wait)") == [(0,)]


def test_all_to_alls_of_the_host_are_read_where_nothing_else_was_recorded(tmp_path: Path) -> None:
    batch, _ = read_all(READER, one("hta/rank_non_gpu*"), tmp_path)
    assert rows(batch, "collectives", "op, count(*)", "true GROUP BY op") == [("all_to_all", 6)]
