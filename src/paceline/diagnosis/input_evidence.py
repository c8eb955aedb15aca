"""Which dataset operator holds an input-bound run up: proof for a finding that other rules made, or that there is none."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import fmean

import numpy as np

from paceline.core.message import message
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.rule_finding import MeasuredValue, RuleFinding
from paceline.metrics.input_pipeline import Bottleneck, bottlenecks

UNPROVEN = 0.5
"""Share of the confidence that is left where no wait for a batch was recorded: the time before the first device work may as
well be the host's. On a real ResNet-50 a fifth of it was loading."""
_UNPROVEN = message("input_unproven")


def with_input_evidence(context: DiagnosisContext, finding: RuleFinding) -> RuleFinding:
    """The finding with the operator that holds its input up, or less sure where nothing shows that input is late."""
    if finding.id != "input-bound":
        return finding
    if _is_recorded(context, finding):
        return with_bottleneck(context, finding)
    confidence = round(UNPROVEN * finding.confidence, 4)
    return replace(finding, confidence=confidence, doubts=(*finding.doubts, _UNPROVEN))


def _is_recorded(context: DiagnosisContext, finding: RuleFinding) -> bool:
    """Whether a wait for a batch was recorded on any of its ranks, or a dataset queue."""
    named = [row for row, info in enumerate(context.ranks) if info.rank in finding.subject.ranks]
    waits = context.matrix("data_wait")[named or slice(None)]
    return not bool(np.isnan(waits).all()) or bool(context.rows("SELECT 1 FROM input_pipeline LIMIT 1"))


def with_bottleneck(context: DiagnosisContext, finding: RuleFinding) -> RuleFinding:
    """The finding with the operator most of its ranks are held up by, where the recording shows one."""
    if finding.id != "input-bound":
        return finding
    found = bottlenecks(context.run)
    mine = [found[rank] for rank in finding.subject.ranks or sorted(found) if rank in found]
    if not mine:
        return finding
    most_common = Counter((each.stage.op_id, each.stage.op) for each in mine).most_common(1)[0][0]
    return replace(finding, evidence=(*finding.evidence, *_evidence([one for one in mine if _key(one) == most_common])))


def _key(one: Bottleneck) -> tuple[int, str]:
    return one.stage.op_id, one.stage.op


def _evidence(alike: list[Bottleneck]) -> list[MeasuredValue]:
    stage = alike[0].stage
    operator = {"operator": f"{stage.op} ({stage.op_id})"}
    found = {
        "bottleneck_output_queue": [_percent(one.stage.use) for one in alike],
        "bottleneck_input_queue": [_percent(one.input_use) for one in alike],
        "bottleneck_worker_cpu": [one.stage.cpu_per_worker for one in alike],
    }
    known = {key: [value for value in values if value is not None] for key, values in found.items()}
    return [
        MeasuredValue(key, round(fmean(values), 1), unit="%", values=operator)
        for key, values in known.items()
        if values
    ]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
