"""`paceline bench run` on this machine: sizes, repetitions, baselines, failures, one schema."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from e2e.bench.test_meters import ATLAS_900, program
from paceline.bench.bench_plan import load_bench_plan
from paceline.bench.result import read_result
from paceline.core.errors import UsageError
from support.bench.result_trees import paceline, read_json

DOCUMENTED = {
    "accuracy",
    "average_power",
    "dataload_start_time",
    "dataload_end_time",
    "efficientcy",
    "energy_consumption",
    "max_power",
    "prepare_start_time",
    "prepare_end_time",
    "proc_start_time",
    "proc_end_time",
    "resource_util_ratio",
    "throughput_ratio",
    "total_start_time",
    "total_end_time",
}


@pytest.fixture
def described(tmp_path: Path) -> Path:
    """A directory with a workload; `bench.yaml` is written by `describe`."""
    shutil.copy((Path(__file__).parents[2] / "support" / "bench" / "workload.py"), tmp_path / "train.py")
    return tmp_path


def describe(where: Path, job: dict[str, object] | None = None, **more: object) -> Path:
    said = {"name": "toy", "job": {"job_name": "toy", "boot_file": "train.py", **(job or {})}, **more}
    (where / "bench.yaml").write_text(yaml.safe_dump(said))
    return where / "bench.yaml"


def test_sizes_and_repetitions_give_one_result(described: Path) -> None:
    bench = describe(described, {"hyperparameters": {"slow_rank": 1}}, repeat=2, sweep={"ranks": [2, 1]})
    done = paceline("bench", "run", bench, "--out", described / "out", "--lang", "en")
    assert done.returncode == 0, done.stderr
    said = read_json(described / "out" / "result.json")
    assert said["schema"] == "paceline.bench/1" and said.keys() >= DOCUMENTED
    result = read_result(described / "out" / "result.json")
    assert [each.ranks for each in result.measurements] == [1, 2]
    assert [each.throughput.mean for each in result.measurements] == [100.0, 150.0]
    assert [each.efficiency for each in result.measurements] == [1.0, 0.75]
    assert [(each.kind, each.name, each.runs) for each in result.largest.outliers] == [("rank", "1", 2)]
    assert result.accuracy == 0.5 and result.average_power is None and result.energy_consumption is None
    assert result.dataload_start_time == "2026-11-17T02:00:00+00:00"
    assert result.proc_start_time and result.proc_end_time and result.total_start_time
    assert result.total_start_time <= result.proc_start_time <= result.proc_end_time <= (result.total_end_time or "")
    assert "2020-01-30" not in json.dumps(said)
    assert result.provenance.config_sha256 and result.provenance.cores
    assert "rank 1: 50.0 samples/s, its peers 100.0 (-50.0 %)" in done.stdout
    assert "150.0 ± 0.0 samples/s (95 %, 2 runs) on 2 ranks" in done.stdout
    assert "scaling efficiency 75.0 ± 0.0 %" in done.stdout
    for name in ("report.md", "report.html"):
        assert "75.0" in (described / "out" / name).read_text()


def test_nodes_that_train_alone_are_averaged_and_repetition_and_backend_can_be_chosen(described: Path) -> None:
    bench = describe(described, {"nodes": 2, "ranks": 2, "single_server_mode": True, "backend": "slurm"}, repeat=5)
    done = paceline("bench", "run", bench, "--backend", "local", "--repeat", 1, "--json", "-", cwd=described)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["mode"] == "single_server"
    (run,) = said["measurements"][0]["repetitions"]
    assert run["throughput_list"] == [200.0, 202.0] and said["throughput_ratio"] == 201.0
    assert run["accuracy_list"] == [0.5, 0.5] and said["measurements"][0]["nodes"] == 2
    assert said["measurements"][0]["per_rank"] == 100.5 and said["measurements"][0]["ranks"] == 4


def test_worse_than_the_last_run_is_exit_code_5(described: Path) -> None:
    assert paceline("bench", "run", describe(described), "--out", described / "a").returncode == 0
    slower = describe(described, {"hyperparameters": {"speed": 80}})
    done = paceline("bench", "run", slower, "--out", described / "b", "--baseline", "last", "--lang", "en")
    assert done.returncode == 5 and "worse than the baseline" in done.stdout, done.stderr
    assert read_result(described / "b" / "result.json").comparisons[0].percent == pytest.approx(-20)
    done = paceline(
        "bench", "run", describe(described), "--out", described / "c", "--baseline", described / "b" / "result.json"
    )
    assert done.returncode == 0
    missing = paceline("bench", "run", describe(described), "--out", described / "d", "--baseline", "nowhere.json")
    assert missing.returncode == 1 and not (described / "d").exists()


def test_failed_training_is_exit_code_2_with_its_last_words_and_smaller_sizes_are_kept(described: Path) -> None:
    bench = describe(described, {"hyperparameters": {"fail_from": 2}}, sweep={"ranks": [1, 2]})
    done = paceline("bench", "run", bench, "--out", described / "out")
    assert done.returncode == 2 and "this rank needs 80 GB" in done.stderr, done.stderr
    result = read_result(described / "out" / "result.json")
    assert result.result == "FAILED" and [each.ranks for each in result.measurements] == [1]
    bench = describe(described, {"hyperparameters": {"fail_from": 1}})
    done = paceline("bench", "run", bench, "--out", described / "none")
    assert done.returncode == 2 and not (described / "none" / "result.json").exists()


@pytest.mark.parametrize(("forgotten", "code"), [("throughput_0.json", 4), ("accuracy.json", 3), ("ranksize.json", 0)])
def test_missing_result_files_have_exit_codes_of_their_own(described: Path, forgotten: str, code: int) -> None:
    """The number of ranks is known to who started them."""
    bench = describe(described, {"hyperparameters": {"forget": forgotten}})
    done = paceline("bench", "run", bench, "--out", described / "out")
    assert done.returncode == code, done.stderr
    if code:
        assert f"{forgotten}: not found" in done.stderr and "OK" not in done.stdout


def test_energy_is_measured_where_a_card_tells(described: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(described / "bin", "npu-smi", ATLAS_900)
    monkeypatch.setenv("PATH", f"{described / 'bin'}{os.pathsep}{os.environ['PATH']}")
    done = paceline("bench", "run", describe(described), "--out", described / "out", "--lang", "en")
    assert done.returncode == 0, done.stderr
    result = read_result(described / "out" / "result.json")
    assert result.average_power == pytest.approx(317.4) and result.max_power == pytest.approx(317.4)
    assert result.efficientcy == pytest.approx(100 / 317.4) and result.resource_util_ratio == pytest.approx(0.6)
    assert result.energy_consumption and result.provenance.cards == "2 (npu-smi)"
    assert "samples per joule" in done.stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"repeat": 0}, "bench.yaml:"),
        ({"reapeat": 2}, "did you mean 'repeat'?"),
        ({"sweep": {"ranks": []}}, "sweep"),
        ({"job": {"job_name": "x"}}, "boot_file"),
        ({"tester": "config.json"}, "config.json"),
    ],
)
def test_a_wrong_description_starts_nothing(described: Path, change: dict[str, object], said: str) -> None:
    bench = describe(described)
    bench.write_text(yaml.safe_dump(yaml.safe_load(bench.read_text()) | change))
    done = paceline("bench", "run", bench, "--out", described / "out")
    assert done.returncode in (1, 2) and said in done.stderr and not (described / "out").exists()
    assert "Traceback" not in done.stderr


def test_an_earlier_runs_directory_is_not_written_into(described: Path) -> None:
    (described / "out").mkdir()
    (described / "out" / "result.json").write_text("precious")
    done = paceline("bench", "run", describe(described), "--out", described / "out")
    assert done.returncode == 1 and (described / "out" / "result.json").read_text() == "precious"


def test_a_job_in_a_file_of_its_own_is_found_beside_the_description(described: Path) -> None:
    (described / "job.yaml").write_text("job_name: other\nboot_file: train.py\nranks: 2\n")
    (described / "bench.yaml").write_text("job: job.yaml\n")
    plan = load_bench_plan(described / "bench.yaml")
    assert (plan.name, plan.sizes, plan.job.code_dir) == ("other", (2,), str(described))
    (described / "bench.yaml").write_text("job: missing.yaml\n")
    with pytest.raises(UsageError, match=r"missing\.yaml"):
        load_bench_plan(described / "bench.yaml")


def test_ctrl_c_stops_the_job_that_is_running(described: Path) -> None:
    (described / "train.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(250)\n")
    command = [
        sys.executable,
        "-m",
        "paceline.cli.main",
        "bench",
        "run",
        str(describe(described)),
        "--out",
        "out",
        "--logs",
    ]
    running = subprocess.Popen(command, cwd=described, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    with running.stderr as said:
        while "here" not in said.readline():
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=600) == 130
    (status,) = (described / "out" / "paceline-jobs").glob("*/state/status.json")
    assert read_json(status)["phase"] == "stopped"
    assert not (described / "out" / "result.json").exists()


def test_a_job_that_takes_too_long_is_stopped(described: Path) -> None:
    (described / "train.py").write_text("import time\ntime.sleep(250)\n")
    done = paceline("bench", "run", describe(described, timeout_minutes=0.05), "--out", described / "out")
    assert done.returncode == 2 and "stopped after 0.05 minutes" in done.stderr, done.stderr
