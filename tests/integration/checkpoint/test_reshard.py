"""Resharding between random layouts equals plain NumPy, and the round trip is the identity."""

from __future__ import annotations

import tempfile
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.checkpoint.formats import ckpt
from paceline.checkpoint.plan import read_tensor
from paceline.checkpoint.reshard import WriteOptions
from paceline.checkpoint.strategy.strategy import Strategy, encode_strategy
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.checkpoint.transform import TransformRequest, transform
from support.checkpoint.making import NAMES, part, random_array, read, same, write_ckpt, write_ranks

MATRICES = ((1,), (2,), (4,), (2, 2), (1, 4), (4, 2), (2, 1, 3), (6,), (2, 2, 2))
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def layouts(draw: st.DrawFn, matrix: tuple[int, ...], axes: int) -> TensorLayout:
    """Some device axes shard tensor axes, in any order; the rest are replicas, possibly with optimizer shards."""
    order = draw(st.permutations(range(len(matrix))))
    used = draw(st.integers(0, len(matrix))) if axes else 0
    cutters: list[tuple[int, ...]] = [()] * axes
    for axis in order[:used]:
        place = draw(st.integers(0, axes - 1))
        cutters[place] = (*cutters[place], axis)
    plain = TensorLayout(matrix, tuple(cutters))
    replicas = prod(matrix[axis] for axis in plain.replica_axes)
    shards = draw(st.sampled_from([0, -1, *[n for n in range(2, replicas + 1) if replicas % n == 0]])) if axes else 0
    return TensorLayout(matrix, tuple(cutters), shards=shards, step=1 if shards else 0)


@st.composite
def stages(draw: st.DrawFn, names: list[str], axes: dict[str, int]) -> list[dict[str, TensorLayout]]:
    matrix = draw(st.sampled_from(MATRICES))
    count = draw(st.integers(1, 2))
    made: list[dict[str, TensorLayout]] = [{} for _ in range(count)]
    for number, name in enumerate(names):
        # The first is shared by all stages, as embeddings are.
        places = range(count) if number == 0 else [draw(st.integers(0, count - 1))]
        for place in places:
            made[place][name] = draw(layouts(matrix, axes[name]))
    if not all(made):
        made[-1 if made[0] else 0][names[0]] = draw(layouts(matrix, axes[names[0]]))
    return made


def write_file(path: Path, made: list[dict[str, TensorLayout]], *, as_json: bool = False) -> str:
    path.write_bytes(encode_strategy(Strategy(tuple(made)), merged=len(made) > 1, as_json=as_json))
    return str(path)


@QUICK
@given(st.data())
def test_any_layout_to_any_layout_equals_numpy_and_back_is_identity(data: st.DataObject) -> None:
    names = ["embed", "layers.0-w", "b", "scalar"][: data.draw(st.integers(1, 4))]
    axes = {name: 0 if name == "scalar" else data.draw(st.integers(1, 3), label="axes") for name in names}
    before = data.draw(stages(names, axes), label="before")
    after = data.draw(stages(names, axes), label="after")
    arrays = {}
    for name in names:
        unit = [1] * axes[name]
        for stage in (*before, *after):
            if name in stage:
                unit = [int(np.lcm(u, cut)) for u, cut in zip(unit, stage[name].cuts, strict=True)]
        shape = tuple(u * data.draw(st.integers(1, 3)) for u in unit)
        arrays[name] = random_array(shape, data.draw(st.sampled_from(sorted(NAMES))), data.draw(st.integers(0, 99)))
    first, second = (data.draw(st.sampled_from(["ckpt", "safetensors"])) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        source = write_ranks(root / "a", arrays, before, first, step=np.array([7], np.int64))
        a, b = write_file(root / "a.ckpt", before), write_file(root / "b.json", after, as_json=True)
        transform(TransformRequest(str(source), str(root / "b"), a, b, format=second, prefix="net_"))
        devices = next(iter(after[0].values())).device_count
        for rank in range(devices * len(after)):
            found = read(root / "b" / f"rank_{rank}" / f"net_{rank}.{second}")
            stage = after[rank // devices]
            assert set(found) == {*stage, "step"}
            for name, layout in stage.items():
                assert same(found[name], part(arrays[name], layout, rank % devices)), name
        transform(TransformRequest(str(root / "b"), str(root / "c"), b, a, format=first, prefix="net_"))
        for path in sorted(source.rglob(f"*.{first}")):
            back = read(root / "c" / path.relative_to(source))
            was = read(path)
            assert set(back) == set(was)
            assert all(same(back[name], was[name]) for name in was)


@QUICK
@given(st.data())
def test_chunks_of_any_size_and_tiny_windows_make_the_same_file(data: st.DataObject) -> None:
    layout = data.draw(layouts((2, 3), 2))
    shape = tuple(cut * data.draw(st.integers(1, 6)) for cut in layout.cuts)
    array = random_array(shape, data.draw(st.sampled_from(["uint8", "float16", "int64"])), 1)
    limits = data.draw(st.tuples(*(st.integers(1, most) for most in (40, 60, 200, 99))))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_ranks(root / "a", {"w": array}, [{"w": layout}])
        small = _Small(*limits)
        with small:
            transform(
                TransformRequest(str(root / "a"), str(root / "b"), write_file(root / "s", [{"w": layout}]), crc=True)
            )
        assert same(read(root / "b" / "rank_0" / "checkpoint_0.ckpt")["w"], array)


class _Small:
    """Windows, runs, parts and chunks of a few bytes, to cover all boundaries."""

    def __init__(self, direct: int, window: int, piece: int, chunk: int) -> None:
        self._values: tuple[tuple[Any, str, Any], ...] = (
            (read_tensor, "_DIRECT", direct),
            (read_tensor, "WINDOW", window),
            (ckpt, "PART", piece),
            (WriteOptions, "chunk", chunk),
        )

    def __enter__(self) -> None:
        self._old = [(module, name, vars(module)[name]) for module, name, _ in self._values]
        for module, name, value in self._values:
            setattr(module, name, value)

    def __exit__(self, *_: object) -> None:
        for module, name, value in self._old:
            setattr(module, name, value)


def test_tensors_in_parts_are_read_and_written_in_parts(tmp_path: Path, monkeypatch: Any) -> None:
    arrays = {"w": random_array((40, 7), "float32", 0), "z": random_array((3,), "int8", 1)}
    write_ckpt(tmp_path / "a" / "x.ckpt", arrays, parts=5)
    monkeypatch.setattr(ckpt, "PART", 333)
    transform(TransformRequest(str(tmp_path / "a"), str(tmp_path / "b")))
    out = tmp_path / "b" / "rank_0" / "checkpoint_0.ckpt"
    assert out.read_bytes().count(b"Float32") == -(-40 * 7 * 4 // 333)
    assert all(same(found, arrays[name]) for name, found in read(out).items())


def test_little_memory_and_many_workers_change_nothing(tmp_path: Path) -> None:
    layout = TensorLayout((4,), ((), (0,)))
    array = random_array((1024, 4096), "float32", 3)
    write_ranks(tmp_path / "a", {"w": array}, [{"w": layout}])
    options = WriteOptions(memory=64 << 20, workers=5)
    assert options.chunk == max(1 << 20, (64 << 20) // 40)
    s = write_file(tmp_path / "s.ckpt", [{"w": layout}])
    transform(TransformRequest(str(tmp_path / "a"), str(tmp_path / "b"), s, options=options))
    assert same(read(tmp_path / "b" / "rank_0" / "checkpoint_0.ckpt")["w"], array)
