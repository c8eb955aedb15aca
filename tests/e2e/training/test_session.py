"""cloud_session: outputs are uploaded on every exit, and the exit code is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.core.errors import PacelineError, UsageError
from paceline.storage.transfer.transfer import transfer
from paceline.training import CloudSession, Ranks, cloud_session
from paceline.training.session import output_tree as outputs_module
from paceline.training.session.output_tree import default_root, in_modelarts
from paceline.training.session.uploader import Patience
from support.storage.faults import Drop, Hold, Proxy
from support.training.running import Training, fetched, stored

SAVE = {"type": "CheckpointMonitor", "prefix": "gpt", "save_checkpoint_steps": 2}
ENDS = {
    "end": ({}, 0),
    "exception": ({"raises": 5}, 1),
    "exit": ({"exits": 5, "code": 7}, 7),
    "exit-0": ({"exits": 5, "code": 0}, 0),
}


@pytest.mark.parametrize("how", ENDS)
def test_outputs_are_uploaded_and_the_exit_code_is_kept(bucket: str, tmp_path: Path, how: str) -> None:
    options, code = ENDS[how]
    url = f"s3://{bucket}/run"
    training = Training(tmp_path / "run", url=url, steps=6, monitors=[SAVE], **options)
    assert training.wait() == code
    found = set(stored(url))
    newest = "gpt_rank_0-2_2.ckpt" if how == "end" else "gpt_rank_0-1_4.ckpt"
    assert {f"checkpoint/rank_0/{newest}", "checkpoint/rank_0/meta.json", "log/rank_0/info.log"} <= found
    if how == "exception":
        assert "ValueError: the loss is on fire" in training.output.splitlines()[-1]
        assert b"the loss is on fire" in fetched(url, "log/rank_0/error.log")


@pytest.mark.parametrize("where", ["python", "native"])
def test_outputs_are_uploaded_on_sigterm(bucket: str, tmp_path: Path, where: str) -> None:
    url = f"s3://{bucket}/run"
    options = {"seconds": 0.05} if where == "python" else {"native": 5}
    training = Training(tmp_path / "run", url=url, steps=10**6, grace=0.5, monitors=[SAVE], **options)
    training.until(lambda: (tmp_path / "run" / "native").exists() if where == "native" else training.step >= 5)
    assert training.kill(signal.SIGTERM) == 143
    assert {"checkpoint/rank_0/gpt_rank_0-1_4.ckpt", "checkpoint/rank_0/meta.json"} <= set(stored(url))
    assert "SIGTERM" in training.output


def test_a_hanging_store_costs_the_deadline_and_leftovers_are_listed(faulty: str, proxy: Proxy, tmp_path: Path) -> None:
    proxy.fault = lambda request: Hold() if request.method == "PUT" else None
    url = f"s3://{faulty}/run"
    training = Training(tmp_path / "run", url=url, steps=4, deadline=3, exits=4, code=9, monitors=[SAVE])
    assert training.wait() == 9  # the exit code of training, not of the upload
    assert proxy.held.is_set() and not proxy.release.is_set()  # the store still hangs
    assert "were not uploaded to" in training.output and "gpt_rank_0-1_2.ckpt" in training.output
    assert (tmp_path / "run" / "checkpoint" / "rank_0" / "gpt_rank_0-1_2.ckpt").exists()


def test_strict_makes_missing_outputs_an_error(faulty: str, proxy: Proxy, tmp_path: Path) -> None:
    proxy.fault = lambda _: Drop()
    with (
        pytest.raises(PacelineError, match="were not uploaded to"),
        cloud_session(
            tmp_path / "run", f"s3://{faulty}/run", deadline=1, strict=True, patience=Patience(round=0.5)
        ) as session,
    ):
        session.outputs.log(0)
    assert session.leftovers


def test_inputs_are_downloaded_and_a_second_session_in_the_same_process_works(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "data" / "inner").mkdir(parents=True)
    (tmp_path / "data" / "inner" / "a.txt").write_text("text")
    (tmp_path / "start.ckpt").write_bytes(b"weights")
    transfer(tmp_path / "data", f"s3://{bucket}/data")
    transfer(tmp_path / "start.ckpt", f"s3://{bucket}/start.ckpt")
    inputs = {
        "train_dataset_dir": f"s3://{bucket}/data",
        "load_checkpoint": f"s3://{bucket}/start.ckpt",
        "other": tmp_path / "data",
        "nothing": None,
    }
    for _ in range(2):
        with cloud_session(tmp_path / "run", f"s3://{bucket}/out", inputs) as session:
            assert (session.inputs["train_dataset_dir"] / "inner" / "a.txt").read_text() == "text"
            assert session.inputs["load_checkpoint"].read_bytes() == b"weights"
            assert session.inputs["other"] == tmp_path / "data" and "nothing" not in session.inputs
            (session.outputs.strategy / "s.ckpt").write_text("strategy")
            (session.outputs.summary / "c.jsonl").write_text("{}")
            (session.outputs.profile(0) / "p.json").write_text("{}")
        assert session.leftovers == []
    assert {"strategy/s.ckpt", "summary/c.jsonl", "profile/rank_0/p.json"} <= set(stored(f"s3://{bucket}/out"))


def test_missing_inputs_are_an_error_before_training(bucket: str, tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="load_checkpoint: /no/such: no such file"),
        cloud_session(tmp_path / "run", inputs={"load_checkpoint": "/no/such"}),
    ):
        raise AssertionError
    with (
        pytest.raises(PacelineError, match=r"data: could not download s3://.*/none: .*"),
        cloud_session(tmp_path / "run", inputs={"data": f"s3://{bucket}/none"}),
    ):
        raise AssertionError


def test_dumps_and_device_logs_are_uploaded_from_anywhere(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"common_dump_settings": {"path": str(tmp_path / "elsewhere" / "dump")}}
    (tmp_path / "dump.json").write_text(json.dumps(config))
    monkeypatch.setenv("MINDSPORE_DUMP_CONFIG", str(tmp_path / "dump.json"))
    monkeypatch.setenv("ASCEND_PROCESS_LOG_PATH", str(tmp_path / "plog"))
    (tmp_path / "plog").mkdir()
    (tmp_path / "plog" / "old.log").write_text("of another job")
    os.utime(tmp_path / "plog" / "old.log", (1, 1))
    url = f"s3://{bucket}/run"
    with cloud_session(tmp_path / "run", url, ranks=Ranks(8, 16, 0, 1)):
        (tmp_path / "elsewhere" / "dump" / "rank_8").mkdir(parents=True)
        (tmp_path / "elsewhere" / "dump" / "rank_8" / "op.npy").write_bytes(b"tensor")
        (tmp_path / "plog" / "plog-1.log").write_text("of this job")
    found = set(stored(url))
    assert {"dump/rank_8/op.npy", "ascend-log/plog/node_8/plog-1.log"} <= found
    assert "ascend-log/plog/node_8/old.log" not in found


def test_an_unreadable_dump_config_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MINDSPORE_DUMP_CONFIG", str(tmp_path / "none.json"))
    with cloud_session(tmp_path / "run", str(tmp_path / "home")):
        pass
    assert "none.json" in caplog.text and "dump is not uploaded" in caplog.text
    assert (tmp_path / "home" / "log" / "rank_0" / "info.log").exists()  # a local directory is a valid target


def test_as_a_decorator_the_function_gets_the_session(tmp_path: Path) -> None:
    @cloud_session(tmp_path / "run", str(tmp_path / "home"))
    def main(word: str, session: CloudSession | None = None) -> str:
        assert session is not None
        (session.outputs.strategy / "s").write_text(word)
        return word.upper()

    assert main("one") == "ONE" and main("two") == "TWO"
    assert (tmp_path / "home" / "strategy" / "s").read_text() == "two"


def test_modelarts_is_detected_by_its_own_variables_not_by_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("S3_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("S3_SECRET_ACCESS_KEY", "b")
    assert not in_modelarts() and default_root() == tmp_path / "output"
    monkeypatch.setenv("MA_JOB_DIR", "/home/ma-user/modelarts/user-job-dir")
    monkeypatch.setattr(outputs_module, "MODELARTS_ROOT", tmp_path / "cache" / "ma-user-work")
    assert in_modelarts() and default_root() == tmp_path / "output"  # no large disk here
    (tmp_path / "cache").mkdir()
    assert default_root() == tmp_path / "cache" / "ma-user-work"
    monkeypatch.setenv("LOCAL_DEFAULT_PATH", str(tmp_path / "told"))
    assert default_root() == tmp_path / "told" and default_root(tmp_path / "given") == tmp_path / "given"


def test_the_url_of_a_session_is_not_used_by_the_next(tmp_path: Path) -> None:
    with cloud_session(tmp_path / "run", str(tmp_path / "home")):
        assert os.environ["REMOTE_SAVE_URL"] == str(tmp_path / "home")
    with cloud_session(tmp_path / "run") as session:
        assert session.remote_save_url is None


def test_the_placeholder_in_mindformers_files_is_not_a_url(tmp_path: Path) -> None:
    session = cloud_session(tmp_path, "Please input obs url on AICC platform.")
    assert session.remote_save_url is None


def test_requirements_are_installed_before_training_and_failures_are_explained(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "none"\nbackend-path = ["."]\n'
    )
    (package / "none.py").write_text("raise RuntimeError('cannot be built')\n")
    (tmp_path / "requirements.txt").write_text(f"--no-index\n{package}\n")
    with (
        pytest.raises(PacelineError, match="pip install failed"),
        cloud_session(tmp_path / "run", requirements=tmp_path / "requirements.txt"),
    ):
        raise AssertionError
    (tmp_path / "requirements.txt").write_text("--no-index\nnumpy\n")
    with cloud_session(tmp_path / "run", requirements=tmp_path / "requirements.txt"):
        pass


def test_sigterm_of_a_forked_worker_does_not_stop_training(tmp_path: Path) -> None:
    script = (
        "import multiprocessing, os, sys, time\n"
        "from paceline.training import cloud_session\n"
        "def work(up):\n"
        "    up.set(); time.sleep(600)\n"
        "with cloud_session(sys.argv[1], sys.argv[2], sigterm_grace=0.1) as session:\n"
        "    context = multiprocessing.get_context('fork'); up = context.Event()\n"
        "    worker = context.Process(target=work, args=(up,), daemon=True)\n"
        "    worker.start(); up.wait(); worker.terminate(); worker.join()\n"
        "    assert worker.exitcode == -15, worker.exitcode\n"
        "    os.write(session._signals._pipe[1], b'\\x0f')  # as from a child that was just forked\n"
        "    time.sleep(1)\n"
        "print('whole')\n"
    )
    words = [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "run"), str(tmp_path / "home")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0 and done.stdout.endswith("whole\n"), done.stdout + done.stderr
