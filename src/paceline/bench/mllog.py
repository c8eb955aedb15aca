"""MLPerf training's log of a run: `:::MLLOG {json}` lines that the public checker (mlperf-logging) accepts.

One file per repetition. Times come from the job and from the workload's evaluations; division is always "open": a result
of ours follows none of the closed division's rules on models and hyperparameters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime

from paceline.bench.bench_plan import MlperfLog
from paceline.bench.result import BenchResult, EvaluationPart, Measurement, Repetition

_MARK = ":::MLLOG"
_POINT = "POINT_IN_TIME"
_START, _STOP = "INTERVAL_START", "INTERVAL_END"


def mllog_of(result: BenchResult, submission: MlperfLog) -> list[str]:
    """The text of each repetition's file, of the largest size."""
    size = result.largest
    return ["".join(f"{line}\n" for line in _lines(result, size, run, submission)) for run in size.repetitions]


def unknown_settings(result: BenchResult, submission: MlperfLog) -> list[str]:
    """What MLPerf's log needs and no file gives: it is not written then."""
    found = [_settings(run, submission) for run in result.largest.repetitions]
    return sorted({name for settings in found for name, value in settings.items() if value is None})


def _settings(run: Repetition, submission: MlperfLog) -> dict[str, int | None]:
    """Of bench.yaml, else as the workload reported them."""
    said = run.workload
    return {
        "seed": said.seed if said.seed is not None else submission.seed,
        "global_batch_size": submission.global_batch_size or said.global_batch_size,
        "train_samples": submission.train_samples or said.train_samples,
        "eval_samples": submission.eval_samples or said.eval_samples,
    }


def _lines(result: BenchResult, size: Measurement, run: Repetition, submission: MlperfLog) -> Iterator[str]:
    times = run.times
    begin = _ms(times.prepare_start_time or times.proc_start_time or result.total_start_time)
    start = max(begin, _ms(times.proc_start_time) or begin)
    evaluations = _evaluations(run, _ms(times.proc_end_time) or start)
    end = max(start, _ms(times.proc_end_time) or start, *(_ms(each.time) for each in evaluations))
    nodes = run.nodes[0] if run.nodes else None
    platform = submission.platform or f"{size.nodes}x{nodes.card or nodes.processor if nodes else result.backend}"
    facts: dict[str, object] = {
        "submission_benchmark": submission.benchmark,
        "submission_division": "open",
        "submission_org": submission.org,
        "submission_platform": platform,
        "submission_status": submission.status,
        "submission_poc_name": "none",
        "submission_poc_email": "none",
    }
    for name, value in facts.items():
        yield _line(begin, _POINT, name, value)
    yield _line(begin, _POINT, "cache_clear", value=True)
    yield _line(begin, _START, "init_start", None)
    for name, number in {**_settings(run, submission), "gradient_accumulation_steps": 1}.items():
        yield _line(begin, _POINT, name, number)
    yield _line(start, _STOP, "init_stop", None)
    yield _line(start, _START, "run_start", None)
    yield from _training(start, evaluations)
    reached = result.target_accuracy is None or run.time_to_quality is not None
    yield _line(end, _STOP, "run_stop", None, {"status": "success" if reached else "aborted"})


def _training(start: int, evaluations: list[EvaluationPart]) -> Iterator[str]:
    """A block of training before every evaluation."""
    for number, each in enumerate(evaluations, start=1):
        at = max(start, _ms(each.time))
        where = {"epoch_num": each.epoch if each.epoch is not None else number, "samples_count": each.samples or number}
        block = {"first_epoch_num": number, "epoch_count": 1, "samples_count": each.samples or number}
        yield _line(start, _START, "block_start", None, block)
        yield _line(start, _START, "epoch_start", None, where)
        yield _line(at, _STOP, "epoch_stop", None, where)
        yield _line(at, _STOP, "block_stop", None, block)
        yield _line(at, _START, "eval_start", None, where)
        yield _line(at, _POINT, "eval_accuracy", each.accuracy, where)
        yield _line(at, _STOP, "eval_stop", None, where)
        start = at


def _evaluations(run: Repetition, end: int) -> list[EvaluationPart]:
    """Those of the workload; else the final accuracy at the end."""
    if run.evaluations:
        return list(run.evaluations)
    at = datetime.fromtimestamp(end / 1000).astimezone().isoformat()
    return [EvaluationPart(time=at, accuracy=run.accuracy or 0.0)]


def _line(at: int, event: str, key: str, value: object, metadata: Mapping[str, object] | None = None) -> str:
    found = {
        "namespace": "",
        "time_ms": at,
        "event_type": event,
        "key": key,
        "value": value,
        "metadata": {"file": "paceline", "lineno": 0, **(metadata or {})},
    }
    return f"{_MARK} {json.dumps(found)}"


def _ms(time: str | None) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1000) if time else 0
