"""Missing, wrong, damaged or malicious input: a one-line error, and no partial file under a final name."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.checkpoint.formats.open_container import open_container
from paceline.checkpoint.strategy.strategy import Strategy, encode_strategy
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.checkpoint.tensor_files import LocalFile
from paceline.checkpoint.transform import TransformRequest, transform
from paceline.core.errors import PacelineError
from support.checkpoint.making import (
    field,
    random_array,
    read,
    same,
    value,
    varint,
    write_ckpt,
    write_ranks,
    write_safetensors,
)

COLUMNS = TensorLayout((4,), ((), (0,)))
PAIRS = TensorLayout((2, 2), ((), (1,)))
ARRAY = random_array((4, 8), "float32", 0)


def strategy(path: Path, *stages: dict[str, TensorLayout]) -> str:
    path.write_bytes(encode_strategy(Strategy(stages), merged=len(stages) > 1, as_json=False))
    return str(path)


def refused(tmp_path: Path, what: str, request: TransformRequest) -> str:
    with pytest.raises(PacelineError, match=what) as said:
        transform(request)
    assert "\n" not in str(said.value)
    target = Path(request.target)
    assert not [path for path in target.rglob("*") if path.is_file()]
    return str(said.value)


def test_a_missing_rank_is_named_with_its_slice(tmp_path: Path) -> None:
    source = write_ranks(tmp_path / "a", {"w": ARRAY}, [{"w": COLUMNS}])
    (source / "rank_2" / "net_2.ckpt").unlink()
    s = strategy(tmp_path / "s", {"w": COLUMNS})
    said = refused(tmp_path, "rank 2 is missing", TransformRequest(str(source), str(tmp_path / "b"), s))
    assert said.startswith("w: no file holds [0:4, 0:8]")


def test_a_missing_rank_with_a_replica_is_only_noted(tmp_path: Path) -> None:
    source = write_ranks(tmp_path / "a", {"w": ARRAY}, [{"w": PAIRS}])
    (source / "rank_2" / "net_2.ckpt").unlink()
    outcome = transform(TransformRequest(str(source), str(tmp_path / "b"), strategy(tmp_path / "s", {"w": PAIRS})))
    assert same(read(tmp_path / "b" / "rank_0" / "checkpoint_0.ckpt")["w"], ARRAY)
    assert outcome.notes == ["the checkpoint of rank 2 is missing: only slices that other ranks hold are available"]


def test_slices_saved_without_replicas_are_found_on_any_rank(tmp_path: Path) -> None:
    """remove_redundancy: only one replica's file holds each slice."""
    arrays = {"w": ARRAY, "v": random_array((4, 8), "float16", 1)}
    source = write_ranks(tmp_path / "a", arrays, [{"w": PAIRS, "v": PAIRS}], "safetensors")
    for rank, dropped in enumerate(["w", "v", "v", "w"]):
        path = source / f"rank_{rank}" / f"net_{rank}.safetensors"
        kept = {name: array for name, array in read(path).items() if name != dropped}
        write_safetensors(path, kept, {"format": "ms", "remove_redundancy": "True"})
    # Ranks 0 and 2 hold the same halves, and 1 and 3: each half of w and v is saved once.
    transform(TransformRequest(str(source), str(tmp_path / "b"), strategy(tmp_path / "s", {"w": PAIRS, "v": PAIRS})))
    out = read(tmp_path / "b" / "rank_0" / "checkpoint_0.safetensors")
    assert all(same(out[name], arrays[name]) for name in arrays)


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ({"other": COLUMNS}, "lists none of its tensors"),
        ({"w": TensorLayout((4,), ((0,), (), ()))}, "w: has 2 axes, but 3 in the strategy"),
        ({"w": TensorLayout((2,), ((), (0,)))}, "has rank 2, but the strategy has only 2 ranks"),
    ],
)
def test_a_strategy_of_another_run_is_refused(tmp_path: Path, layout: dict[str, TensorLayout], said: str) -> None:
    source = write_ranks(tmp_path / "a", {"w": ARRAY}, [{"w": COLUMNS}])
    refused(tmp_path, said, TransformRequest(str(source), str(tmp_path / "b"), strategy(tmp_path / "s", layout)))


