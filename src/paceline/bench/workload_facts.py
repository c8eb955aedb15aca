"""What a workload says of itself in workload.json: batch, samples, tokens and FLOPs of a sample."""

from __future__ import annotations

from pathlib import Path

import msgspec

from paceline.bench.bench_plan import Workload
from paceline.bench.number_file import LARGEST
from paceline.bench.result import Measurement, WorkloadFacts
from paceline.core.message import Sentence, message

FILE = "workload.json"


def read_workload_facts(path: Path) -> tuple[WorkloadFacts, list[Sentence]]:
    """The facts, and what is wrong with the file; it is optional."""
    if not path.is_file():
        return WorkloadFacts(), []
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError("too large")
        return msgspec.json.decode(path.read_bytes(), type=WorkloadFacts), []
    except (ValueError, RecursionError, OSError) as error:
        return WorkloadFacts(), [message("not_used", name=path.name, error=error)]


def with_workload(size: Measurement, workload: Workload) -> Measurement:
    """tokens/s per card = samples/s per rank · tokens per sample; MFU = samples/s per rank · FLOPs per sample / peak.

    What bench.yaml says counts; where it says nothing, what the workload reported.
    """
    reported = size.repetitions[-1].workload
    tokens = workload.tokens_per_sample or reported.tokens_per_sample
    flops = workload.flops_per_sample or reported.flops_per_sample
    peak = workload.peak_tflops
    return msgspec.structs.replace(
        size,
        tokens_per_second_per_card=size.per_rank * tokens if tokens else None,
        mfu=size.per_rank * flops / (peak * 1e12) if flops and peak else None,
    )
