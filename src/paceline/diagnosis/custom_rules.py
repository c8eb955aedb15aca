"""Custom rules: from a TOML file, which is checked and never run, or from an installed package.

A file is a knowledge base entry (see knowledge.py) with a trigger:

    [when]
    table = "kernels"                      # docs/tables.md
    column = "duration"
    metric = "share"                       # sum, mean, max; share = sum as a share of the step
    where = { type = "DropOutDoMask" }     # optional: rows with all of these values
    above = 0.03                           # or below, or times_peers
    at_least = "medium"                    # optional, also at_most: bounds of the severity

Per rank r, over the chosen steps:

    sum(r)   = Σ column / number of steps            (tables without a step: Σ column)
    mean(r)  = Σ column / rows,  max(r) = the largest
    share(r) = Σ column / Σ duration of the steps    (columns that hold a length of time)
    fires    = value > above | value < below | value > times_peers · median over ranks (< when times_peers < 1)

Times are in ms, shares are fractions, everything else is in the unit of docs/tables.md. SQL is built from known names
only; values are bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from paceline.core.errors import FormatError, PacelineError, UsageError
from paceline.core.plugins import load_entry_point, other_plugins
from paceline.core.schema import BIGINT, BOOLEAN, DOUBLE, TABLES, VARCHAR, ColumnSchema
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.finding import SEVERITIES, Severity, Subject
from paceline.diagnosis.knowledge import IDS, KnowledgeEntry, parse_entry, parse_toml, read_small_file
from paceline.diagnosis.rule import ENTRY_POINTS, RuleFunction
from paceline.diagnosis.rule_finding import MeasuredValue, PredictedGain, Quantity, RuleFinding
from paceline.replay.fixes import reduce_self_time

_SEE = "see docs/custom-rules.md"
METRICS = ("sum", "mean", "max", "share")
LIMITS = ("above", "below", "times_peers")
MOST_CONDITIONS = 16
MOST_CHARACTERS = 1_000

_KEYS = ("table", "column", "metric", "where", *LIMITS, "at_least", "at_most")
_MOMENTS = {
    "steps": {"start", "end"},
    "kernels": {"start", "launch"},
    "collectives": {"start"},
    "events": {"start"},
    "counters": {"time"},
    "memory": {"time"},
    "input_steps": {"time"},
    "ranks": {"clock_offset"},
}
_SELF_TIME = {
    "kernels": {"duration"},
    "steps": {"computing", "forward_backward", "free", "data_wait", "preparing", "tail"},
}
"""Columns that are part of self time: having less of it shortens the step."""

Value = str | int | float | bool


@dataclass(frozen=True)
class Trigger:
    """When a rule fires; everything in it was checked."""

    table: str
    column: ColumnSchema
    metric: str
    where: tuple[tuple[str, Value], ...]
    limit: str
    threshold: float
    min_severity: Severity
    max_severity: Severity

    @property
    def is_low(self) -> bool:
        """Fires on too little instead of too much."""
        return self.limit == "below" or (self.limit == "times_peers" and self.threshold < 1)

    def fires(self, value: float, limit: float) -> bool:
        return value < limit if self.is_low else value > limit

    @property
    def is_time(self) -> bool:
        return self.column.unit == "ns"

    @property
    def is_self_time(self) -> bool:
        return self.column.name in _SELF_TIME.get(self.table, ())


@dataclass(frozen=True)
class CustomRule:
    """A rule from a file; called like ours."""

    entry: KnowledgeEntry
    trigger: Trigger

    def __call__(self, context: DiagnosisContext) -> list[RuleFinding]:
        trigger = self.trigger
        measured = _measure(context, trigger)
        if not measured or (trigger.limit == "times_peers" and len(measured) < 2):
            return []
        typical = median(entry.value for entry in measured.values())
        limit = trigger.threshold * (typical if trigger.limit == "times_peers" else 1.0)
        fired = {rank: entry for rank, entry in measured.items() if trigger.fires(entry.value, limit)}
        if not fired:
            return []
        worst = (min if trigger.is_low else max)(entry.value for entry in fired.values())
        gain = context.no_gain() if trigger.is_low else _gain(context, trigger, fired, limit)
        rank_rows = [i for i, info in enumerate(context.ranks) if info.rank in fired]
        return [
            RuleFinding(
                id=self.entry.id,
                subject=Subject(ranks=tuple(sorted(fired)), hosts=context.hosts_of(rank_rows)),
                gain=gain,
                confidence=1.0,
                amount=_quantity(worst, trigger),
                detail=_quantity(typical if trigger.limit == "times_peers" else limit, trigger),
                evidence=(_measurement(worst, typical, trigger),),
                min_severity=trigger.min_severity,
                max_severity=trigger.max_severity,
                entry=self.entry,
            )
        ]


def find_rule(named: str) -> RuleFunction:
    """What `--rules` names: a file, or entry:NAME of an installed package."""
    if named.startswith("entry:"):
        return _from_package(named.removeprefix("entry:"))
    return load_rule(Path(named))


def load_rule(path: Path) -> CustomRule:
    """A rule from a file; FormatError says what is wrong with it, by file and key."""
    return parse_rule(read_small_file(path), path)


def parse_rule(content: bytes, path: Path) -> CustomRule:
    data = parse_toml(content, path)
    when = data.pop("when", None)
    entry = parse_entry(data, path)
    if entry.id in IDS:
        raise FormatError(f"{path}: id: {entry.id} is an id of the knowledge base; choose another", file=path)
    if not isinstance(when, dict):
        raise FormatError(f"{path}: when: the table [when] is missing", file=path)
    problem = next(_problems(when), None)
    if problem:
        raise FormatError(f"{path}: when.{problem}", file=path)
    limit = next(key for key in LIMITS if key in when)
    trigger = Trigger(
        table=when["table"],
        column=TABLES[when["table"]].column(when["column"]),
        metric=when["metric"],
        where=tuple(when.get("where", {}).items()),
        limit=limit,
        threshold=float(when[limit]),
        min_severity=when.get("at_least", "low"),
        max_severity=when.get("at_most", "high"),
    )
    return CustomRule(entry, trigger)


# -- what a file may contain ----------------------------------------------------------------------------------------------


def _problems(when: Mapping[str, object]) -> Iterator[str]:
    """What keeps this from being a trigger, with its key; later checks rely on earlier ones."""
    for key in when.keys() - set(_KEYS):
        yield f"{key}: unknown key; known: {', '.join(_KEYS)}"
    table = when.get("table")
    if not isinstance(table, str) or table not in TABLES:
        yield f"table: unknown table {table!r}; known: {', '.join(TABLES)}"
        return
    if when.get("metric") not in METRICS:
        yield f"metric: expected one of {', '.join(METRICS)}, got {when.get('metric')!r}"
        return
    yield from _column_problems(table, when.get("column"), when["metric"])
    yield from _condition_problems(table, when.get("where", {}))
    yield from _limit_problems(when)
    for key in ("at_least", "at_most"):
        if when.get(key, "low") not in SEVERITIES:
            yield f"{key}: expected one of {', '.join(SEVERITIES)}, got {when[key]!r}"


def _column_problems(table: str, column: object, metric: object) -> Iterator[str]:
    names = [entry.name for entry in TABLES[table].columns if _is_measured(table, entry)]
    if column not in names:
        yield f"column: {table} has no {column!r} that can be measured; possible: {', '.join(names) or 'none'}"
    elif metric == "share" and TABLES[table].column(str(column)).unit != "ns":
        yield f"metric: share is only for columns that hold a length of time; {table}.{column} is not one"


_NAMES = frozenset(
    {"rank", "step", "sequence", "src", "dst", "peer", "index", "device", "stage", "op_id", "dp", "tp", "cp", "ep"}
)


def _is_measured(table: str, column: ColumnSchema) -> bool:
    """Numbers, but no moments and no ranks: sums of these mean nothing."""
    is_name = column.name in _NAMES
    return column.type in (BIGINT, DOUBLE) and not is_name and column.name not in _MOMENTS.get(table, ())


def _condition_problems(table: str, where: object) -> Iterator[str]:
    if not isinstance(where, dict) or len(where) > MOST_CONDITIONS:
        yield f"where: expected at most {MOST_CONDITIONS} of column = value, got {_short(where)}"
        return
    for name, value in where.items():
        if name not in TABLES[table].column_names:
            yield f"where.{_short(name)}: {table} has no such column; known: {', '.join(TABLES[table].column_names)}"
        elif not _fits(value, TABLES[table].column(name).type):
            yield f"where.{name}: expected {TABLES[table].column(name).type}, got {_short(value)}"


def _fits(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == BOOLEAN
    if isinstance(value, str):
        return kind == VARCHAR and len(value) <= MOST_CHARACTERS
    if isinstance(value, int):
        return kind in (BIGINT, DOUBLE) and -(2**63) <= value < 2**63
    return isinstance(value, float) and kind == DOUBLE and math.isfinite(value)


def _limit_problems(when: Mapping[str, object]) -> Iterator[str]:
    given = [key for key in LIMITS if key in when]
    if len(given) != 1:
        yield f"{given[1] if given else 'above'}: expected exactly one of {', '.join(LIMITS)}, got {len(given)}"
        return
    value = when[given[0]]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        yield f"{given[0]}: expected a number, got {_short(value)}"
    elif given == ["times_peers"] and (value <= 0 or value == 1):
        yield f"times_peers: expected a factor above 0 and not 1, got {value!r}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


# -- what a rule measures ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Measured:
    value: float
    self_time: float
    """Self time behind the value, ns per step."""


def _measure(context: DiagnosisContext, trigger: Trigger) -> dict[int, _Measured]:
    """By rank; ranks without a row are left out."""
    column = f'"{trigger.column.name}"'
    stepped = "step" in TABLES[trigger.table].column_names
    steps = [int(step) for step in context.timeline.steps.tolist()]
    conditions = [f'"{name}" = ?' for name, _ in trigger.where]
    values: list[object] = [value for _, value in trigger.where]
    if stepped:
        conditions.append("(step IS NULL OR list_contains(?, step))")
        values.append(steps)
    is_self = "core IS DISTINCT FROM 'COMMUNICATION'" if trigger.table == "kernels" else "true"
    context.run.load([trigger.table, "steps"])
    rows = context.run.connection.execute(
        f"""
        WITH
        chosen AS (
            SELECT rank, sum({column})::DOUBLE AS total, count({column}) AS count, max({column})::DOUBLE AS most,
                   coalesce(sum({column}) FILTER (WHERE {is_self}), 0)::DOUBLE AS self_time
            FROM {trigger.table} WHERE {" AND ".join([*conditions, f"{column} IS NOT NULL", "rank IS NOT NULL"])}
            GROUP BY rank
        ),
        walls AS (
            SELECT rank, count(DISTINCT step) AS steps, sum(duration)::DOUBLE AS duration FROM steps
            WHERE list_contains(?, step) GROUP BY rank
        )
        SELECT rank, total, count, most, self_time, coalesce(steps, ?), duration FROM chosen LEFT JOIN walls USING (rank)
        """,
        [*values, steps, max(1, len(steps))],
    ).fetchall()
    scale = 1e-6 if trigger.is_time and trigger.metric != "share" else 1.0
    measured = {}
    for rank, total, count, most, self_time, seen, duration in rows:
        value = {
            "sum": total / (seen if stepped else 1),
            "mean": total / count,
            "max": most,
            "share": total / duration if duration else math.nan,
        }[trigger.metric]
        if math.isfinite(value):
            measured[int(rank)] = _Measured(value * scale, self_time / seen)
    return measured


def _gain(context: DiagnosisContext, trigger: Trigger, fired: Mapping[int, _Measured], limit: float) -> PredictedGain:
    """The step with the value at its limit, where the value is self time; else no gain is known."""
    if not trigger.is_self_time or trigger.metric == "max":
        return context.no_gain()
    less = np.zeros(context.timeline.known.shape)
    for rank_row, info in enumerate(context.ranks):
        if entry := fired.get(info.rank):
            less[rank_row] = entry.self_time * min(1.0, 1 - limit / entry.value) if entry.value > 0 else 0.0
    return context.gain(reduce_self_time(context.replay, context.replay.costs, less))


def _measurement(worst: float, median: float, trigger: Trigger) -> MeasuredValue:
    return MeasuredValue(
        f"column_{trigger.metric}",
        _shown(worst, trigger),
        _shown(median, trigger),
        _unit(trigger),
        {"column": f"{trigger.table}.{trigger.column.name}"},
    )


def _unit(trigger: Trigger) -> str:
    if trigger.metric == "share":
        return "%"
    if trigger.is_time:
        return "ms_per_step" if trigger.metric == "sum" else "ms"
    return trigger.column.unit


def _shown(value: float, trigger: Trigger) -> float:
    return float(f"{100 * value if trigger.metric == 'share' else value:.5g}")


def _quantity(value: float, trigger: Trigger) -> Quantity:
    unit = "ms" if trigger.is_time and trigger.metric != "share" else _unit(trigger)
    return Quantity(_shown(value, trigger), unit, ",.4g")


# -- rules of installed packages --------------------------------------------------------------------------------------


def _from_package(name: str) -> RuleFunction:
    """A rule that an installed package registers; ours need no name, they are always applied."""
    registered = other_plugins(ENTRY_POINTS)
    if name not in registered:
        known = ", ".join(sorted(registered)) or "none"
        raise UsageError(f"--rules entry:{name}: no installed package registers this rule", hint=f"known: {known}")
    find = load_entry_point(registered[name])
    if not callable(find):
        raise UsageError(f"--rules entry:{name}: {registered[name].value} is not a function", hint=_SEE)

    def checked(context: DiagnosisContext) -> list[RuleFinding]:
        findings = find(context)
        for finding in findings if isinstance(findings, list) else [None]:
            if not isinstance(finding, RuleFinding) or (finding.entry is None and finding.id not in IDS):
                raise PacelineError(
                    f"--rules entry:{name}: expected a list of RuleFinding, with an entry where the id is new",
                    hint=_SEE,
                )
        return list(findings)

    return checked