def test_a_strategy_that_matches_by_chance_is_refused(tmp_path: Path) -> None:
    """Shapes agree with a pipeline's strategy and with one of four ranks; which rank holds what does not."""
    pipeline = [{"w": TensorLayout((2,), ((0,), ()))}, {"v": TensorLayout((2,), ((0,), ()))}]
    flat = {"w": TensorLayout((2, 2), ((1,), ())), "v": TensorLayout((2, 2), ((1,), ()))}
    arrays = {"w": ARRAY, "v": ARRAY}
    one, two = write_ranks(tmp_path / "a", arrays, pipeline), write_ranks(tmp_path / "b", arrays, [flat])
    wrong = TransformRequest(str(one), str(tmp_path / "c"), strategy(tmp_path / "s", flat))
    refused(tmp_path, r"net_0\.ckpt: v not found, which the strategy places on rank 0", wrong)
    wrong = TransformRequest(str(two), str(tmp_path / "c"), strategy(tmp_path / "t", *pipeline))
    refused(tmp_path, r"net_0\.ckpt: holds v, which the strategy does not place on stage 0", wrong)


def test_ckpt_files_without_replicas_need_the_option(tmp_path: Path) -> None:
    source = write_ranks(tmp_path / "a", {"w": ARRAY, "v": ARRAY}, [{"w": PAIRS, "v": PAIRS}])
    for rank, kept in ((2, "w"), (3, "w")):
        path = source / f"rank_{rank}" / f"net_{rank}.ckpt"
        write_ckpt(path, {kept: read(path)[kept]})
    s = strategy(tmp_path / "s", {"w": PAIRS, "v": PAIRS})
    refused(tmp_path, "v not found", TransformRequest(str(source), str(tmp_path / "b"), s))
    transform(TransformRequest(str(source), str(tmp_path / "b"), s, deduplicated=True))
    assert same(read(tmp_path / "b" / "rank_0" / "checkpoint_0.ckpt")["v"], ARRAY)


def test_a_target_that_does_not_divide_is_refused(tmp_path: Path) -> None:
    write_ckpt(tmp_path / "a" / "x.ckpt", {"w": random_array((6, 5), "float32", 0)})
    s = strategy(tmp_path / "s", {"w": COLUMNS})
    request = TransformRequest(str(tmp_path / "a"), str(tmp_path / "b"), None, s)
    refused(tmp_path, "w: axis 1 of size 5 cannot be split into 4 equal slices", request)


def test_ranks_without_a_strategy_are_refused(tmp_path: Path) -> None:
    source = write_ranks(tmp_path / "a", {"w": ARRAY}, [{"w": COLUMNS}])
    refused(tmp_path, "holds 4 ranks, but no source strategy", TransformRequest(str(source), str(tmp_path / "b")))


def test_ranks_that_disagree_about_a_shape_are_refused(tmp_path: Path) -> None:
    source = write_ranks(tmp_path / "a", {"w": ARRAY}, [{"w": COLUMNS}])
    write_ckpt(source / "rank_3" / "net_3.ckpt", {"w": random_array((4, 3), "float32", 0)})
    s = strategy(tmp_path / "s", {"w": COLUMNS})
    refused(
        tmp_path,
        r"net_3\.ckpt: the full shape of w would be Float32 \[4, 12\]",
        TransformRequest(str(source), str(tmp_path / "b"), s),
    )


def test_a_sharded_tensor_missing_from_the_source_strategy_is_refused(tmp_path: Path) -> None:
    source = write_ranks(tmp_path / "a", {"w": ARRAY}, [{"w": COLUMNS}], extra=ARRAY)
    s, t = strategy(tmp_path / "s", {"w": COLUMNS}), strategy(tmp_path / "t", {"w": COLUMNS, "extra": COLUMNS})
    refused(tmp_path, "extra: sharded by the target strategy", TransformRequest(str(source), str(tmp_path / "b"), s, t))


