"""`paceline launch --input --remote-save-url --record` around an unchanged script, on a faked ModelArts of two hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.core.errors import UsageError
from paceline.storage.stores.open_store import open_store
from paceline.storage.transfer.transfer import transfer
from paceline.training.launcher.wrapped_launch import PeriodicUpload, parse_inputs, with_paths
from support.training.running import wait_for

_SCRIPT = """
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument("--train_dataset_dir")
parser.add_argument("--out")
given = parser.parse_args()
rank = int(os.environ["RANK"])
text = open(os.path.join(given.train_dataset_dir, "book.txt")).read()
for step in range(3):
    print(f"rank {rank} of {os.environ['WORLD_SIZE']}: step {step}, loss {len(text)}", flush=True)
open(os.path.join(given.out, f"model_{rank}.bin"), "w").write(str(rank))
"""


def test_two_hosts_of_two_cards_on_modelarts(tmp_path: Path, bucket: str) -> None:
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "book.txt").write_text("once upon a time")
    transfer(tmp_path / "book", f"obs://{bucket}/book").raise_failures()
    script = tmp_path / "train.py"
    script.write_text(_SCRIPT)
    hosts = [_start(script, tmp_path / f"host{number}", bucket, number) for number in range(2)]
    told = [host.communicate(timeout=600) for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], told
    for number, (out, _) in enumerate(told):  # the console of each host: its first card
        assert [line for line in out.splitlines() if "loss" in line] == [
            f"rank {2 * number} of 4: step {step}, loss 16" for step in range(3)
        ]
    store = open_store(f"obs://{bucket}/job")
    kept = {item.key for item in store.list_files()}
    store.close()
    assert {f"model_{rank}.bin" for rank in range(4)} <= kept
    assert {f"log/rank_{rank}/output.log" for rank in range(4)} <= kept


def _start(script: Path, home: Path, bucket: str, number: int) -> subprocess.Popen[str]:
    home.mkdir()
    platform = {
        "MA_NUM_HOSTS": "2",
        "MA_NUM_GPUS": "2",
        "VC_TASK_INDEX": str(number),
        "VC_WORKER_HOSTS": "localhost,localhost",
        "MA_JOB_DIR": str(home),
        "PACELINE_CACHE": str(home / "cache"),
        "LOCAL_DEFAULT_PATH": str(home / "out"),
    }
    words = [sys.executable, "-m", "paceline", "launch", "--input", f"train_dataset_dir=obs://{bucket}/book"]
    words += ["--remote-save-url", f"obs://{bucket}/job", "--record", str(script), "--out={output_dir}"]
    return subprocess.Popen(
        words, cwd=home, env={**os.environ, **platform}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_record_records_an_unchanged_torch_script(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nmodel = torch.nn.Linear(2, 1)\noptimizer = torch.optim.SGD(model.parameters())\n"
        "for _ in range(6):\n    model(torch.ones(1, 2)).sum().backward()\n    optimizer.step()\n"
    )
    words = [sys.executable, "-m", "paceline", "launch", "--record", "--output-dir", "out", str(script)]
    done = subprocess.run(words, cwd=tmp_path, text=True, capture_output=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    (log,) = (tmp_path / "out" / "recording").glob("rank-*/steps-*.jsonl")
    assert len([line for line in log.read_text().splitlines() if '"step"' in line and json.loads(line)]) >= 5


def test_an_upload_target_that_is_gone_is_said_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.training.launcher.wrapped_launch._PATIENCE", 0.1)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.bin").write_bytes(b"weights")
    (tmp_path / "file").write_text("not a directory")
    upload = PeriodicUpload(tmp_path / "out", str(tmp_path / "file" / "target"), 0.05)
    upload.start()
    wait_for(lambda: upload._said)
    upload.finish()
    told = capsys.readouterr().err
    assert "training continues, the next upload tries again" in told
    assert f"NOT everything of {tmp_path / 'out'} is at" in told


def test_inputs_are_named_and_placed() -> None:
    assert parse_inputs(["a=obs://b/c", "d=/e=f"]) == {"a": "obs://b/c", "d": "/e=f"}
    for wrong in ("obs://b/c", "=x", "a=", "output_dir=x"):
        with pytest.raises(UsageError, match="expected NAME=URL"):
            parse_inputs([wrong])
    command = with_paths(("t.py", "-d", "{a}"), {"a": "/in"}, Path("/out"))
    assert command == ("t.py", "-d", "/in")
