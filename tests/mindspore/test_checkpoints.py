"""Compare with MindSpore 2.10: the same operations write the same files."""

from __future__ import annotations

import random
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mindspore.parallel import unified_safetensors

import mindspore as ms
from mindspore import Parameter, Tensor
from paceline.checkpoint.inspect import differences
from paceline.checkpoint.source_checkpoint import open_checkpoint
from paceline.checkpoint.strategy.strategy import (
    Strategy,
    encode_strategy,
    read_strategy,
    read_strategy_directory,
)
from paceline.checkpoint.strategy.strategy_file import Operator, StrategyFile, encode
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.checkpoint.tensor_files import open_listing
from paceline.checkpoint.transform import TransformRequest, merge_lora, transform
from paceline.checkpoint.verify import verify
from support.checkpoint.making import NAMES, part, random_array, read, same, write_ranks, write_safetensors

Stages = list[dict[str, TensorLayout]]
SHAPES = {"w": (16, 16), "v": (16, 32), "cube": (8, 16, 8), "b": (32,)}
KINDS = {"w": "float32", "v": "bfloat16", "cube": "float16", "b": "int32"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))


def arrays(names: Mapping[str, object]) -> dict[str, Any]:
    """Values that MindSpore preserves: it converts bfloat16 through float32, which changes the bits of some NaNs."""
    made = {}
    for number, name in enumerate(names):
        base = np.random.default_rng(number).integers(-100, 100, SHAPES[name])
        made[name] = base.astype(random_array((1,), KINDS[name], 0).dtype)
    return made


def strategy_file(path: Path, stages: Stages, *, as_json: bool = False) -> str:
    path.write_bytes(encode_strategy(Strategy(tuple(stages)), merged=len(stages) > 1, as_json=as_json))
    return str(path)


def both(tmp_path: Path, source: Path, before: str | None, after: str | None, kind: str) -> list[Path]:
    """Files of MindSpore's transform_checkpoints, after ours were found to be the same."""
    ms.transform_checkpoints(str(source), str(tmp_path / "theirs"), "net_", before, after, output_format=kind)
    transform(TransformRequest(str(source), str(tmp_path / "ours"), before, after, prefix="net_"))
    made = sorted((tmp_path / "theirs").rglob(f"*.{kind}"))
    assert [p.relative_to(tmp_path / "theirs") for p in made] == [
        p.relative_to(tmp_path / "ours") for p in sorted((tmp_path / "ours").rglob(f"*.{kind}"))
    ]
    for path in made:
        assert_same_file(tmp_path / "ours" / path.relative_to(tmp_path / "theirs"), path)
    return made


def assert_same_file(ours: Path, theirs: Path) -> None:
    """Byte for byte; from a pipeline MindSpore takes stages in any order, so there tensor by tensor."""
    left, right = read(ours), read(theirs)
    assert set(left) == set(right)
    for name in right:
        assert same(left[name], right[name]), (theirs, name)
    if list(left) == list(right):
        assert ours.read_bytes() == theirs.read_bytes(), theirs


def flat(
    matrix: tuple[int, ...], cuts: Mapping[str, tuple[tuple[int, ...], ...]], opt: int = 0
) -> dict[str, TensorLayout]:
    made = {}
    for name, axes in cuts.items():
        plain = TensorLayout(matrix, axes)
        replicas = [axis for axis in plain.replica_axes if matrix[axis] > 1]
        count = prod(matrix[axis] for axis in replicas)
        shards = count if opt == -1 else opt
        if shards > 1 and replicas and count % shards == 0:
            plain = TensorLayout(matrix, axes, shards=shards, step=prod(matrix[max(replicas) + 1 :]))
        made[name] = plain
    return made


