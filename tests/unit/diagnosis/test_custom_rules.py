"""Rules of the user's own: what they measure, what they gain, and what a bad file is told."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from paceline.core.errors import FormatError, PacelineError, UsageError
from paceline.core.plugins import Plugin
from paceline.core.schema import TABLES
from paceline.diagnosis import custom_rules
from paceline.diagnosis.custom_rules import CustomRule, find_rule, load_rule, parse_rule
from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule_finding import PredictedGain, Quantity, RuleFinding
from support.small_cluster import MS, SmallCluster, steady_cluster

TEXTS = "".join(
    f'[{language}]\ntitle = "{{who}}"\nsummary = "s"\nmeaning = "m"\nmeasured = "e"\nadvice = ["a"]\n'
    for language in ("en", "zh")
)
SUM = 'table = "kernels"\ncolumn = "duration"\nmetric = "sum"\n'


def rule(when: str, id: str = "too-much") -> CustomRule:
    return parse_rule(f'id = "{id}"\n[when]\n{when}\n{TEXTS}'.encode(), Path("own.toml"))


def problem(when: str, **more: Any) -> str:
    with pytest.raises(FormatError) as error:
        rule(when, **more)
    assert error.value.file == Path("own.toml")
    return str(error.value).removeprefix("own.toml: ")


def kernel(rank: int, step: int | None, duration: float, **more: Any) -> dict[str, Any]:
    return {"rank": rank, "step": step, "type": "MatMul", "core": "AI_CORE", "duration": round(duration * MS), **more}


def cluster() -> SmallCluster:
    """Self time of the ranks 120, 100 and 100 ms; a step lasts 130 ms."""
    return steady_cluster([[120, 120], [100, 100], [100, 100]], host=["a", "b", "b"])


KERNELS = [
    *(kernel(0, step, time) for step, time in ((1, 10), (1, 20), (2, 30))),
    *(kernel(1, step, time) for step, time in ((1, 4), (1, 4), (2, 8))),
    kernel(2, 1, 12),
]
"""Of the ranks, in the two steps: 60, 16 and 12 ms."""


# -- what they measure ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "values", "unit", "shown", "shown_unit"),
    [
        ("sum", (30, 8, 6), "ms_per_step", 30, "ms"),
        ("mean", (20, 16 / 3, 12), "ms", 20, "ms"),
        ("max", (30, 8, 12), "ms", 30, "ms"),
        ("share", (60 / 260, 16 / 260, 12 / 260), "%", 23.077, "%"),
    ],
)
def test_metrics(metric: str, values: tuple[float, ...], unit: str, shown: float, shown_unit: str) -> None:
    [finding] = rule(f'table = "kernels"\ncolumn = "duration"\nmetric = "{metric}"\nabove = {max(values) * 0.999}')(
        cluster().context(kernels=KERNELS)
    )
    assert finding.subject == Subject(ranks=(0,), hosts=("a",))
    median = sorted(values)[1] * (100 if metric == "share" else 1)
    [measured] = finding.evidence
    assert (measured.key, measured.unit) == (f"column_{metric}", unit)
    assert measured.values == {"column": "kernels.duration"}
    assert (measured.value, measured.peers) == (pytest.approx(shown, rel=1e-4), pytest.approx(median, rel=1e-4))
    assert finding.amount == Quantity(measured.value, shown_unit, ",.4g")
    assert isinstance(finding.detail, Quantity) and finding.detail.value == pytest.approx(0.999 * shown, rel=1e-3)
    assert (finding.id, finding.confidence, finding.min_severity, finding.max_severity) == (
        "too-much",
        1.0,
        "low",
        "high",
    )
    assert finding.entry is not None and finding.entry.id == "too-much"


@pytest.mark.parametrize(
    ("limit", "ranks"),
    [
        ("above = 30", ()),
        ("above = 29.9", (0,)),
        ("above = 6", (0, 1)),
        ("below = 6", ()),
        ("below = 8", (2,)),
        ("below = 8.1", (1, 2)),
        ("times_peers = 3.75", ()),  # of 8 ms, the median: 30
        ("times_peers = 3.7", (0,)),
        ("times_peers = 0.75", ()),
        ("times_peers = 0.8", (2,)),
    ],
)
def test_limits(limit: str, ranks: tuple[int, ...]) -> None:
    found = rule(SUM + limit)(cluster().context(kernels=KERNELS))
    assert [finding.subject.ranks for finding in found] == ([ranks] if ranks else [])


@pytest.mark.parametrize(
    ("limit", "amount", "detail"),
    [("above = 7", 30, 7), ("below = 9", 6, 9), ("times_peers = 0.8", 6, 8), ("times_peers = 2", 30, 8)],
)
def test_the_worst_value_is_shown_beside_the_limit_or_the_median(limit: str, amount: float, detail: float) -> None:
    [finding] = rule(SUM + limit)(cluster().context(kernels=KERNELS))
    assert finding.amount == Quantity(amount, "ms", ",.4g") and finding.detail == Quantity(detail, "ms", ",.4g")


def test_peers_need_two_ranks() -> None:
    context = cluster().context(kernels=KERNELS[:3])
    assert rule(SUM + "times_peers = 0.5")(context) == [] and rule(SUM + "times_peers = 1.5")(context) == []
    assert rule(SUM + "above = 1")(context) != []
    assert rule(SUM + "below = 1e9\nwhere = { type = 'Add' }")(context) == []  # no row, no value
    assert rule(SUM + "times_peers = 2")(cluster().context(kernels=[*KERNELS[:3], kernel(2, 1, 4)])) == []  # 30 / 16


def test_rows_are_chosen_by_their_values_and_steps() -> None:
    kernels = [
        kernel(0, 1, 8),
        kernel(0, None, 8),  # of no step: belongs to all of them
        kernel(0, 9, 500),  # a step that was not recorded
        kernel(0, 1, 500, type="Add"),
        kernel(0, 1, 500, stream=5),
        {**kernel(0, 1, 0), "duration": None},
        {**kernel(0, 1, 500), "rank": None},
    ]
    for row in kernels:
        row.setdefault("stream", 3)
    context = cluster().context(kernels=kernels)
    [finding] = rule(SUM + "above = 0\nwhere = { type = 'MatMul', stream = 3 }")(context)
    assert finding.evidence[0].value == 8  # 16 ms in two steps
    [finding] = rule(SUM.replace("sum", "mean") + "above = 0\nwhere = { type = 'MatMul', stream = 3 }")(context)
    assert finding.evidence[0].value == 8


def test_only_the_steps_that_are_diagnosed_count() -> None:
    [finding] = rule(SUM + "above = 29")(cluster().context(steps=(2,), kernels=KERNELS))
    assert finding.evidence[0].value == 30
    [finding] = rule(SUM.replace("sum", "share") + "above = 0.2")(cluster().context(steps=(2,), kernels=KERNELS))
    assert finding.evidence[0].value == 23.077  # 30 of 130 ms


def test_a_table_without_steps_is_summed_as_it_is() -> None:
    operators = [{"rank": rank, "time": 6 * MS, "count": 5} for rank in (0, 0, 1)]
    context = cluster().context(operators=operators)
    [finding] = rule('table = "operators"\ncolumn = "time"\nmetric = "sum"\nabove = 10')(context)
    assert finding.subject.ranks == (0,)
    # The operators ran in two steps: 12 ms are not 12 ms per step, and no gain is known.
    assert finding.amount == Quantity(12, "ms", ",.4g") and finding.gain == PredictedGain(130, 130)
    [finding] = rule('table = "operators"\ncolumn = "count"\nmetric = "sum"\nabove = 9')(context)
    assert finding.amount == Quantity(10, "", ",.4g") and finding.evidence[0].unit == ""


def test_a_rank_without_recorded_steps_has_as_many_as_there_are() -> None:
    made = cluster()
    made.steps = [row for row in made.steps if row["rank"] != 2]
    context = made.context(kernels=KERNELS)
    [finding] = rule(SUM + "below = 7")(context)
    assert finding.evidence[0].value == 6  # 12 ms in two steps
    # Without a duration there is no share.
    assert [f.subject.ranks for f in rule(SUM.replace("sum", "share") + "below = 1")(context)] == [(0, 1)]


# -- what they gain ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "fixed"),
    [
        (SUM + "above = 18", 118),  # 30 → 18: rank 0 needs 108 ms
        (SUM.replace("sum", "mean") + "above = 15", 122.5),  # a quarter of 30 ms less
        (SUM.replace("sum", "max") + "above = 18", 130),
        (SUM.replace("sum", "share") + f"above = {30 / 260}", 115),  # half of 30 ms less
        (SUM + "above = -10", 104),  # without the 30, 8 and 6 ms rank 2 is the slowest: 94 ms
        (SUM + "below = 40", 130),
        (SUM.replace("duration", "wait") + "above = 1", 130),  # not the rank's own time
        ('table = "steps"\ncolumn = "free"\nmetric = "sum"\nabove = 20', 120),
        ('table = "steps"\ncolumn = "bubble"\nmetric = "sum"\nabove = 20', 130),
    ],
)
def test_the_gain_is_a_step_with_the_value_at_its_limit(when: str, fixed: float) -> None:
    made = steady_cluster(
        [[120, 120], [100, 100], [100, 100]], columns={"free": [30, 1, 1], "bubble": [30, 1, 1]}, host=["a", "b", "b"]
    )
    kernels = [{**row, "wait": 2 * MS} for row in KERNELS]
    [finding] = rule(when)(made.context(kernels=kernels))
    assert (finding.gain.step_ms_now, finding.gain.step_ms_fixed) == (130, pytest.approx(fixed))


def test_kernels_that_communicate_are_not_self_time() -> None:
    kernels = [kernel(0, 1, 20), kernel(0, 1, 40, core="COMMUNICATION")]
    [finding] = rule(SUM + "above = 15")(cluster().context(kernels=kernels))
    # 60 ms in two steps: 30; half of it is too much, but only 10 ms per step are the rank's own.
    assert finding.amount == Quantity(30, "ms", ",.4g") and finding.gain.step_ms_fixed == pytest.approx(125)


def test_nothing_is_gained_where_there_is_nothing() -> None:
    [finding] = rule(SUM + "above = -1")(cluster().context(kernels=[kernel(0, 1, 0)]))
    assert finding.gain == PredictedGain(130, 130)


# -- what a file may contain ------------------------------------------------------------------------------------------


def test_a_rule_from_a_file(tmp_path: Path) -> None:
    text = (
        f'id = "own"\n[when]\n{SUM}above = 3\nat_least = "medium"\nat_most = "medium"\nwhere = {{ rank = 1 }}\n{TEXTS}'
    )
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    loaded = find_rule(str(tmp_path / "own.toml"))
    assert isinstance(loaded, CustomRule) and loaded == load_rule(tmp_path / "own.toml")
    trigger = loaded.trigger
    assert (trigger.table, trigger.column, trigger.metric) == ("kernels", TABLES["kernels"].column("duration"), "sum")
    assert (trigger.where, trigger.limit, trigger.threshold) == ((("rank", 1),), "above", 3.0)
    assert (trigger.min_severity, trigger.max_severity) == ("medium", "medium")
    for value, name in ((trigger, "table"), (loaded, "entry")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, "x")


def condition(text: str) -> str:
    return f"{SUM}above = 1\nwhere = {{ {text} }}"


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("", "when.table: unknown table None; known: ranks, groups"),
        ('table = "nothing"', "when.table: unknown table 'nothing'; known: ranks"),
        ('table = ["kernels"]', "when.table: unknown table ['kernels']"),
        ('table = "kernels"\nspeed = 1', "when.speed: unknown key; known: table, column, metric, where, above, below, times_"),
        ('table = "kernels"', "when.metric: expected one of sum, mean, max, share, got None"),
        (SUM.replace("sum", "most"), "when.metric: expected one of sum, mean, max, share, got 'most'"),
        (
            SUM.replace("duration", "start"),
            "when.column: kernels has no 'start' that can be measured; possible: stream, duration, wait",
        ),
        (SUM.replace("duration", "name"), "when.column: kernels has no 'name' that"),
        (SUM.replace("duration", "step"), "when.column: kernels has no 'step' that"),
        (SUM.replace("kernels", "groups"), "when.column: groups has no 'duration' that can be measured; possible: confidence"),
        ('table = "kernels"\nmetric = "sum"\nabove = 1', "when.column: kernels has no None that can be measured"),
        (
            'table = "kernels"\ncolumn = "stream"\nmetric = "share"\nabove = 1',
            "when.metric: share is only for columns that hold a length of time; kernels.stream is not one",
        ),
        (SUM, "when.above: expected exactly one of above, below, times_peers, got 0"),
        (SUM + "above = 1\nbelow = 2", "when.below: expected exactly one of above, below, times_peers, got 2"),
        (SUM + "above = true", "when.above: expected a number, got True"),
        (SUM + "below = '1'", "when.below: expected a number, got '1'"),
        (SUM + "above = nan", "when.above: expected a number, got nan"),
        (SUM + "above = 1e300", "when.above: expected a number, got 1e+300"),
        (SUM + "above = -1e300", "when.above: expected a number, got -1e+300"),
        (SUM + "times_peers = 0", "when.times_peers: expected a factor above 0 and not 1, got 0"),
        (SUM + "times_peers = 1.0", "when.times_peers: expected a factor above 0 and not 1, got 1.0"),
        (SUM + "above = 1\nat_least = 'huge'", "when.at_least: expected one of high, medium, low, info, got 'huge'"),
        (SUM + "above = 1\nat_most = 3", "when.at_most: expected one of high, medium, low, info, got 3"),
        (SUM + "above = 1\nwhere = 3", "when.where: expected at most 16 of column = value, got 3"),
        (condition("colour = 3"), "when.where.'colour': kernels has no such column; known: rank, step, name"),
        (condition("rank = 'a'"), "when.where.rank: expected BIGINT, got 'a'"),
        (condition("rank = 1.5"), "when.where.rank: expected BIGINT, got 1.5"),
        (condition("rank = true"), "when.where.rank: expected BIGINT, got True"),
        (condition("type = 3"), "when.where.type: expected VARCHAR, got 3"),
        (condition("type = [3]"), "when.where.type: expected VARCHAR, got [3]"),
        (condition(f"rank = {2**63}"), f"when.where.rank: expected BIGINT, got {2**63}"),
        (condition(f"rank = {-(2**63) - 1}"), f"when.where.rank: expected BIGINT, got {-(2**63) - 1}"),
        (condition(f"type = '{'x' * 1001}'"), f"when.where.type: expected VARCHAR, got '{'x' * 76}…"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_with_its_key(when: str, expected: str) -> None:
    assert problem(when).startswith(expected)


@pytest.mark.parametrize(
    "when",
    [
        SUM + "above = 0",
        SUM + "above = -9.9e299",
        SUM + "times_peers = 0.001",
        SUM + "times_peers = 2",
        SUM + "below = 1\nat_most = 'info'",
        condition(f"rank = {2**63 - 1}"),
        condition(f"rank = {-(2**63)}"),
        condition(f"type = '{'x' * 1000}'"),
        'table = "counters"\ncolumn = "value"\nmetric = "max"\nabove = 1\nwhere = { value = 1, series = "MHz" }',
        'table = "counters"\ncolumn = "value"\nmetric = "max"\nabove = 1\nwhere = { value = 0.5 }',
        'table = "collectives"\ncolumn = "duration"\nmetric = "share"\nabove = 1',
    ],
)
def test_what_a_file_may_say(when: str) -> None:
    assert rule(when).entry.id == "too-much"


def test_a_condition_on_a_number_is_a_finite_number() -> None:
    counters = 'table = "counters"\ncolumn = "value"\nmetric = "max"\nabove = 1\n'
    assert problem(counters + "where = { value = inf }") == "when.where.value: expected DOUBLE, got inf"
    assert problem(counters + "where = { value = 'a' }") == "when.where.value: expected DOUBLE, got 'a'"


@pytest.mark.parametrize(("conditions", "fits"), [(12, True), (17, False)])
def test_at_most_16_conditions(conditions: int, fits: bool) -> None:
    names = [*TABLES["kernels"].column_names, *(f"x{n}" for n in range(9))][:conditions]
    values = {"rank": 1, "step": 1, "stream": 1, "start": 1, "duration": 1, "wait": 1, "launch": 1}
    text = ", ".join(f"{name} = {values.get(name, repr('a'))}" for name in names)
    if fits:
        assert len(rule(condition(text)).trigger.where) == conditions
    else:
        assert problem(condition(text)).startswith("when.where: expected at most 16 of column = value, got {'rank'")


def test_the_sixteenth_condition_is_still_looked_at() -> None:
    names = [*TABLES["kernels"].column_names[:15], "x1"]
    values = {"rank": 1, "step": 1, "stream": 1, "start": 1, "duration": 1, "wait": 1, "launch": 1}
    text = ", ".join(f"{name} = {values.get(name, repr('a'))}" for name in names)
    assert len(names) == 16 and problem(condition(text)).startswith("when.where.'x1': kernels has no such column")


@pytest.mark.parametrize(
    ("table", "measured"),
    [
        ("steps", "duration, data_wait, forward_backward, tail, computing, communication, overlapped, exposed, free, bubble, "
         "preparing"),
        ("collectives", "duration, transit, wait, sync, idle, bytes"),
        ("transfers", "bytes, duration, wait"),
        ("events", "duration, depth"),
        ("counters", "value"),
        ("memory", "position, size, lifetime, allocated, reserved, active"),
        ("input_steps", "size, capacity, get_time, push_time, total_time"),
        ("ranks", "none"),
    ],
)  # fmt: skip
def test_moments_and_numbers_of_things_are_not_measured(table: str, measured: str) -> None:
    assert problem(f'table = "{table}"\ncolumn = "x"\nmetric = "sum"').endswith(f"possible: {measured}")


def test_ids_of_ours_and_files_without_a_trigger() -> None:
    assert problem(SUM + "above = 1", id="slow-rank") == "id: slow-rank is an id of the knowledge base; choose another"
    with pytest.raises(FormatError, match=r"own.toml: when: the table \[when\] is missing"):
        parse_rule(f'id = "own"\n{TEXTS}'.encode(), Path("own.toml"))
    with pytest.raises(FormatError, match=r"own.toml: when: the table \[when\] is missing"):
        parse_rule(f'id = "own"\nwhen = 3\n{TEXTS}'.encode(), Path("own.toml"))


@pytest.mark.parametrize(("length", "shown"), [(78, f"'{'y' * 78}'"), (79, f"'{'y' * 76}…")])
def test_values_are_cut_to_80_characters(length: int, shown: str) -> None:
    assert problem(condition(f"rank = '{'y' * length}'")) == f"when.where.rank: expected BIGINT, got {shown}"


# -- rules of installed packages --------------------------------------------------------------------------------------

FOUND = RuleFinding("slow-rank", Subject(), PredictedGain(1, 1), 1.0)


def plug_in(monkeypatch: pytest.MonkeyPatch, what: object) -> None:
    point = Plugin("paceline.rules", "mine", "package:thing", "package")
    monkeypatch.setattr(custom_rules, "other_plugins", lambda group: {"mine": point})
    monkeypatch.setattr(custom_rules, "load_entry_point", lambda found: what)


def test_a_rule_of_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = rule(SUM + "above = 1").entry
    own = RuleFinding("own", Subject(), PredictedGain(1, 1), 1.0, entry=entry)
    plug_in(monkeypatch, lambda context: [FOUND, own])
    assert find_rule("entry:mine")(None) == [FOUND, own]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "result", [None, (FOUND,), [3], [FOUND, RuleFinding("own", Subject(), PredictedGain(1, 1), 1.0)]]
)
def test_a_rule_of_a_package_that_returns_something_else(monkeypatch: pytest.MonkeyPatch, result: object) -> None:
    plug_in(monkeypatch, lambda context: result)
    with pytest.raises(PacelineError, match="--rules entry:mine: expected a list of RuleFinding"):
        find_rule("entry:mine")(None)  # type: ignore[arg-type]


def test_names_that_no_package_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, 3)
    with pytest.raises(UsageError, match="package:thing is not a function"):
        find_rule("entry:mine")
    with pytest.raises(UsageError, match="--rules entry:other: no installed package") as error:
        find_rule("entry:other")
    assert error.value.hint == "known: mine"
    monkeypatch.setattr(custom_rules, "other_plugins", lambda group: {})
    with pytest.raises(UsageError) as error:
        find_rule("entry:other")
    assert error.value.hint == "known: none"
