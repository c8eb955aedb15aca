"""The numbers of the OSDI'25 straggler study as a diagnosis shows them."""

from __future__ import annotations

import math

import numpy as np

from paceline.core.errors import PacelineError
from paceline.diagnosis.finding import StudyNumbers, WorkerSlowdown
from paceline.metrics.timeline.operation_timeline import is_operation_trace
from paceline.replay.straggler_study import StragglerStudy, straggler_study
from paceline.run.run import Run


def study_numbers(run: Run) -> StudyNumbers | None:
    """None for everything but traces of the study's format, and where no step is whole."""
    if not is_operation_trace(run):
        return None
    try:
        study = straggler_study(run)
    except PacelineError:
        return None
    return StudyNumbers(
        step_ms=_ms(study.time),
        ideal_ms=_ms(study.ideal_time),
        slowdown=round(study.slowdown, 4),
        worst_workers_share=_share(study.worst_workers_share),
        last_stage_share=_share(study.last_stage_share),
        workers=_workers(study),
    )


def _workers(study: StragglerStudy) -> tuple[WorkerSlowdown, ...]:
    ranks = study.steps.ranks if study.steps else {}
    order = np.argsort(-study.worker_scores, axis=None, kind="stable").tolist()
    places = [divmod(place, study.shape[0]) for place in order]
    return tuple(
        WorkerSlowdown(ranks[stage, replica], stage, replica, round(float(study.worker_scores[stage, replica]), 4))
        for stage, replica in places
        if (stage, replica) in ranks
    )


def _share(share: float) -> float | None:
    return round(share, 4) if math.isfinite(share) else None


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 3)
