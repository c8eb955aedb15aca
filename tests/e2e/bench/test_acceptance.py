"""A benchmark one can sign: thresholds, stragglers, baselines that do not drift, intervals, MLPerf's log."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import yaml

from paceline.bench.bench_plan import MlperfLog, Workload, job_of_size, load_bench_plan
from paceline.bench.history import accepted, best_result, latest_result, save_result
from paceline.bench.mllog import mllog_of, unknown_settings
from paceline.bench.report.content import efficiency_text, headline, result_page
from paceline.bench.result import (
    BenchResult,
    EvaluationPart,
    NodeFacts,
    ProfilePart,
    RunTimes,
    WorkloadFacts,
    read_result,
)
from paceline.bench.statistics.expectations import Expectations, check_expectations
from paceline.bench.statistics.scaling import with_efficiency
from paceline.bench.statistics.time_to_quality import time_to_quality
from paceline.bench.workload_facts import with_workload
from paceline.core.errors import UsageError
from paceline.diagnosis.finding import Diagnosis, Finding, Gain, RunFacts, StepTimes, Subject
from paceline.output.page.markdown import to_markdown
from support.bench.result_trees import a_result, charts_of, paceline

WORKLOAD = Path(__file__).parents[2] / "support" / "bench" / "workload.py"


@pytest.fixture
def described(tmp_path: Path) -> Path:
    shutil.copy(WORKLOAD, tmp_path / "train.py")
    return tmp_path


def describe(where: Path, parameters: dict[str, object] | None = None, **more: object) -> Path:
    job = {"job_name": "toy", "boot_file": "train.py", "ranks": 2, "hyperparameters": parameters or {}}
    (where / "bench.yaml").write_text(yaml.safe_dump({"name": "toy", "job": job, **more}))
    return where / "bench.yaml"


def test_a_slow_rank_is_in_the_headline_and_fails(described: Path) -> None:
    bench = describe(described, {"slow_rank": 1}, repeat=2, expect={"throughput": 190, "accuracy": 0.4})
    done = paceline("bench", "run", bench, "--out", described / "out", "--lang", "en")
    assert done.returncode == 6, done.stderr
    first = done.stdout.strip().splitlines()[0]
    assert "FAIL: throughput 150 < 190, stragglers 1 > 0," in first and "straggler: rank 1 -50 %" in first, first
    result = read_result(described / "out" / "result.json")
    assert result.verdict == "FAIL" and [each.passed for each in result.expectations] == [False, True, False]
    assert result.provenance.nodes[0].host and result.provenance.nodes[0].cores
    good = paceline("bench", "run", describe(described, expect={"throughput": 190}), "--out", described / "good")
    assert good.returncode == 0 and "PASS" in good.stdout


def with_finding(result: BenchResult, *, ranks: tuple[int, ...], percent: float) -> BenchResult:
    finding = Finding(
        id="slow-rank",
        severity="high",
        confidence=0.9,
        chronic=True,
        subject=Subject(ranks=ranks),
        gain=Gain(100.0, 100.0 - percent, percent),
        title=f"Rank {ranks[0]} is slow",
        evidence=(),
        advice=(),
        see="kb/slow-rank",
    )
    facts = RunFacts(
        source="profile",
        formats=(),
        ranks=4,
        hosts=1,
        steps=(1,),
        step_ms=StepTimes(100.0, 100.0, 100.0),
        missing_ranks=(),
        warnings=(),
    )
    diagnosis = Diagnosis(run=facts, findings=(finding,))
    profile = ProfilePart(source="profile", step_ms=100.0, shares={}, diagnosis=diagnosis, titles_zh=("2 号卡慢",))
    size = msgspec.structs.replace(result.largest, profile=profile)
    return msgspec.structs.replace(result, measurements=(size,))


def test_a_straggler_of_the_profile_is_in_the_headline_whatever_the_scores() -> None:
    """In synchronous training every rank has the same throughput."""
    result = with_finding(a_result((71.3, 71.5)), ranks=(2,), percent=56.0)
    assert "straggler: Rank 2 is slow (−56 %)" in headline(result, "en")
    assert "2 号卡慢（−56 %）" in headline(result, "zh") or "2 号卡慢 (−56 %)" in headline(result, "zh")
    page = to_markdown(result_page(result, "en"))
    assert "By the recorded run: Rank 2 is slow" in page and "No rank, node or run differs" not in page
    failed = {each.metric: each.passed for each in check_expectations(result, Expectations())}
    assert failed == {"stragglers": False}
    assert "straggler" not in headline(with_finding(result, ranks=(2,), percent=3.0), "en"), "too small to matter"
    assert "straggler" not in headline(with_finding(result, ranks=(0, 1, 2), percent=30.0), "en"), "not a few"


def test_small_regressions_do_not_add_up_unseen(tmp_path: Path) -> None:
    """Every run is 0.9 % below the one before: within noise of it, but not of the best."""
    for number in range(8):
        value = 100.0 * 0.991**number
        save_result(a_result((value, value * 1.001, value * 0.999), number=number), tmp_path)
    newest, best = latest_result("model", tmp_path), best_result("model", tmp_path)
    assert newest.throughput_ratio == pytest.approx(99.1) and best.throughput_ratio == pytest.approx(100.0)


def test_a_regression_is_no_baseline_for_the_next_run(described: Path) -> None:
    out = iter("abcde")
    assert paceline("bench", "run", describe(described), "--out", described / next(out)).returncode == 0
    slow = paceline("bench", "run", describe(described, {"speed": 90}), "--out", described / next(out))
    assert slow.returncode == 0
    still = describe(described, {"speed": 95})
    done = paceline("bench", "run", still, "--out", described / next(out), "--baseline", "last", "--lang", "en")
    assert done.returncode == 5 and "worse than the baseline" in done.stdout and "last: 20" in done.stdout
    pinned = paceline("bench", "pin", "weak", described / "b" / "result.json")
    assert pinned.returncode == 0, pinned.stderr
    done = paceline("bench", "run", still, "--out", described / next(out), "--baseline", "weak", "--lang", "en")
    assert done.returncode == 0 and "better than the baseline" in done.stdout and "weak: 20" in done.stdout
    wrong = paceline("bench", "run", still, "--out", described / next(out), "--baseline", "week")
    assert wrong.returncode == 1 and "pinned: weak" in wrong.stderr
    shown = paceline("bench", "history", "toy", "--lang", "en", "--html", described / "history.html")
    assert "3 of 4 runs are worse than the best accepted one before them" in shown.stdout, shown.stdout
    (trend,) = charts_of((described / "history.html").read_text())
    assert [point["culprit"] for point in trend["points"]] == [False, True, True, True]


def test_failed_expectations_and_failed_runs_are_no_baseline() -> None:
    good, bad = a_result((100.0,)), a_result((120.0,), number=1)
    assert accepted([good, msgspec.structs.replace(bad, verdict="FAIL")]) == [good]
    assert accepted([good, msgspec.structs.replace(bad, result="FAILED")]) == [good]


def test_efficiency_has_no_digits_that_its_interval_does_not_support() -> None:
    def efficiency(first: tuple[float, ...], second: tuple[float, ...]) -> str:
        sizes = [a_result(values, ranks=ranks).largest for values, ranks in ((first, 1), (second, 2))]
        return efficiency_text(with_efficiency(sizes)[1], "en")

    assert efficiency((100.0,), (242.6,)) == "about 120 % (single run)"
    assert efficiency((100.0, 100.2), (170.0, 170.4)) == "85.0 ± 0.6 %"
    assert efficiency((100.0, 150.0), (170.0, 171.0)) == "68 ± 59 %"


def test_single_runs_and_nodes_on_their_own_are_marked() -> None:
    one = a_result((155.2,))
    assert headline(one, "en").startswith("155.2 samples/s (single run, no interval) on 4 ranks")
    alone = msgspec.structs.replace(one, mode="single_server")
    alone = msgspec.structs.replace(alone, measurements=(msgspec.structs.replace(alone.largest, nodes=2),))
    assert "per node, mean of 2 nodes that trained alone, 2 ranks each" in headline(alone, "en")


def test_thresholds_know_noise_and_what_was_not_measured() -> None:
    result = a_result((100.0, 104.0, 96.0))
    parts = {
        each.metric: each for each in check_expectations(result, Expectations(throughput=99.0, mfu=0.3, deviation=3.0))
    }
    assert parts["throughput"].passed and not parts["throughput"].sure
    assert not parts["mfu"].passed and parts["mfu"].value is None
    assert not parts["deviation"].passed and parts["deviation"].value == pytest.approx(4.0)
    assert parts["stragglers"].passed


def test_tokens_and_mfu_follow_from_what_a_sample_is() -> None:
    size = a_result((100.0,), ranks=4).largest
    found = with_workload(size, Workload(tokens_per_sample=1024, flops_per_sample=2e12, peak_tflops=400))
    assert found.tokens_per_second_per_card == pytest.approx(size.per_rank * 1024)
    assert found.mfu == pytest.approx(size.per_rank * 2e12 / 400e12)


def test_strong_scaling_divides_the_batch_and_weak_scaling_keeps_it(described: Path) -> None:
    sweep = {"ranks": [1, 2, 4], "scaling": "strong", "batch": "batch_size", "global_batch": 32}
    plan = load_bench_plan(describe(described, {"batch_size": 8}, sweep=sweep))
    assert [job_of_size(plan, size).hyperparameters["batch_size"] for size in plan.sizes] == [32, 16, 8]
    weak = load_bench_plan(describe(described, {"batch_size": 8}, sweep={"ranks": [1, 2]}))
    assert job_of_size(weak, 2).hyperparameters["batch_size"] == 8
    for wrong in ({"global_batch": 30}, {"batch": ""}):
        with pytest.raises(UsageError, match=r"bench.yaml:\d+"):
            load_bench_plan(describe(described, sweep={**sweep, **wrong}))


START = datetime.fromisoformat("2026-11-17T02:00:00+00:00")


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat()


EVALUATIONS = tuple(
    EvaluationPart(time=at(100.0 * epoch), accuracy=0.2 * epoch, epoch=epoch, samples=1000 * epoch)
    for epoch in (1, 2, 3)
)
TIMES = RunTimes(prepare_start_time=at(-30), proc_start_time=at(0), proc_end_time=at(310))


def test_time_to_quality_is_the_first_evaluation_that_reaches_the_target() -> None:
    assert time_to_quality(EVALUATIONS, 0.35, 0.6, TIMES) == 200.0
    assert time_to_quality(EVALUATIONS, 0.9, 0.6, TIMES) is None
    assert time_to_quality((), 0.5, 0.6, TIMES) == 310.0 and time_to_quality((), 0.7, 0.6, TIMES) is None


def with_evaluations(target: float) -> BenchResult:
    result = a_result((100.0, 101.0))
    runs = tuple(
        msgspec.structs.replace(
            each,
            times=TIMES,
            evaluations=EVALUATIONS,
            time_to_quality=time_to_quality(EVALUATIONS, target, 0.6, TIMES),
            nodes=(NodeFacts(host="a", card="910B"),),
            workload=WorkloadFacts(seed=7, global_batch_size=64, train_samples=1000, eval_samples=100),
        )
        for each in result.largest.repetitions
    )
    size = msgspec.structs.replace(result.largest, repetitions=runs)
    return msgspec.structs.replace(result, measurements=(size,), target_accuracy=target)


def test_the_log_of_mlperf_has_one_line_for_every_evaluation() -> None:
    logs = mllog_of(with_evaluations(0.35), MlperfLog(benchmark="bert"))
    assert len(logs) == 2
    lines = [json.loads(line.removeprefix(":::MLLOG ")) for line in logs[0].splitlines()]
    assert [line["time_ms"] for line in lines] == sorted(line["time_ms"] for line in lines)
    assert [line["value"] for line in lines if line["key"] == "eval_accuracy"] == pytest.approx([0.2, 0.4, 0.6])
    values = {line["key"]: line["value"] for line in lines}
    assert (values["global_batch_size"], values["train_samples"], values["seed"]) == (64, 1000, 7)
    assert unknown_settings(a_result((100.0,)), MlperfLog(benchmark="bert", seed=1, train_samples=9)) == [
        "eval_samples",
        "global_batch_size",
    ]
    assert lines[-1]["key"] == "run_stop" and lines[-1]["metadata"]["status"] == "success"
    assert (
        json.loads(
            mllog_of(with_evaluations(0.9), MlperfLog(benchmark="bert"))[0].splitlines()[-1].removeprefix(":::MLLOG ")
        )["metadata"]["status"]
        == "aborted"
    )


@pytest.mark.parametrize(("benchmark", "ruleset"), [("bert", "5.0.0"), ("resnet", "4.0.0")])
def test_the_public_checker_accepts_the_log(benchmark: str, ruleset: str, tmp_path: Path) -> None:
    """4.0.0 is the last ruleset with ResNet-50."""
    pytest.importorskip("mlperf_logging")
    file = tmp_path / "result_0.txt"
    file.write_text(mllog_of(with_evaluations(0.35), MlperfLog(benchmark=benchmark))[0])
    command = [sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", ruleset]
    done = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0 and "SUCCESS" in done.stdout + done.stderr, done.stdout + done.stderr