def test_the_newest_complete_checkpoint_is_selected_by_number(tmp_path: Path) -> None:
    for rank in range(2):
        for step, seed in (("2_1", 2), ("10_1", 10)):
            write_ckpt(tmp_path / "a" / f"rank_{rank}" / f"net-{step}.ckpt", {"w": random_array((4,), "int8", seed)})
    write_ckpt(tmp_path / "a" / "rank_0" / "net-11_1.ckpt", {"w": random_array((4,), "int8", 11)})
    s = strategy(tmp_path / "s", {"w": TensorLayout((2,), ((),))})
    outcome = transform(TransformRequest(str(tmp_path / "a"), str(tmp_path / "b"), s))
    assert same(read(tmp_path / "b" / "rank_0" / "checkpoint_0.ckpt")["w"], random_array((4,), "int8", 10))
    assert "using checkpoint 10_1: newer ones are incomplete" in outcome.notes[0]
    transform(TransformRequest(str(tmp_path / "a"), str(tmp_path / "c"), s, step="2_1"))
    assert same(read(tmp_path / "c" / "rank_0" / "checkpoint_0.ckpt")["w"], random_array((4,), "int8", 2))
    refused(
        tmp_path,
        "rank 1: checkpoint 11_1 not found",
        TransformRequest(str(tmp_path / "a"), str(tmp_path / "d"), s, step="11_1"),
    )


def test_zero_size_and_scalar_tensors_and_text_survive(tmp_path: Path) -> None:
    arrays = {"empty": np.zeros((0, 4), np.float32), "none": np.zeros((0,), np.int8), "one": np.array(3.5, np.float32)}
    text = value("note", (0,), "str", "héllo".encode("utf-32-le"))
    write_ckpt(tmp_path / "a" / "x.ckpt", arrays, extra=text)
    transform(TransformRequest(str(tmp_path / "a"), str(tmp_path / "b")))
    assert (tmp_path / "b" / "rank_0" / "checkpoint_0.ckpt").read_bytes() == (tmp_path / "a" / "x.ckpt").read_bytes()
    outcome = transform(TransformRequest(str(tmp_path / "a"), str(tmp_path / "c"), format="safetensors"))
    found = read(tmp_path / "c" / "rank_0" / "checkpoint_0.safetensors")
    assert set(found) == set(arrays)
    assert all(same(found[name], arrays[name]) for name in arrays)
    assert outcome.notes == ["note was left out: safetensors cannot store text"]


def test_int4_keeps_its_name_between_formats(tmp_path: Path) -> None:
    (tmp_path / "x.ckpt").write_bytes(value("q", (2, 3), "Int4", bytes(range(6))))
    transform(TransformRequest(str(tmp_path / "x.ckpt"), str(tmp_path / "b"), format="safetensors"))
    made = tmp_path / "b" / "rank_0" / "checkpoint_0.safetensors"
    assert json.loads(made.read_bytes()[8:].split(b"}}")[0] + b"}}")["__metadata__"]["q"] == "Int4"
    transform(TransformRequest(str(made), str(tmp_path / "c"), format="ckpt"))
    assert (tmp_path / "c" / "rank_0" / "checkpoint_0.ckpt").read_bytes() == (tmp_path / "x.ckpt").read_bytes()


def test_a_wrong_checksum_is_reported_by_verify_only(tmp_path: Path) -> None:
    body = value("w", (4,), "Int8", b"abcd")
    right = b"crc_num" + zlib.crc32(body).to_bytes(10, "big")
    (tmp_path / "x.ckpt").write_bytes(body + right)
    transform(TransformRequest(str(tmp_path / "x.ckpt"), str(tmp_path / "b"), crc=True))
    assert (tmp_path / "b" / "rank_0" / "checkpoint_0.ckpt").read_bytes() == body + right


# -- damaged files ---------------------------------------------------------------------------------------------------