W, V, C, B = "w", "v", "cube", "b"
LAYOUTS: dict[str, Stages] = {
    "tp2": [flat((2,), {W: ((), (0,)), V: ((0,), ()), C: ((), (0,), ()), B: ((0,),)})],
    "tp4": [flat((4,), {W: ((), (0,)), V: ((0,), ()), C: ((), (), (0,)), B: ((),)})],
    "dp2tp2": [flat((2, 2), {W: ((), (1,)), V: ((1,), ()), C: ((1,), (0,), ()), B: ((),)})],
    "dp2tp2opt": [flat((2, 2), {W: ((1,), ()), V: ((), (1,)), C: ((), (1,), ()), B: ((),)}, opt=2)],
    "dp4opt4": [flat((4,), {W: ((), ()), V: ((), ()), C: ((), (), ()), B: ((),)}, opt=4)],
    "dp4tp2": [flat((4, 2), {W: ((), (1,)), V: ((1,), ()), C: ((), (), (1,)), B: ((1,),)})],
    "dp4tp2opt2": [flat((4, 2), {W: ((), (1,)), V: ((1,), ()), C: ((), (), (1,)), B: ((1,),)}, opt=2)],
    "nested": [flat((2, 2), {W: ((0, 1), ()), V: ((), (1, 0)), C: ((), (0, 1), ()), B: ((),)})],
    "nested3": [flat((2, 2, 2), {W: ((0, 1), (2,)), V: ((2,), (1,)), C: ((1,), (0,), (2,)), B: ((2,),)})],
    "pp2tp2": [flat((2,), {W: ((), (0,)), V: ((0,), ())}), flat((2,), {C: ((), (0,), ()), B: ((0,),), V: ((0,), ())})],
    "pp2dp2tp2": [
        flat((2, 2), {W: ((), (1,)), V: ((1,), ())}, opt=2),
        flat((2, 2), {C: ((), (1,), ()), B: ((),)}, opt=2),
    ],
}
PAIRS = [
    (None, "tp2"),
    (None, "dp2tp2"),
    (None, "dp2tp2opt"),
    (None, "dp4opt4"),
    (None, "nested"),
    (None, "nested3"),
    (None, "dp4tp2"),
    (None, "pp2tp2"),
    ("tp2", None),
    ("tp4", None),
    ("nested", None),
    ("dp2tp2opt", None),
    ("pp2tp2", None),
    ("tp2", "tp4"),
    ("tp4", "tp2"),
    ("dp2tp2", "tp4"),
    ("dp2tp2opt", "tp4"),
    ("dp4tp2", "dp2tp2opt"),
    ("dp4opt4", "tp2"),
    ("dp4tp2opt2", "tp2"),
    ("tp4", "nested3"),
    ("nested3", "dp2tp2"),
    ("pp2tp2", "tp2"),
    ("tp4", "pp2dp2tp2"),
    ("pp2dp2tp2", "tp2"),
    ("pp2tp2", "pp2dp2tp2"),
    ("dp2tp2", "dp2tp2opt"),
    ("dp4tp2", "dp4tp2opt2"),
]


