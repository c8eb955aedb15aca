"""torch DCP (.distcp) and Hugging Face's safetensors, against torch's own writer and reader."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.checkpoint.checkpoint_content import Checkpoint
from paceline.checkpoint.formats import torch_dcp
from paceline.checkpoint.plan.read_tensor import read_tensor
from paceline.checkpoint.source_checkpoint import open_checkpoint
from paceline.checkpoint.strategy.strategy import encode_strategy
from paceline.checkpoint.strategy.strategy_spec import make_strategy, parse_rule, parse_spec
from paceline.checkpoint.tensor_files import open_listing
from paceline.checkpoint.transform import TransformRequest, convert, transform
from paceline.checkpoint.verify import verify
from paceline.core.errors import FormatError, PacelineError, UsageError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
_SHARDED = """
import sys, torch
import torch.distributed.checkpoint as dcp
from torch import distributed, nn
from torch.distributed.checkpoint import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
distributed.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 12), nn.ReLU(), nn.Linear(12, 7))
mesh = init_device_mesh("cpu", (2, distributed.get_world_size() // 2), mesh_dim_names=("dp", "tp"))
parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(4, 10)).sum().backward()
optimizer.step()
weights, moments = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optim": moments, "step": 17}, checkpoint_id=sys.argv[1] + "/dcp")
dcp.save(weights, storage_writer=HuggingFaceStorageWriter(sys.argv[1] + "/hf", save_distributed=True))
distributed.destroy_process_group()
"""


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What four ranks saved, fully sharded and tensor parallel: dcp/ with optimizer, hf/ of the weights."""
    where = tmp_path_factory.mktemp("sharded")
    script = where / "save.py"
    script.write_text(_SHARDED)
    command = [sys.executable, "-m", "paceline", "launch", "--ranks", "4", "--log-dir", str(where / "log")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, str(script), str(where)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return where


def _kinds() -> dict[str, Any]:
    """One tensor of every type and form that torch saves in its own way."""
    return {
        "model": {
            "a": torch.arange(60.0).reshape(6, 10),
            "bf16": torch.randn(7, 3).bfloat16(),
            "f8": torch.randn(3, 5).to(torch.float8_e4m3fn),
            "u16": torch.arange(5).to(torch.uint16),
            "complex": torch.randn(3, dtype=torch.complex64),
            "bool": torch.tensor([True, False]),
            "empty": torch.zeros(0, 3),
            "scalar": torch.tensor(3),
            "transposed": torch.arange(12.0).reshape(3, 4).t(),
        },
        "lr": 0.125,
        "groups": [{"betas": (0.9, 0.95)}],
    }


def _save(state: dict[str, Any], where: Path) -> Path:
    import torch.distributed.checkpoint as dcp

    dcp.save(state, checkpoint_id=where)
    return where


def _as_torch_reads(where: Path) -> dict[str, Any]:
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    single = where.parent / f"{where.name}.pt"
    dcp_to_torch_save(where, single)
    found: dict[str, Any] = torch.load(single, weights_only=False)
    return found


def _assert_equal(left: Any, right: Any) -> None:
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            _assert_equal(left[key], right[key])
    elif isinstance(left, torch.Tensor):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        a, b = (each.contiguous().reshape(-1).view(torch.uint8) for each in (left, right))
        assert torch.equal(a, b)
    else:
        assert left == right


def test_every_type_is_read_and_written_as_torch_does(tmp_path: Path) -> None:
    state = _kinds()
    source = _save(state, tmp_path / "source")
    convert(TransformRequest(str(source), str(tmp_path / "ours"), format="dcp"))
    _assert_equal(_as_torch_reads(tmp_path / "ours"), state)
    content = (tmp_path / "ours" / "__0_0.distcp").read_bytes()
    with open_listing(str(tmp_path / "ours")) as listing:
        index = torch_dcp.read(listing.read_all(".metadata", 1 << 20), "here")
        for tensor in index.tensors.values():
            for item in tensor.items:  # any zip tool finds the right checksums
                archive = zipfile.ZipFile(io.BytesIO(content[item.start : item.start + item.length]))
                assert archive.testzip() is None
        assert verify(listing, None).problems == []


def test_hugging_face_gets_one_level_of_names(tmp_path: Path) -> None:
    state = _kinds()
    source = _save(state, tmp_path / "source")
    request = TransformRequest(str(source), str(tmp_path / "hf"), format="huggingface", shard_bytes=200, below="model")
    done = convert(request)
    assert [note for note in done.notes if "not tensors" in note] == []
    index = json.loads((tmp_path / "hf" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(state["model"])
    for name in set(index["weight_map"].values()):
        head = (tmp_path / "hf" / name).read_bytes()
        assert json.loads(head[8 : 8 + int.from_bytes(head[:8], "little")])["__metadata__"] == {"format": "pt"}
    _equal_tensors(_open(tmp_path / "hf"), state["model"])
    with pytest.raises(UsageError, match="no entry is below 'weights'"):
        convert(TransformRequest(str(source), str(tmp_path / "none"), format="huggingface", below="weights"))
    done = convert(TransformRequest(str(source), str(tmp_path / "all"), format="huggingface"))
    assert "2 entries that are not tensors were left out: lr, groups.0.betas" in done.notes


def test_slices_of_two_meshes_any_layout_and_back(sharded: Path, tmp_path: Path) -> None:
    """Fully sharded and tensor parallel: to slices of two ranks, to full weights, to rank files; equal for torch."""
    wanted = _as_torch_reads(sharded / "dcp")
    assert wanted["model"]["0.weight"].shape == (12, 10) and wanted["step"] == 17
    with open_listing(str(sharded / "dcp")) as listing:
        rules = [parse_rule("*.0.weight: -,tp"), parse_rule("*.2.weight: -,tp")]
        strategy = make_strategy(parse_spec("tp=2"), rules, open_checkpoint(listing).tensors)
    (tmp_path / "tp2.ckpt").write_bytes(encode_strategy(strategy, merged=False, as_json=False))
    request = TransformRequest(
        str(sharded / "dcp"), str(tmp_path / "tp2"), target_strategy=str(tmp_path / "tp2.ckpt"), format="dcp"
    )
    transform(request)
    assert sorted(path.name for path in (tmp_path / "tp2").iterdir()) == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    _assert_equal(_as_torch_reads(tmp_path / "tp2"), wanted)
    transform(TransformRequest(str(tmp_path / "tp2"), str(tmp_path / "full"), format="dcp"))
    _assert_equal(_as_torch_reads(tmp_path / "full"), wanted)
    request = TransformRequest(
        str(sharded / "dcp"), str(tmp_path / "ranks"), target_strategy=str(tmp_path / "tp2.ckpt"), format="safetensors"
    )
    transform(request)
    request = TransformRequest(
        str(tmp_path / "ranks"), str(tmp_path / "again"), source_strategy=str(tmp_path / "tp2.ckpt"), format="dcp"
    )
    transform(request)
    _equal_tensors(_open(tmp_path / "again"), {f"model.{name}": value for name, value in wanted["model"].items()})


def test_safetensors_that_every_rank_saved_are_joined(sharded: Path) -> None:
    wanted = _as_torch_reads(sharded / "dcp")["model"]
    _equal_tensors(_open(sharded / "hf"), wanted)


def test_a_missing_file_is_noted_and_its_tensors_are_refused(sharded: Path, tmp_path: Path) -> None:
    shutil.copytree(sharded / "dcp", tmp_path / "dcp")
    (tmp_path / "dcp" / "__1_0.distcp").unlink()
    with open_listing(str(tmp_path / "dcp")) as listing:
        found = verify(listing, None)
        assert any("__1_0.distcp is missing" in note for note in found.notes)
        assert any("0.weight: no file holds" in problem for problem in found.problems)
    with pytest.raises(PacelineError, match="no file holds"):
        convert(TransformRequest(str(tmp_path / "dcp"), str(tmp_path / "full"), format="safetensors"))


def test_the_newest_of_numbered_checkpoints_is_used(tmp_path: Path) -> None:
    for step in (9, 10):
        _save({"w": torch.full((2,), float(step))}, tmp_path / f"step-{step}")
    with open_listing(str(tmp_path)) as listing:
        found = open_checkpoint(listing)
        assert found.notes == ["using step-10, the newest of 2 checkpoints"]
    (tmp_path / "step-9").rename(tmp_path / "optimizer_0")
    with pytest.raises(UsageError, match="several checkpoints"), open_listing(str(tmp_path)) as listing:
        open_checkpoint(listing)


class _Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch executed",)


def test_code_in_metadata_is_refused_and_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = _save({"w": torch.ones(2)}, tmp_path / "source")
    (source / ".metadata").write_bytes(pickle.dumps({"state": _Evil()}))
    with pytest.raises(FormatError, match=r"posix\.system is not allowed"):
        _open(source)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret.distcp"])
def test_files_outside_of_the_checkpoint_are_refused(tmp_path: Path, path: str) -> None:
    source = _save({"w": torch.ones(2)}, tmp_path / "source")
    text = (source / ".metadata").read_bytes()
    name = b"\x8c" + bytes([len(path)]) + path.encode()
    (source / ".metadata").write_bytes(_without_frames(text).replace(b"\x8c\x0c__0_0.distcp", name))
    with pytest.raises(FormatError, match="is no file of the checkpoint"):
        _open(source)


@pytest.mark.parametrize("at", range(0, 1000, 53))
def test_damaged_metadata_is_one_sentence_at_most(tmp_path: Path, at: int) -> None:
    source = _save(_kinds(), tmp_path / "source")
    text = bytearray((source / ".metadata").read_bytes())
    text[at % len(text)] ^= 0xFF
    (source / ".metadata").write_bytes(bytes(text))
    try:
        _open(source)
    except PacelineError as error:
        assert "\n" not in str(error)


def _without_frames(data: bytes) -> bytes:
    """A pickle of protocol 4 whose length may change."""
    assert data[2:3] == b"\x95"
    return data[:2] + data[11:]


def _open(where: Path) -> Checkpoint:
    with open_listing(str(where)) as listing:
        return open_checkpoint(listing)


def _equal_tensors(found: Checkpoint, wanted: dict[str, Any]) -> None:
    tensors = found.full_tensors()
    assert wanted.keys() <= tensors.keys()
    for name, value in wanted.items():
        planned = tensors[name]
        assert planned.shape == tuple(value.shape)
        expected = value.contiguous().reshape(-1).view(torch.uint8).numpy()
        assert np.array_equal(read_tensor(planned, 0, planned.bytes), expected), name
