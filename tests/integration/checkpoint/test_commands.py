"""paceline checkpoint: output and exit codes of the commands."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.checkpoint.strategy.strategy import read_strategy
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.cli import main as cli
from paceline.cli.checkpoint import checkpoint
from support.checkpoint.making import part, random_array, read, same, value, write_ckpt, write_ranks

ARRAYS = {
    "embed.weight": random_array((8, 4), "float32", 0),
    "layers.0.wq.weight": random_array((8, 4), "bfloat16", 1),
    "layers.0.wo.weight": random_array((4, 8), "bfloat16", 2),
    "layers.1.wq.weight": random_array((8, 4), "bfloat16", 3),
    "layers.1.wo.weight": random_array((4, 8), "bfloat16", 4),
    "head.weight": random_array((8, 4), "float32", 5),
}
RULES = ["*.wq.weight: tp,-", "*.wo.weight: -,tp", "embed.*: tp,- @0", "head.*: @1"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["paceline", "checkpoint", *map(str, words)])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def described(run: Any, tmp_path: Path, text: str, like: Path, *rules: str) -> Path:
    out = tmp_path / f"{re.sub(r'[^a-z0-9]', '', text)}.ckpt"
    words = [word for rule in rules for word in ("--rule", rule)]
    code, said, err = run("strategy", text, "--like", like, "-o", out, *words)
    assert (code, err) == (0, ""), err
    assert str(out) in said
    return out


def test_strategy_transform_verify_and_compare_without_a_saved_strategy(run: Any, tmp_path: Path) -> None:
    full = write_ckpt(tmp_path / "full" / "x.ckpt", ARRAYS).parent
    pipeline = described(run, tmp_path, "dp=2,tp=2,pp=2", full, *RULES)
    code, out, err = run(
        "transform",
        "--src_ckpt_dir",
        full,
        "--dst_ckpt_dir",
        tmp_path / "pp",
        "--dst_ckpt_strategy",
        pipeline,
        "--src_ckpt_strategy",
        "None",
    )
    assert (code, err) == (0, "")
    assert "8 files" in out
    rank3 = read(tmp_path / "pp" / "rank_3" / "checkpoint_3.ckpt")
    assert set(rank3) == {"embed.weight", "layers.0.wq.weight", "layers.0.wo.weight"}
    assert same(rank3["layers.0.wo.weight"], ARRAYS["layers.0.wo.weight"][:, 4:])

    # The same from the ranks' own files: stages follow from the ranks that hold a parameter.
    again = described(run, tmp_path, "dp=2,tp=2,pp=2", tmp_path / "pp", *RULES[:2], "embed.*: tp,-")
    assert read_strategy(str(again)) == read_strategy(str(pipeline))

    assert run("verify", tmp_path / "pp", "--strategy", pipeline)[0] == 0
    code, out, _ = run("inspect", full, tmp_path / "pp", "--other-strategy", pipeline)
    assert (code, out) == (0, "no difference, bit for bit\n")
    code, out, _ = run("inspect", tmp_path / "pp", "--strategy", pipeline)
    assert re.search(r"embed\.weight +Float32 +\[8, 4\] +0\.000 +2×1 +0-3", out)
    assert "ckpt · 8 ranks · 6 tensors" in out
    told = json.loads(run("inspect", tmp_path / "pp", "--strategy", pipeline, "--json")[1])
    assert told["tensors"][0]["ranks"]["1"] == {"start": [4, 0], "shape": [4, 4]}


def test_strategy_with_optimizer_shards(run: Any, tmp_path: Path) -> None:
    arrays = {
        **ARRAYS,
        **{f"adam_m.{name}": array for name, array in ARRAYS.items()},
        "bias": random_array((3,), "int8", 9),
    }
    full = write_ckpt(tmp_path / "full" / "x.ckpt", arrays).parent
    made = read_strategy(str(described(run, tmp_path, "dp=4,tp=2,opt", full, "*.wq.weight: tp,-")))
    assert made is not None
    assert made.stages[0]["adam_m.layers.0.wq.weight"] == TensorLayout((4, 2), ((1,), ()), shards=4, step=2)
    assert made.stages[0]["bias"].shard_count == 1
    assert same(part(ARRAYS["head.weight"], made.stages[0]["head.weight"], 5), ARRAYS["head.weight"][5:6])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["dp=x"], "invalid layout spec: dp=x"),
        (["dp=2,dp=2"], "invalid layout spec: dp appears twice"),
        (["dp=2", "--rule", "no colon"], "invalid rule: no colon"),
        (["dp=2", "--rule", "*.wq.weight: tp,-"], "unknown device axis tp"),
        (["tp=2", "--rule", "*.wq.weight: tp"], "layers.0.wq.weight: has 2 axes"),
        (["tp=3", "--rule", "*.wq.weight: tp,-"], "axis 0 of size 8 cannot be split into 3 equal slices"),
        (["tp=2", "--rule", "nothing: tp,-"], "rule nothing matches no parameter"),
        (["pp=2"], "pipeline stage unknown for embed.weight, head.weight"),
        (["pp=3", "--rule", "embed*: @0", "--rule", "head*: @2"], "2 layers cannot be split into 3 equal stages"),
        (["pp=2", "--rule", "embed*: @0", "--rule", "head*: @2"], "head.weight: stage 2 does not exist"),
    ],
)
def test_invalid_layout_specs_are_one_line(run: Any, tmp_path: Path, words: list[str], said: str) -> None:
    full = write_ckpt(tmp_path / "full" / "x.ckpt", ARRAYS).parent
    code, _, err = run("strategy", *words, "--like", full, "-o", tmp_path / "s.ckpt")
    assert code in (1, 2)
    assert err.startswith("paceline: ") and said in err
    assert not (tmp_path / "s.ckpt").exists()


def test_inspect_reports_differences(run: Any, tmp_path: Path) -> None:
    changed = {**ARRAYS, "head.weight": ARRAYS["head.weight"].copy(), "new": random_array((2,), "int8", 0)}
    changed["head.weight"][2, 1] += 1
    del changed["embed.weight"]
    a, b = write_ckpt(tmp_path / "a.ckpt", ARRAYS), write_ckpt(tmp_path / "b.ckpt", changed)
    code, out, _ = run("inspect", a, b)
    assert code == 1
    assert f"embed.weight: only in {tmp_path}" in out and "new: only in" in out
    assert "head.weight: 1 of 32 elements differ" in out and "the first at [2, 1]" in out
    assert "3 tensors differ" in out
    assert len(json.loads(run("inspect", a, b, "--json")[1])) == 3


def test_verify_reports_all_problems(run: Any, tmp_path: Path) -> None:
    pairs = TensorLayout((2, 2), ((1,), ()))
    source = write_ranks(tmp_path / "a", {"w": random_array((4, 4), "float32", 0)}, [{"w": pairs}])
    from paceline.checkpoint.strategy.strategy import Strategy, encode_strategy

    (tmp_path / "s").write_bytes(encode_strategy(Strategy(({"w": pairs, "grad": pairs},)), merged=False, as_json=False))
    code, out, err = run("verify", source, "--strategy", tmp_path / "s")
    assert (code, out) == (0, "4 files, 4 tensors, 0.0 MB; 0 checksums and 2 replicas compared\n")
    assert "note:    the strategy also lists grad, which no file holds" in err

    write_ckpt(source / "rank_2" / "net_2.ckpt", {"w": random_array((2, 4), "float32", 9)})
    body = (source / "rank_3" / "net_3.ckpt").read_bytes()
    (source / "rank_3" / "net_3.ckpt").write_bytes(body + b"crc_num" + bytes(10))
    code, _, err = run("verify", source, "--strategy", tmp_path / "s")
    assert code == 1
    assert "ranks 0 and 2 should hold the same [0:2, 0:4], but they differ" in err
    assert "net_3.ckpt: damaged: its checksum is" in err

    for rank in (0, 1):
        (source / f"rank_{rank}" / f"net_{rank}.ckpt").write_bytes(body[:-3])
    code, _, err = run("verify", source, "--strategy", tmp_path / "s", "--json")
    assert "net_0.ckpt: damaged" in err and "net_1.ckpt: damaged" in err


def test_merge_strategy_and_lora_and_convert(run: Any, tmp_path: Path) -> None:
    full = write_ckpt(tmp_path / "full" / "x.ckpt", ARRAYS).parent
    described(run, tmp_path, "dp=2,tp=2,pp=2", full, *RULES)
    (tmp_path / "s").mkdir()
    (tmp_path / "dp2tp2pp2.ckpt").rename(tmp_path / "s" / "all.ckpt")
    code, out, _ = run("merge-strategy", tmp_path / "s", "-o", tmp_path / "m.json")
    assert (code, out) == (0, f"{tmp_path / 'm.json'}: 6 parameters, 2 stages of 4 devices\n")
    assert "1-head.weight" in json.loads((tmp_path / "m.json").read_text())["parallel_layout_item"]
    assert run("convert", full, tmp_path / "c", "--format", "safetensors", "--json")[0] == 0
    assert all(same(found, ARRAYS[name]) for name, found in read(tmp_path / "c" / "x.safetensors").items())
    code, _, err = run("merge-lora", full, tmp_path / "l")
    assert code == 1 and "no LoRA weights found in this checkpoint" in err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["transform", "--src_ckpt_dir", "nowhere", "--dst_ckpt_dir", "b"], 2, "nowhere: no such file or directory"),
        (
            ["transform", "--src_ckpt_dir", "x.ckpt", "--dst_ckpt_dir", "b", "--memory", "lots"],
            2,
            "lots: not a size above 0",
        ),
        (
            ["transform", "--src_ckpt_dir", "x.ckpt", "--dst_ckpt_dir", "b", "--step", "two"],
            2,
            "two: invalid checkpoint step",
        ),
        (
            ["transform", "--src_ckpt_dir", "x.ckpt", "--dst_ckpt_dir", "b", "--dst_ckpt_strategy", "s"],
            2,
            "s: no strategy",
        ),
        (
            ["convert", "x.ckpt", "b", "--format", "mindformers"],
            2,
            "writing a MindFormers 2.0 checkpoint needs the strategy",
        ),
        (["convert", "x.ckpt", "b", "--format", "safetensors", "--crc"], 2, "safetensors files have no CRC trailer"),
        (["merge-strategy", "."], 1, "x.ckpt: not a strategy file, or damaged"),
        (["verify", "empty"], 2, "empty: no files found"),
    ],
)
def test_invalid_arguments_are_one_line(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.ckpt").write_bytes(value("w", (2,), "Int8", b"ab"))
    (tmp_path / "empty").mkdir()
    ended, _, err = run(*words)
    assert ended == code
    assert said in err.splitlines()[0]
    assert not (tmp_path / "b").exists()


def test_every_command_has_an_example_and_is_documented() -> None:
    root = Path(__file__).parents[3]
    for command in checkpoint.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        assert "Example:" in (command.callback.__doc__ or "")
        for page in ("docs/tasks.md", "docs/tasks.zh.md", "docs/checkpoints.md"):
            assert f"paceline checkpoint {name}" in (root / page).read_text(), (page, name)


def test_merge_lora_of_ckpt_files_saved_without_replicas(run: Any, tmp_path: Path) -> None:
    arrays = {
        "wq.weight": np.arange(32, dtype=np.float32).reshape(8, 4),
        "wq.mindpet_delta_lora_a": np.arange(8, dtype=np.float32).reshape(2, 4),
        "wq.mindpet_delta_lora_b": np.arange(16, dtype=np.float32).reshape(8, 2),
    }
    twice = TensorLayout((2,), ((), ()))
    source = write_ranks(tmp_path / "a", arrays, [dict.fromkeys(arrays, twice)])
    second = source / "rank_1" / "net_1.ckpt"
    write_ckpt(second, {"wq.weight": read(second)["wq.weight"]})
    made = described(run, tmp_path, "dp=2", write_ranks(tmp_path / "like", arrays, [dict.fromkeys(arrays, twice)]))
    code, _, err = run("merge-lora", source, tmp_path / "b", "--strategy", made)
    assert code == 1 and "wq.mindpet_delta_lora_a and 1 more not found" in err
    code, _, err = run("merge-lora", source, tmp_path / "b", "--strategy", made, "--remove_redundancy")
    assert code == 0, err
    merged = arrays["wq.weight"] + arrays["wq.mindpet_delta_lora_b"] @ arrays["wq.mindpet_delta_lora_a"]
    assert same(read(tmp_path / "b" / "merged_lora.ckpt")["wq.weight"], merged)  # integers: exact


def test_sizes_of_zero_are_refused(run: Any, tmp_path: Path) -> None:
    write_ckpt(tmp_path / "a" / "x.ckpt", {"w": ARRAYS["embed.weight"]})
    for option in ("--memory", "--shard-size"):
        code, _, err = run("convert", tmp_path / "a", tmp_path / "b", "--format", "safetensors", option, "0")
        assert (code, err.splitlines()[0]) == (2, "paceline: 0: not a size above 0")


def test_writing_a_strategy_to_a_device_keeps_the_device(run: Any, tmp_path: Path) -> None:
    write_ckpt(tmp_path / "a" / "x.ckpt", {"w": ARRAYS["embed.weight"]})
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        code, _, err = run("strategy", "dp=2", "--like", tmp_path / "a", "-o", tmp_path / "pipe")
        assert (code, err) == (0, "")
        assert (tmp_path / "pipe").is_fifo() and os.read(reader, 100)
    finally:
        os.close(reader)
