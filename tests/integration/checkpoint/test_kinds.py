"""Other checkpoint formats: torch files, sharded safetensors with an index, MindFormers 2.0, LoRA."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.checkpoint.source_checkpoint import open_checkpoint
from paceline.checkpoint.strategy.strategy import Strategy, encode_strategy
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.checkpoint.tensor_files import open_listing
from paceline.checkpoint.transform import TransformRequest, convert, merge_lora, transform
from paceline.core.errors import PacelineError, UsageError
from support.checkpoint.making import (
    BFLOAT16,
    part,
    random_array,
    read,
    same,
    write_ckpt,
    write_ranks,
    write_safetensors,
)

TP = TensorLayout((2, 2), ((1,), ()))
ARRAYS = {"w": random_array((8, 6), "float32", 0), "v": random_array((4, 2), "float16", 1)}


def strategy(path: Path, *stages: dict[str, TensorLayout]) -> str:
    path.write_bytes(encode_strategy(Strategy(stages), merged=len(stages) > 1, as_json=False))
    return str(path)


def test_torch_files_are_read_in_place(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(60, dtype=torch.float32).reshape(6, 10)
    state = {
        "plain": base,
        "transposed": base.t(),
        "view": base[2:4, 3:7],
        "half": base.to(torch.bfloat16),
        "flag": torch.tensor(True),
        "empty": torch.zeros(0, 3),
        "layer": torch.nn.Parameter(base * 2),
    }
    torch.save({"model": state, "step": 7}, tmp_path / "x.pt")
    convert(TransformRequest(str(tmp_path / "x.pt"), str(tmp_path / "b"), format="safetensors"))
    found = read(tmp_path / "b" / "x.safetensors")
    assert set(found) == {f"model.{name}" for name in state}
    for name, tensor in state.items():
        wanted = tensor.detach().contiguous()
        raw = (
            wanted.view(torch.uint8).numpy().tobytes() if wanted.numel() and wanted.dim() else wanted.numpy().tobytes()
        )
        assert found[f"model.{name}"].tobytes() == raw, name
        assert found[f"model.{name}"].shape == tuple(tensor.shape)


def test_full_weights_in_several_files_with_an_index(tmp_path: Path) -> None:
    arrays = {f"layers.{i}.w": random_array((16, 16), "float32", i) for i in range(5)}
    write_ckpt(tmp_path / "x.ckpt", arrays)
    transform(TransformRequest(str(tmp_path / "x.ckpt"), str(tmp_path / "b"), format="safetensors", shard_bytes=2048))
    index = json.loads((tmp_path / "b" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 5 * 1024
    assert sorted(set(index["weight_map"].values())) == [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    transform(TransformRequest(str(tmp_path / "b"), str(tmp_path / "c"), format="ckpt"))
    back = read(tmp_path / "c" / "rank_0" / "checkpoint_0.ckpt")
    assert all(same(back[name], arrays[name]) for name in arrays)
    (tmp_path / "b" / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(PacelineError, match=r"lists model-00002-of-00003\.safetensors, which was not found"):
        transform(TransformRequest(str(tmp_path / "b"), str(tmp_path / "d")))


def test_convert_keeps_every_rank_as_it_is(tmp_path: Path) -> None:
    source = write_ranks(tmp_path / "a", ARRAYS, [{"w": TP, "v": TP}], step=np.array(3, np.int32))
    convert(TransformRequest(str(source), str(tmp_path / "b"), format="safetensors"))
    convert(TransformRequest(str(tmp_path / "b"), str(tmp_path / "c"), format="ckpt"))
    for path in source.rglob("*.ckpt"):
        back = read(tmp_path / "c" / path.relative_to(source))
        was = read(path)
        assert set(back) == set(was)
        assert all(same(back[name], was[name]) for name in was)


def test_two_checkpoints_in_one_directory_are_not_mixed(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "a" / "one.safetensors", ARRAYS)
    write_safetensors(tmp_path / "a" / "two.safetensors", ARRAYS)
    with pytest.raises(PacelineError, match="another file also holds w"):
        transform(TransformRequest(str(tmp_path / "a"), str(tmp_path / "b")))


# -- MindFormers -----------------------------------------------------------------------------------------------------


def write_version_two(root: Path, step: int) -> Path:
    """As MindFormers 2.1 writes it: a slice is identified by its number in the grid."""
    folder = root / f"iteration_{step:08d}"
    meta: dict[str, Any] = {"state_dict_metadata": {}, "storage_data": {}}
    held: dict[int, dict[str, Any]] = {rank: {} for rank in range(4)}
    layout = TensorLayout((2, 2), ((1,), (0,)))  # w: rows by the inner axis, columns by the outer one
    for name, cut in (("w", layout), ("v", TensorLayout((2, 2), ((), ())))):
        array = ARRAYS[name]
        pieces = {}
        for rank in range(4):
            held[rank][name] = part(array, cut, rank)
            number = 0
            if name == "w":
                number = (rank % 2) * 2 + rank // 2
            pieces.setdefault(number, []).append(rank)
        local = held[0][name].shape
        meta["state_dict_metadata"][name] = {
            "properties": {"dtype": "Float32", "replica_id": 0, "allow_shape_mismatch": False, "allow_to_save": True},
            "global_shape": list(array.shape),
            "axis_fragmentations": [2, 2] if name == "w" else [1, 1],
            "layout": None,
            "chunk": [{"global_offset": [number], "local_shape": list(local)} for number in pieces],
        }
        for number, ranks in pieces.items():
            meta["storage_data"][str((name, (number,)))] = [
                {"file_name": f"net-model-{rank:07d}-0000004.safetensors", "storage_rank": rank, "rank_group": ranks}
                for rank in ranks
            ]
    for rank, arrays in held.items():
        write_safetensors(folder / f"net-model-{rank:07d}-0000004.safetensors", arrays)
    (folder / "metadata.json").write_text(json.dumps(meta))
    (folder / "common.json").write_text('{"global_step": 7}')
    return folder


def test_mindformers_v2_is_read_by_its_metadata(tmp_path: Path) -> None:
    write_version_two(tmp_path / "a", 5)
    write_version_two(tmp_path / "a", 7)
    (tmp_path / "a" / "latest_checkpointed_iteration.txt").write_text("7")
    transform(TransformRequest(str(tmp_path / "a"), str(tmp_path / "b"), format="ckpt"))
    found = read(tmp_path / "b" / "rank_0" / "checkpoint_0.ckpt")
    assert all(same(found[name], array) for name, array in ARRAYS.items())
    (tmp_path / "a" / "latest_checkpointed_iteration.txt").write_text("9")
    with pytest.raises(PacelineError, match="names iteration_00000009"):
        transform(TransformRequest(str(tmp_path / "a"), str(tmp_path / "c")))


def test_mindformers_v2_needs_every_slice_once(tmp_path: Path) -> None:
    folder = write_version_two(tmp_path / "a", 7)
    (folder / "net-model-0000001-0000004.safetensors").unlink()
    with pytest.raises(PacelineError, match=r"w: no file holds \[0:8, 0:6\]"):
        transform(TransformRequest(str(folder), str(tmp_path / "b")))


def test_mindformers_v2_round_trip(tmp_path: Path) -> None:
    moments = {f"adam_m.{name}": array for name, array in ARRAYS.items()}
    write_ckpt(tmp_path / "x.ckpt", {**ARRAYS, **moments})
    names = dict.fromkeys((*ARRAYS, *moments), TP)
    target = strategy(tmp_path / "t.ckpt", names)
    made = tmp_path / "b" / "iteration_00000007"
    transform(TransformRequest(str(tmp_path / "x.ckpt"), str(made), None, target, format="mindformers", prefix="net"))
    assert {"common.json", "metadata.json"} < {path.name for path in made.iterdir()}
    assert len(list(made.glob("net-model-*"))) == 4
    assert len(list(made.glob("net-opt-*"))) == 4
    meta = json.loads((made / "metadata.json").read_text())
    assert meta["state_dict_metadata"]["w"]["axis_fragmentations"] == [2, 1]
    assert meta["state_dict_metadata"]["w"]["layout"]["tensor_map"] == [0, -1]
    assert [each["storage_rank"] for each in meta["storage_data"]["('w', (1,))"]] == [1, 3]
    with open_listing(str(tmp_path / "b")) as place:
        assert open_checkpoint(place).parameters["w"].layout == TP
    transform(TransformRequest(str(tmp_path / "b"), str(tmp_path / "c"), format="ckpt"))
    found = read(tmp_path / "c" / "rank_0" / "checkpoint_0.ckpt")
    assert all(same(found[name], array) for name, array in {**ARRAYS, **moments}.items())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"state_dict_metadata": {"w": {}}, "storage_data": {}}',
        '{"state_dict_metadata": {}, "storage_data": {"__import__(1)": []}}',
    ],
)
def test_invalid_metadata_is_a_one_line_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "metadata.json").write_text(text)
    with pytest.raises(PacelineError, match=r"metadata\.json: cannot be read"):
        transform(TransformRequest(str(tmp_path), str(tmp_path / "b")))


# -- LoRA ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "tolerance"), [("float32", 1e-6), ("float16", 2e-3), ("bfloat16", 2e-2)])
def test_lora_is_added_to_its_weights(tmp_path: Path, kind: str, tolerance: float) -> None:
    generator = np.random.default_rng(0)
    dtype = BFLOAT16 if kind == "bfloat16" else np.dtype(kind)
    arrays = {
        "layers.0.wq.weight": generator.normal(size=(12, 8)).astype(dtype),
        "layers.0.wq.mindpet_delta_lora_a": generator.normal(size=(2, 8)).astype(dtype),
        "layers.0.wq.mindpet_delta_lora_b": generator.normal(size=(12, 2)).astype(dtype),
        "adam_m.layers.0.wq.mindpet_delta_lora_a": generator.normal(size=(2, 8)).astype(dtype),
        "norm": generator.normal(size=(8,)).astype(dtype),
    }
    cuts = {"layers.0.wq.weight": TP, "layers.0.wq.mindpet_delta_lora_b": TP}
    whole = {name: TensorLayout((2, 2), ((),) * array.ndim) for name, array in arrays.items()}
    stage = {**whole, **cuts}
    source = write_ranks(tmp_path / "a", arrays, [stage])
    merge_lora(TransformRequest(str(source), str(tmp_path / "b"), strategy(tmp_path / "s.ckpt", stage)), 1.5)
    found = read(tmp_path / "b" / "merged_lora.ckpt")
    assert set(found) == {"layers.0.wq.weight", "norm"}
    a, b = (arrays[f"layers.0.wq.mindpet_delta_lora_{which}"].astype(np.float64) for which in "ab")
    wanted = arrays["layers.0.wq.weight"].astype(np.float64) + 1.5 * b @ a
    got = found["layers.0.wq.weight"].astype(np.float64)
    assert found["layers.0.wq.weight"].dtype == dtype
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)
    assert same(found["norm"], arrays["norm"])


def test_lora_in_small_chunks_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = {
        "q.weight": random_array((9, 7), "int8", 1).astype(np.float32),
        "q.lora_A.weight": random_array((3, 7), "int8", 2).astype(np.float32),
        "q.lora_B.weight": random_array((9, 3), "int8", 3).astype(np.float32),
    }
    write_safetensors(tmp_path / "x.safetensors", arrays)
    monkeypatch.setattr("paceline.checkpoint.reshard.WriteOptions.chunk", 37)
    merge_lora(TransformRequest(str(tmp_path / "x.safetensors"), str(tmp_path / "b")), 2.0)
    wanted = arrays["q.weight"] + 2 * arrays["q.lora_B.weight"] @ arrays["q.lora_A.weight"]
    assert same(read(tmp_path / "b" / "merged_lora.safetensors")["q.weight"], wanted)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"w": (2, 2)}, "no LoRA weights"),
        ({"w_lora_a": (1, 2), "w_lora_b": (2, 1)}, "w not found in the checkpoint"),
        ({"w": (2, 2), "w_lora_a": (1, 2)}, "w_lora_b not found in the checkpoint"),
        ({"w": (2, 3), "w_lora_a": (1, 2), "w_lora_b": (2, 1)}, "cannot be added to"),
    ],
)
def test_lora_without_matching_weights_is_refused(tmp_path: Path, names: dict[str, tuple[int, ...]], said: str) -> None:
    write_ckpt(tmp_path / "x.ckpt", {name: np.ones(shape, np.float32) for name, shape in names.items()})
    with pytest.raises(PacelineError, match=said):
        merge_lora(TransformRequest(str(tmp_path / "x.ckpt"), str(tmp_path / "b")), 1.0)


def test_a_scale_of_nan_is_refused(tmp_path: Path) -> None:
    write_ckpt(tmp_path / "x.ckpt", {"w": np.ones((2, 2), np.float32)})
    with pytest.raises(UsageError, match="invalid LoRA scale nan"):
        merge_lora(TransformRequest(str(tmp_path / "x.ckpt"), str(tmp_path / "b")), float("nan"))