GOOD = value("w", (2, 2), "Float32", bytes(16)) + value("v", (3,), "Int8", b"abc")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.ckpt", GOOD[:-1], r"declares [\d,]+ bytes, but only"),
        ("a.ckpt", GOOD[:5], r"declares [\d,]+ bytes, but only"),
        ("a.ckpt", b"", "empty file"),
        ("a.ckpt", b"\x0a" + varint(1 << 62) + b"xxxx", r"byte 10 declares [\d,]+ bytes"),
        ("a.ckpt", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "invalid varint"),
        ("a.ckpt", GOOD + value("w", (2, 2), "Float32", bytes(16)), "w appears twice"),
        ("a.ckpt", value("w", (2, 3), "Float32", bytes(16)), "has 16 bytes"),
        ("a.ckpt", value("w", (1 << 40, 1 << 40), "Float32", bytes(16)), "has 16 bytes"),
        ("a.ckpt", value("w", (-1,), "Float32", bytes(16)), "a tensor of type"),
        ("a.ckpt", value("w", (2,), "Evil", bytes(16)), "a tensor of type 'Evil'"),
        ("a.ckpt", field(1, field(1, b"m") + field(3, b"")), "map tensors are not supported"),
        ("a.ckpt", bytes(range(16, 80)), "encrypted files cannot be read"),
        ("a.safetensors", b"\xff" * 8, "its header declares"),
        ("a.safetensors", struct.pack("<Q", 5) + b"{bad}", "its header cannot be read"),
        ("a.safetensors", b"\x01", "too short for a safetensors file"),
        ("a.pt", pickle.dumps({"w": 1}), "plain pickle files are not read"),
    ],
)
def test_damage_is_reported_in_one_line_with_the_file(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    whole = refused(tmp_path, said, TransformRequest(str(tmp_path / name), str(tmp_path / "b")))
    assert name in whole


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"w": ("F32", [2], [0, 8]), "v": ("F32", [2], [4, 12])}, "belongs to two tensors"),
        ({"w": ("F32", [2], [0, 8])}, "bytes at its end belong to no tensor"),
        ({"w": ("F32", [2], [4, 12])}, "belongs to no tensor"),
        ({"w": ("F32", [4], [0, 16])}, "w ends at byte"),
        ({"w": ("F32", [-2], [0, -8])}, "w: bytes"),
        ({"w": ("F4", [2], [0, 12])}, "unknown element type F4"),
        ({"w": ("F32", "x", [0, 12])}, "its header cannot be read"),
    ],
)
def test_safetensors_headers_are_checked(
    tmp_path: Path, entries: dict[str, tuple[str, object, object]], said: str
) -> None:
    head = {name: {"dtype": d, "shape": s, "data_offsets": o} for name, (d, s, o) in entries.items()}
    text = json.dumps(head).encode()
    (tmp_path / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(12))
    refused(tmp_path, said, TransformRequest(str(tmp_path / "a.safetensors"), str(tmp_path / "b")))


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.integers(0, len(GOOD) - 1), st.binary(max_size=3), st.sampled_from(["ckpt", "safetensors", "pt"]))
def test_changed_bytes_cause_an_error_at_most(tmp_path: Path, at: int, put: bytes, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    if kind == "ckpt":
        path.write_bytes(GOOD)
    elif kind == "safetensors":
        write_safetensors(path, {"w": ARRAY})
    else:
        _write_torch(path, pickle.dumps({}))
    data = bytearray(path.read_bytes())
    data[at : at + len(put)] = put
    path.write_bytes(data)
    try:
        open_container(LocalFile(path))
    except PacelineError as error:
        assert "\n" not in str(error)


def _write_torch(path: Path, data: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", data)


class _Runs:
    def __init__(self, act: Callable[..., object], *arguments: object) -> None:
        self._act, self._arguments = act, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self._act, self._arguments


def test_torch_files_with_code_are_refused_and_not_executed(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    _write_torch(tmp_path / "a.pt", pickle.dumps({"w": _Runs(Path.touch, mark)}))
    refused(
        tmp_path, "is not allowed in a file of weights", TransformRequest(str(tmp_path / "a.pt"), str(tmp_path / "b"))
    )
    assert not mark.exists()
    _write_torch(tmp_path / "a.pt", b"\x80\x02}r\xff\xff\xff\x7f.")
    refused(tmp_path, "memo index too large", TransformRequest(str(tmp_path / "a.pt"), str(tmp_path / "b")))
