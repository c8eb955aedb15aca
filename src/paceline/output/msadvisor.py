"""The result of msadvisor's HCCL knowledge base, made from our diagnosis: overview lines and its result JSON.

The contract (facts of that tool): classType "1" = whole model; errorCode "0" = something to improve was found,
"1" = nothing; extendResult holds lists (type "0") and tables (type "1"), all values as strings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from paceline.core.i18n import Language, text
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import Diagnosis, Finding
from paceline.replay.critical_path import OperatorTime, communication_operators, critical_path
from paceline.run.run import Run

TOP = 3


class ExtendedResult(msgspec.Struct, frozen=True, rename="camel"):
    """A list (type "0": lines in `value`) or a table (type "1": columns in `key`, rows in `value`)."""

    type: str
    extend_title: str
    data_type: tuple[str, ...]
    key: tuple[str, ...]
    value: tuple[str, ...] | tuple[tuple[str, ...], ...]


class AdvisorJson(msgspec.Struct, frozen=True, rename="camel"):
    """hccl_analysis_result.json."""

    class_type: str
    error_code: str
    summary: str
    extend_result: tuple[ExtendedResult, ...]


@dataclass(frozen=True)
class OperatorAdvice:
    """What is known about one communication operator."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class FindingTable:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class AdvisorResult:
    """The overview on screen and the result JSON hold the same."""

    summary: str
    problem: bool
    operators: tuple[OperatorAdvice, ...]
    names: tuple[str, ...]
    """Communication operators of the critical path, those with the most exposed time first."""
    findings: FindingTable

    def to_json(self) -> AdvisorJson:
        extended = [ExtendedResult("0", advice.title, ("0",), (), advice.lines) for advice in self.operators]
        table = self.findings
        if table.rows:
            extended.append(ExtendedResult("1", table.title, ("0", "0", "2", "0"), table.columns, table.rows))
        return AdvisorJson("1", "0" if self.problem else "1", self.summary, tuple(extended))


def advisor_result(
    run: Run, diagnosis: Diagnosis, *, steps: tuple[int, ...] | None = None, language: Language = "en"
) -> AdvisorResult:
    """The top communication operators of the critical path, who is slow, and where transfer time goes."""
    replay = DiagnosisContext(run, steps).replay
    by_exposed_time = communication_operators(run, replay, critical_path(replay))
    operators = by_exposed_time[:TOP]
    slow_rank = _slow_rank(diagnosis, language)
    advice = [
        _operator_advice(operator, slow_rank, _transfer_times(run, steps, operator.name), language)
        for operator in operators
    ]
    if not advice:
        bottleneck = dominant_transport(_transfer_times(run, steps, None), language)
        advice = [OperatorAdvice(_word("no_operator", language), (slow_rank, bottleneck))]
    columns = tuple(_word(f"column_{name}", language) for name in ("finding", "severity", "gain", "advice"))
    rows = tuple(_row(finding) for finding in diagnosis.findings)
    problem = any(finding.severity != "info" for finding in diagnosis.findings)
    table = FindingTable(_word("findings", language), columns, rows)
    names = tuple(operator.name for operator in by_exposed_time)
    return AdvisorResult(_word("summary", language), problem, tuple(advice), names, table)


def _operator_advice(
    operator: OperatorTime, slow_rank: str, times: Mapping[str, int], language: Language
) -> OperatorAdvice:
    serial, overlapped = f"{operator.serial / 1e6:.3f}", f"{operator.overlapped / 1e6:.3f}"
    path = _word("path", language, serial=serial, overlapped=overlapped, count=operator.count)
    last = _word("last", language, rank=operator.last, count=operator.last_count)
    lines = (slow_rank, dominant_transport(times, language), _word("path_and_last", language, path=path, last=last))
    return OperatorAdvice(_word("operator", language, name=operator.name), lines)


def _slow_rank(diagnosis: Diagnosis, language: Language) -> str:
    """From the diagnosis: the first finding that names some ranks for what they do, not for a link between them."""
    for finding in diagnosis.findings:
        subject = finding.subject
        some = 0 < len(subject.ranks) < diagnosis.run.ranks
        if some and not subject.links and not subject.stages and finding.severity != "info":
            ranks = ", ".join(map(str, subject.ranks))
            return _word("slow_rank", language, ranks=ranks, title=finding.title)
    return _word("no_slow_rank", language)


def _transfer_times(run: Run, steps: tuple[int, ...] | None, operator: str | None) -> dict[str, int]:
    """ns of transfer per transport of the rank that transfers longest, for which all others wait.

    Of one operator by its packets; of all links where it recorded none.
    """
    chosen = "true" if steps is None else f"step IN ({', '.join(map(str, steps))})"
    run.load(["packets", "links"])
    packets = run.connection.execute(
        f"SELECT rank, transport, sum(duration)::BIGINT FROM packets WHERE name = ? AND {chosen} GROUP BY rank, transport",
        [operator],
    ).fetchall()
    if found := of_longest_rank(packets):
        return found
    links = run.connection.execute(
        f"""
        SELECT src, transport, sum(duration)::BIGINT FROM links
        WHERE transport <> 'LOCAL' AND {chosen} GROUP BY src, transport
        """
    ).fetchall()
    return of_longest_rank(links)


def of_longest_rank(rows: Iterable[tuple[int, str, int | None]]) -> dict[str, int]:
    """Time per transport of the rank whose times are longest in total; {} where nothing took time."""
    times: dict[int, dict[str, int]] = defaultdict(dict)
    for rank, transport, time in rows:
        if time:
            times[rank][transport] = time
    return max(times.values(), key=lambda own: sum(own.values()), default={})


def dominant_transport(times: Mapping[str, int], language: Language) -> str:
    """RDMA between hosts or SDMA inside one (HCCS, PCIE, SIO), by time; msadvisor compared bytes."""
    if not times:
        return _word("no_links", language)
    kinds = {"RDMA": 0, "SDMA": 0}
    for transport, time in times.items():
        kind = "SDMA" if transport in ("HCCS", "PCIE", "SIO", "SDMA") else transport
        kinds[kind] = kinds.get(kind, 0) + time
    kind = max(kinds, key=lambda name: kinds[name])
    most, total = f"{kinds[kind] / 1e6:.3f}", f"{sum(kinds.values()) / 1e6:.3f}"
    return _word("bottleneck", language, kind=kind, time=most, total=total)


def _row(finding: Finding) -> tuple[str, ...]:
    first = finding.advice[0] if finding.advice else ""
    return (finding.title, finding.severity, f"{finding.gain.percent:.2f}", first)


def _word(key: str, language: Language, **values: object) -> str:
    return text(f"output.msadvisor.{key}", language, **values)
