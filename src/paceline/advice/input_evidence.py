"""Which dataset operator holds an input-bound run up: proof for a finding that other rules made."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import fmean

from paceline.advice.case import Case
from paceline.advice.finding import Evidence, Finding
from paceline.analysis.input_pipeline import Bottleneck, bottlenecks


def with_bottleneck(case: Case, finding: Finding) -> Finding:
    """The finding with the operator most of its ranks are held up by, where the recording shows one."""
    if finding.id != "input-bound":
        return finding
    found = bottlenecks(case.run)
    mine = [found[rank] for rank in finding.subject.ranks or sorted(found) if rank in found]
    if not mine:
        return finding
    usual = Counter((each.stage.op_id, each.stage.op) for each in mine).most_common(1)[0][0]
    return replace(finding, evidence=(*finding.evidence, *_evidence([one for one in mine if _key(one) == usual])))


def _key(one: Bottleneck) -> tuple[int, str]:
    return one.stage.op_id, one.stage.op


def _evidence(alike: list[Bottleneck]) -> list[Evidence]:
    stage = alike[0].stage
    told = [
        (f"bottleneck {stage.op} ({stage.op_id}): output queue filled", [_percent(one.stage.use) for one in alike]),
        ("its input queue", [_percent(one.input_use) for one in alike]),
        ("CPU of one of its workers", [one.stage.cpu_per_worker for one in alike]),
    ]
    known = [(metric, [value for value in values if value is not None]) for metric, values in told]
    return [Evidence(metric, round(fmean(values), 1), None, "%") for metric, values in known if values]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