@pytest.mark.parametrize("kind", ["ckpt", "safetensors"])
@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_transform_checkpoints(tmp_path: Path, before: str | None, after: str | None, kind: str) -> None:
    full: Stages = [{name: TensorLayout((1,), ((),) * len(shape)) for name, shape in SHAPES.items()}]
    start = LAYOUTS[before] if before else full
    made = arrays(SHAPES)
    source = write_ranks(tmp_path / "a", made, start, kind, global_step=np.array([7], np.int32))
    files = [strategy_file(tmp_path / f"{name}.ckpt", LAYOUTS[name]) if name else None for name in (before, after)]
    found = both(tmp_path, source, files[0], files[1], kind)
    target = LAYOUTS[after] if after else full
    devices = next(iter(target[0].values())).device_count
    assert len(found) == devices * len(target)
    for path in found:
        rank = int(path.stem.removeprefix("net_"))
        held = read(path)
        for name, layout in target[rank // devices].items():
            assert same(held[name], part(made[name], layout, rank % devices))


def test_random_layouts(tmp_path: Path) -> None:
    """Equal wherever MindSpore accepts the layouts; refusals are counted, so that the test cannot become empty."""
    chance = random.Random(8)
    agreed = refused = 0
    made = arrays(SHAPES)
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        before, after = (random_stage(chance) for _ in range(2))
        source = write_ranks(folder / "a", made, [before])
        a, b = strategy_file(folder / "a.ckpt", [before]), strategy_file(folder / "b.ckpt", [after])
        try:
            ms.transform_checkpoints(str(source), str(folder / "theirs"), "net_", a, b)
        except (ValueError, KeyError, IndexError):
            refused += 1
            continue
        transform(TransformRequest(str(source), str(folder / "ours"), a, b, prefix="net_"))
        for path in (folder / "theirs").rglob("*.ckpt"):
            ours = folder / "ours" / path.relative_to(folder / "theirs")
            assert path.read_bytes() == ours.read_bytes(), (before, after)
        agreed += 1
    assert agreed >= 20, f"{agreed} agreed, {refused} refused by MindSpore"


def random_stage(chance: random.Random) -> dict[str, TensorLayout]:
    matrix = chance.choice([(2,), (4,), (2, 2), (8,), (4, 2), (2, 4), (2, 2, 2)])
    made = {}
    for name, shape in SHAPES.items():
        axes: list[tuple[int, ...]] = [()] * len(shape)
        # In order, as MindSpore's own layouts are; with optimizer shards it mixes up others.
        used = sorted(chance.sample(range(len(matrix)), chance.randint(0, min(len(matrix), len(shape)))))
        for place, axis in zip(sorted(chance.sample(range(len(shape)), len(used))), used, strict=True):
            axes[place] = (axis,)
        made[name] = TensorLayout(matrix, tuple(axes))
    return flat_with_shards(made, chance.choice([0, 0, 2, -1]))


def flat_with_shards(stage: dict[str, TensorLayout], opt: int) -> dict[str, TensorLayout]:
    found = {}
    for name, layout in stage.items():
        made = flat(layout.devices, {name: layout.axes}, opt)[name]
        found[name] = made if SHAPES[name][0] % made.cuts[0] == 0 else layout
    return found


def test_json_strategies(tmp_path: Path) -> None:
    source = write_ranks(tmp_path / "a", arrays(SHAPES), LAYOUTS["tp4"])
    a = strategy_file(tmp_path / "a.json", LAYOUTS["tp4"], as_json=True)
    b = strategy_file(tmp_path / "b.json", LAYOUTS["tp2"], as_json=True)
    assert len(both(tmp_path, source, a, b, "ckpt")) == 2


@pytest.mark.parametrize("as_json", [False, True])
def test_merge_pipeline_strategys(tmp_path: Path, as_json: bool) -> None:
    kind = "json" if as_json else "ckpt"
    folder = tmp_path / "s"
    folder.mkdir()
    for rank in range(4):
        file = StrategyFile((Operator("MatMul-op0", rank // 2, ((2, 1),)),), LAYOUTS["pp2tp2"][rank // 2])
        (folder / f"strategy_rank_{rank}.{kind}").write_bytes(encode(file, as_json=as_json))
    ms.merge_pipeline_strategys(str(folder), str(tmp_path / f"theirs.{kind}"))
    ours, theirs = read_strategy_directory(str(folder)), read_strategy(str(tmp_path / f"theirs.{kind}"))
    assert theirs is not None
    assert [dict(stage) for stage in ours.stages] == [dict(stage) for stage in theirs.stages]
    # And MindSpore works with ours.
    (tmp_path / f"ours.{kind}").write_bytes(encode_strategy(ours, merged=True, as_json=as_json))
    source = write_ranks(tmp_path / "a", arrays(SHAPES), LAYOUTS["pp2tp2"])
    both(tmp_path, source, str(tmp_path / f"ours.{kind}"), None, "ckpt")


@pytest.mark.parametrize("once", [False, True])
def test_unified_safetensors(tmp_path: Path, once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # It waits while more than half of the memory is in use, by any process.
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"percent": 0})())
    stage = LAYOUTS["dp2tp2"]
    source = write_ranks(tmp_path / "a", arrays(SHAPES), stage, "safetensors", global_step=np.array([7], np.int32))
    if once:
        # remove_redundancy: of two replicas, the second has nothing.
        for rank, kept in ((2, ("cube",)), (3, ("cube",))):
            path = source / f"rank_{rank}" / f"net_{rank}.safetensors"
            write_safetensors(path, {k: v for k, v in read(path).items() if k in kept})
        for rank in range(4):
            path = source / f"rank_{rank}" / f"net_{rank}.safetensors"
            write_safetensors(path, read(path), {"format": "ms", "remove_redundancy": "True"})
    s = strategy_file(tmp_path / "s.ckpt", stage)
    unified_safetensors(str(source), s, str(tmp_path / "theirs"), merge_with_redundancy=not once)
    transform(TransformRequest(str(source), str(tmp_path / "ours"), s, format="safetensors"))
    with open_listing(str(tmp_path / "ours")) as ours, open_listing(str(tmp_path / "theirs")) as theirs:
        assert not list(differences(open_checkpoint(ours), open_checkpoint(theirs)))


def test_load_checkpoint_opens_our_files(tmp_path: Path) -> None:
    made = {name: random_array((3, 4), name, n) for n, name in enumerate(sorted(NAMES))}
    made["scalar"] = np.array(2.5, np.float32)
    write_safetensors(tmp_path / "x.safetensors", made)
    for kind in ("ckpt", "safetensors"):
        transform(
            TransformRequest(str(tmp_path / "x.safetensors"), str(tmp_path / kind), format=kind, crc=kind == "ckpt")
        )
        path = tmp_path / kind / "rank_0" / f"checkpoint_0.{kind}"
        found = ms.load_checkpoint(str(path), format=kind, crc_check=kind == "ckpt")
        assert set(found) == set(made)
        for name, array in made.items():
            raw = found[name].get_bytes()
            assert bytes(raw) == array.tobytes(), (kind, name)
            assert found[name].shape == array.shape


def test_zero_size_tensors_do_not_keep_mindspore_from_the_others(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "x.safetensors", {"empty": np.zeros((0, 4), np.float32), "w": np.ones(3, np.int8)})
    transform(TransformRequest(str(tmp_path / "x.safetensors"), str(tmp_path / "b"), format="ckpt"))
    found = ms.load_checkpoint(str(tmp_path / "b" / "rank_0" / "checkpoint_0.ckpt"))
    assert found["w"].asnumpy().tolist() == [1, 1, 1]


def test_files_saved_by_mindspore_are_read_and_checksums_agree(tmp_path: Path) -> None:
    params = [{"name": name, "data": Tensor(array)} for name, array in arrays({W: 0, C: 0, B: 0}).items()]
    ms.save_checkpoint(
        params, str(tmp_path / "x.ckpt"), crc_check=True, append_dict={"epoch": 3, "lr": 0.5, "note": "héllo"}
    )
    with open_listing(str(tmp_path / "x.ckpt")) as place:
        verdict = verify(place, None)
    assert (verdict.problems, verdict.checksums, verdict.tensors) == ([], 1, 6)
    transform(TransformRequest(str(tmp_path / "x.ckpt"), str(tmp_path / "b"), crc=True))
    assert (tmp_path / "b" / "rank_0" / "checkpoint_0.ckpt").read_bytes() == (tmp_path / "x.ckpt").read_bytes()


def test_checksums_of_safetensors_agree(tmp_path: Path) -> None:
    params = [{"name": name, "data": Tensor(array)} for name, array in arrays({W: 0, C: 0, B: 0}).items()]
    ms.save_checkpoint(params, str(tmp_path / "x.safetensors"), crc_check=True, format="safetensors")
    path = tmp_path / "x.safetensors"
    with open_listing(str(path)) as place:
        verdict = verify(place, None)
    assert (verdict.problems, verdict.checksums) == ([], 1)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with open_listing(str(path)) as place:
        assert "its checksum is" in verify(place, None).problems[0]


def test_int4_equals_mindspores(tmp_path: Path) -> None:
    held = Parameter(Tensor(np.arange(6, dtype=np.int8).reshape(2, 3), dtype=ms.qint4x2), name="q")
    for kind in ("ckpt", "safetensors"):
        ms.save_checkpoint([{"name": "q", "data": held}], str(tmp_path / f"x.{kind}"), format=kind)
        other = "safetensors" if kind == "ckpt" else "ckpt"
        transform(TransformRequest(str(tmp_path / f"x.{kind}"), str(tmp_path / other), format=other))
        found = ms.load_checkpoint(str(tmp_path / other / "rank_0" / f"checkpoint_0.{other}"), format=other)["q"]
        assert found.dtype == ms.qint4x2
        assert found.asnumpy().tobytes() == bytes(range(6))


def test_tensors_beyond_512_mib_are_split_like_mindspores(tmp_path: Path) -> None:
    array = np.zeros((513 << 20,), np.int8)
    array[::4096] = np.arange(len(array[::4096])) % 100
    ms.save_checkpoint([{"name": "w", "data": Tensor(array)}], str(tmp_path / "x.ckpt"))
    transform(TransformRequest(str(tmp_path / "x.ckpt"), str(tmp_path / "b")))
    ours = tmp_path / "b" / "rank_0" / "checkpoint_0.ckpt"
    assert ours.stat().st_size == (tmp_path / "x.ckpt").stat().st_size > array.nbytes
    with open_listing(str(ours)) as a, open_listing(str(tmp_path / "x.ckpt")) as b:
        left = open_checkpoint(a)
        assert len(left.parameters["w"].copies[0][1].stored.extents) == 2
        assert not list(differences(left, open_checkpoint(b)))


def test_merge_lora_equals_mindformers(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    made = {
        "wq.weight": generator.normal(size=(64, 48)).astype(np.float32),
        "wq.mindpet_delta_lora_a": generator.normal(size=(8, 48)).astype(np.float32),
        "wq.mindpet_delta_lora_b": generator.normal(size=(64, 8)).astype(np.float32),
    }
    write_safetensors(tmp_path / "x.safetensors", made)
    merge_lora(TransformRequest(str(tmp_path / "x.safetensors"), str(tmp_path / "b"), format="ckpt"), 0.5)
    ours = ms.load_checkpoint(str(tmp_path / "b" / "merged_lora.ckpt"))["wq.weight"].asnumpy()
    w, a, b = (Tensor(array) for array in made.values())
    theirs = ms.ops.add(w, ms.ops.mm(b, a) * 0.5).asnumpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_files_with_an_index_load_into_a_parallel_layout(tmp_path: Path) -> None:
    made = arrays({W: 0, C: 0})
    write_safetensors(tmp_path / "x.safetensors", made)
    unified = tmp_path / "unified"
    transform(TransformRequest(str(tmp_path / "x.safetensors"), str(unified), format="safetensors", shard_bytes=1024))
    stage = {name: LAYOUTS["tp2"][0][name] for name in made}
    s = strategy_file(tmp_path / "s.ckpt", [stage])
    ms.load_distributed_checkpoint(
        None,
        predict_strategy=s,
        format="safetensors",
        unified_safetensors_dir=str(unified),
        dst_safetensors_dir=str(tmp_path / "theirs"),
    )
    for rank in range(2):
        (path,) = (tmp_path / "theirs" / f"rank_{rank}").glob("*.safetensors")
        held = read(path)
        for name, layout in stage.items():
            assert same(held[name], part(made[name], layout, rank))
