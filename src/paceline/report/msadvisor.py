"""What msadvisor's HCCL knowledge base used to say, from our diagnosis: overview lines and its result JSON.

The contract (facts of that tool): classType "1" = whole model; errorCode "0" = something to improve was found,
"1" = nothing; extendResult holds lists (type "0") and tables (type "1"), all values as strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline.advice.case import Case
from paceline.advice.finding import Diagnosis, Finding
from paceline.advice.knowledge import load_entry
from paceline.advice.present import title
from paceline.analysis.critical_path import OperatorTime, communication_operators, critical_path
from paceline.run.run import Run

TOP = 3
_WORDS = {
    "summary": ("Communication operator bottleneck analysis result as follows, See hccl_analysis_result.html for details",
                "通信算子瓶颈分析结果如下，详见 hccl_analysis_result.html"),
    "operator": ("{name} hccl analysis result:", "{name} 通信分析结果："),
    "path": ("on the critical path {serial:.3f} ms serial and {overlapped:.3f} ms overlapped, in {count} executions",
             "关键路径上串行 {serial:.3f} ms、被掩盖 {overlapped:.3f} ms，共执行 {count} 次"),
    "last": ("rank {rank} arrived last in {count} of them", "其中 {count} 次由 {rank} 号卡最后到达"),
    "slow": ("There is a slow rank, its rank id is {ranks}: {title}", "存在慢卡，卡号 {ranks}：{title}"),
    "even": ("There is no slow rank in the current communication", "当前通信中没有慢卡"),
    "bottleneck": ("{kind} Communication is the Dominated Bottleneck ({time:.3f} of {whole:.3f} ms of transfer time)",
                   "{kind} 通信是主要瓶颈（传输时间 {whole:.3f} ms 中占 {time:.3f} ms）"),
    "no_links": ("The recording does not tell which kind of link the time was spent on", "数据中没有链路类型的耗时"),
    "none": ("No communication operator is on the critical path", "关键路径上没有通信算子"),
    "findings": ("Diagnosis", "诊断结论"),
    "columns": ("Finding|Severity|Gain(%)|Advice", "结论|严重程度|修复收益(%)|建议"),
}  # fmt: skip


@dataclass(frozen=True)
class Advice:
    """What is said about one communication operator."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """The overview on screen and the result JSON hold the same."""

    summary: str
    problem: bool
    operators: tuple[Advice, ...]
    findings: tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]
    """Title, columns, rows."""

    def as_json(self) -> dict[str, Any]:
        table, columns, rows = self.findings
        extended: list[dict[str, Any]] = [
            {"type": "0", "extendTitle": advice.title, "dataType": ["0"], "key": [], "value": list(advice.lines)}
            for advice in self.operators
        ]
        if rows:
            kinds = ["0", "0", "2", "0"]
            extended.append({"type": "1", "extendTitle": table, "dataType": kinds, "key": list(columns),
                             "value": [list(row) for row in rows]})  # fmt: skip
        error_code = "0" if self.problem else "1"
        return {"classType": "1", "errorCode": error_code, "summary": self.summary, "extendResult": extended}


def examine(run: Run, diagnosis: Diagnosis, *, steps: tuple[int, ...] | None = None, language: str = "en") -> Result:
    """The top communication operators of the critical path, who is slow, and where transfer time goes."""
    replay = Case(run, steps).replay
    operators = communication_operators(run, replay, critical_path(replay))[:TOP]
    verdict = _slow_rank(diagnosis, language)
    advice = [_advice(run, operator, verdict, (steps, language)) for operator in operators]
    if not advice:
        advice = [Advice(_word("none", language), (verdict, dominated(_times(run, steps, None), language)))]
    rows = tuple(_row(finding, language) for finding in diagnosis.findings)
    columns = tuple(_word("columns", language).split("|"))
    problem = any(finding.severity != "info" for finding in diagnosis.findings)
    return Result(_word("summary", language), problem, tuple(advice), (_word("findings", language), columns, rows))


def _advice(run: Run, operator: OperatorTime, verdict: str, how: tuple[tuple[int, ...] | None, str]) -> Advice:
    steps, language = how
    path = _word("path", language, serial=operator.serial / 1e6, overlapped=operator.overlapped / 1e6,
                 count=operator.count)  # fmt: skip
    last = _word("last", language, rank=operator.last, count=operator.last_count)
    times = _times(run, steps, operator.name) or _times(run, steps, None)
    lines = (verdict, dominated(times, language), f"{path}; {last}")
    return Advice(_word("operator", language, name=operator.name), lines)


def _slow_rank(diagnosis: Diagnosis, language: str) -> str:
    """From the diagnosis: the first finding that names some ranks for what they do, not for a link between them."""
    for finding in diagnosis.findings:
        subject = finding.subject
        some = 0 < len(subject.ranks) < diagnosis.run["ranks"]
        if some and not subject.links and not subject.stages and finding.severity != "info":
            ranks = ", ".join(map(str, subject.ranks))
            return _word("slow", language, ranks=ranks, title=title(finding, language))
    return _word("even", language)


def _times(run: Run, steps: tuple[int, ...] | None, name: str | None) -> dict[str, int]:
    """ns of transfer per transport: of one operator by its packets, or of all links."""
    chosen = "true" if steps is None else f"step IN ({', '.join(map(str, steps))})"
    run.load(["packets", "links"])
    if name is not None:
        rows = run.connection.execute(
            f"SELECT transport, sum(duration)::BIGINT FROM packets WHERE name = ? AND {chosen} GROUP BY transport",
            [name],
        ).fetchall()
    else:
        rows = run.connection.execute(
            f"SELECT transport, sum(duration)::BIGINT FROM links WHERE transport <> 'LOCAL' AND {chosen} GROUP BY transport"
        ).fetchall()
    return {transport: time for transport, time in rows if time}


def dominated(times: Mapping[str, int], language: str) -> str:
    """RDMA between hosts or SDMA inside one (HCCS, PCIE, SIO), by time; the old tool compared bytes."""
    if not times:
        return _word("no_links", language)
    kinds = {"RDMA": 0, "SDMA": 0}
    for transport, time in times.items():
        kind = "SDMA" if transport in ("HCCS", "PCIE", "SIO", "SDMA") else transport
        kinds[kind] = kinds.get(kind, 0) + time
    kind = max(kinds, key=lambda name: kinds[name])
    return _word("bottleneck", language, kind=kind, time=kinds[kind] / 1e6, whole=sum(kinds.values()) / 1e6)


def _row(finding: Finding, language: str) -> tuple[str, ...]:
    advice = load_entry(finding.id).text(language).advice
    return (title(finding, language), finding.severity, f"{finding.gain.percent:.2f}", advice[0] if advice else "")


def _word(key: str, language: str, **values: object) -> str:
    return _WORDS[key][int(language == "zh")].format(**values)
