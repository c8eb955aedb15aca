"""Strategy files: protobuf and JSON, per rank and per stage, merged, invalid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.checkpoint.strategy.strategy import Strategy, encode_strategy, read_strategy
from paceline.checkpoint.strategy.strategy_file import Operator, StrategyFile, decode, encode
from paceline.checkpoint.strategy.tensor_layout import LayoutError, TensorLayout
from paceline.core.errors import PacelineError

TP = TensorLayout((2, 2), ((1,), ()))
NESTED = TensorLayout((2, 2), ((0, 1), ()), shards=0)
OPT = TensorLayout((2, 2), ((1,), ()), shards=2, step=2)


def write(path: Path, stage: int, layouts: dict[str, TensorLayout], *, as_json: bool = False) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(encode(StrategyFile((Operator("MatMul", stage, ((2, 1),)),), layouts), as_json=as_json))


@pytest.mark.parametrize("as_json", [False, True])
def test_files_are_read_as_they_were_written(as_json: bool) -> None:
    layouts = {
        "w": TP,
        "n": NESTED,
        "o": OPT,
        "one-axis": TensorLayout((2, 2), ((0, 1),)),
        "scalar": TensorLayout((4,), ()),
    }
    file = StrategyFile((Operator("MatMul-op0", 3, ((2, 1), (1, 2))),), layouts)
    assert decode(encode(file, as_json=as_json), "x") == file


@pytest.mark.parametrize("as_json", [False, True])
def test_files_of_ranks_merge_by_stage(tmp_path: Path, as_json: bool) -> None:
    kind = "json" if as_json else "ckpt"
    for rank in range(8):
        name = f"layers-{rank // 4}.w"
        write(tmp_path / "s" / f"strategy_rank_{rank}.{kind}", rank // 4, {name: TP, "embed": OPT}, as_json=as_json)
    merged = read_strategy(str(tmp_path / "s"))
    assert merged is not None
    assert [set(stage) for stage in merged.stages] == [{"layers-0.w", "embed"}, {"layers-1.w", "embed"}]
    assert (merged.devices, merged.ranks) == (4, 8)
    data = encode_strategy(merged, merged=True, as_json=as_json)
    (tmp_path / "s" / f"merged_ckpt_strategy.{kind}").write_bytes(data)
    again = read_strategy(str(tmp_path / "s" / f"merged_ckpt_strategy.{kind}"))
    assert again is not None
    assert again.stages == merged.stages
    # A merged file next to its sources is ignored.
    beside = read_strategy(str(tmp_path / "s"))
    assert beside == merged


def test_a_missing_stage_is_named(tmp_path: Path) -> None:
    write(tmp_path / "s" / "a.ckpt", 0, {"w": TP})
    write(tmp_path / "s" / "b.ckpt", 2, {"v": TP})
    with pytest.raises(PacelineError, match="stage 1 is missing"):
        read_strategy(str(tmp_path / "s"))


def test_files_of_one_stage_that_disagree_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "s" / "a.ckpt", 0, {"w": TP})
    write(tmp_path / "s" / "b.ckpt", 0, {"w": NESTED})
    with pytest.raises(PacelineError, match=r"b\.ckpt: its layout of w in stage 0 differs from other files"):
        read_strategy(str(tmp_path / "s"))


def test_none_is_full_weights() -> None:
    assert read_strategy(None) is read_strategy("") is read_strategy("None") is None


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"{}",
        b"[]",
        b"\x08\x01",
        b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\xff" * 40,
        b"",
        json.dumps({"parallel_layout_item": {"w": {"dev_matrix": [2], "tensor_map": [3]}}}).encode(),
        json.dumps({"parallel_layout_item": {"w": {"dev_matrix": [0], "tensor_map": [-1]}}}).encode(),
        json.dumps({"parallel_layout_item": {"w": {"dev_matrix": ["a"], "tensor_map": [-1]}}}).encode(),
        json.dumps({"parallel_layout_item": {"w": {"dev_matrix": [2, 2], "tensor_map": [0, 0]}}}).encode(),
        json.dumps({"parallel_layout_item": {"w": {"dev_matrix": [2], "tensor_map": [0], "field": 3}}}).encode(),
        b'{"parallel_layout_item": ' + b"[" * 100_000,
    ],
)
def test_an_invalid_strategy_file_is_a_one_line_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.ckpt"
    path.write_bytes(content)
    with pytest.raises(PacelineError, match=r"bad\.ckpt: not a strategy file, or damaged") as said:
        read_strategy(str(path))
    assert "\n" not in str(said.value)


@given(st.binary(max_size=200))
def test_random_bytes_cause_an_error_at_most(data: bytes) -> None:
    try:
        decode(data, "x")
    except PacelineError:
        pass


def test_shapes_that_cannot_be_split_are_named() -> None:
    with pytest.raises(LayoutError, match="w: axis 0 of size 7 cannot be split into 2 equal slices"):
        TP.rank_slice("w", 0, (7, 4))
    with pytest.raises(LayoutError, match="w: has 1 axes, but 2 in the strategy"):
        TP.rank_slice("w", 0, (8,))
    with pytest.raises(LayoutError, match="w: 2 replicas cannot be divided into 3 optimizer shards"):
        TensorLayout((2, 2), ((1,), ()), shards=3, step=2).rank_slice("w", 0, (12, 4))


def test_several_stages_need_a_merged_file() -> None:
    with pytest.raises(PacelineError, match="merged"):
        encode_strategy(Strategy(({"w": TP}, {"v": TP})), merged=False, as_json=False)
