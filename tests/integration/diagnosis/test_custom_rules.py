"""Rules of the user's own: what they measure, what they gain, and what a bad or hostile file is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paceline
from paceline.core.errors import FormatError, PacelineError, UsageError
from paceline.core.schema import TABLES
from paceline.diagnosis import custom_rules
from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.custom_rules import find_rule, load_rule, parse_rule
from paceline.diagnosis.diagnose import diagnose
from paceline.diagnosis.rule import our_rules
from paceline.diagnosis.rule_finding import MeasuredValue
from paceline.run.run import Run
from paceline.simulate import ClusterSpec, simulate
from support.installed import install_package

TEXTS = """
[en]
title = "{who}: {amount}, not {detail}"
summary = "Too much."
meaning = "It should be less."
measured = "By adding up."
advice = ["Do less."]
[zh]
title = "{who}：{amount}，而非 {detail}"
summary = "太多。"
meaning = "应当更少。"
measured = "求和。"
advice = ["减少。"]
"""


def rule_text(when: str, id: str = "too-much") -> str:
    return f'id = "{id}"\n[when]\n{when}\n{TEXTS}'


def rule(when: str) -> custom_rules.CustomRule:
    return parse_rule(rule_text(when).encode(), Path("own.toml"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("own")
    simulate(folder / "run", ClusterSpec(hosts=1, devices=8, tp=2, pp=1, steps=4, seed=3), ["slow-rank:3:1.5"])
    with paceline.open(folder / "run", store=folder / "store") as opened:
        yield opened


def per_rank(run: Run, query: str) -> dict[int, float]:
    return {int(rank): float(value) for rank, value in run.sql(query).fetchall()}


# -- what they measure ------------------------------------------------------------------------------------------------


def test_a_share_of_the_step_above_a_limit_names_the_ranks_and_gains_what_is_over_it(run: Run) -> None:
    mine = per_rank(run, "SELECT rank, sum(duration) FROM kernels WHERE type = 'MatMulV2' GROUP BY rank")
    wall = per_rank(run, "SELECT rank, sum(duration) FROM steps GROUP BY rank")
    shares = {rank: mine[rank] / wall[rank] for rank in mine}
    limit = sorted(shares.values())[-2] + 1e-4  # only the slow rank is above
    found = rule(f"""
        table = "kernels"\ncolumn = "duration"\nmetric = "share"\nwhere = {{ type = "MatMulV2" }}\nabove = {limit}
    """)(DiagnosisContext(run))
    assert [finding.subject.ranks for finding in found] == [(3,)]
    assert found[0].evidence == (
        MeasuredValue(
            "column_share",
            pytest.approx(100 * shares[3], rel=1e-4),
            pytest.approx(100 * median(shares.values()), rel=1e-4),
            "%",
            {"column": "kernels.duration"},
        ),
    )
    # Everybody waits for rank 3: what it saves is saved by all. It is scaled down wherever it is spent.
    saved_ms = mine[3] / 4 / 1e6 * (1 - limit / shares[3])
    gain = found[0].gain
    assert gain.step_ms_now - gain.step_ms_fixed == pytest.approx(saved_ms, rel=0.1)


@pytest.mark.parametrize(
    ("metric", "sql"),
    [("sum", "sum(duration) / 4"), ("mean", "avg(duration)"), ("max", "max(duration)")],
)
def test_times_are_in_milliseconds_and_compared_with_the_median_of_the_ranks(run: Run, metric: str, sql: str) -> None:
    values = per_rank(run, f"SELECT rank, {sql} FROM kernels WHERE core = 'AI_CORE' GROUP BY rank")
    found = rule(f"""
        table = "kernels"\ncolumn = "duration"\nmetric = "{metric}"\nwhere = {{ core = "AI_CORE" }}\ntimes_peers = 1.3
    """)(DiagnosisContext(run))
    assert [finding.subject.ranks for finding in found] == [(3,)]
    evidence = found[0].evidence[0]
    assert evidence.value == pytest.approx(values[3] / 1e6, rel=1e-4)
    assert evidence.peers == pytest.approx(median(values.values()) / 1e6, rel=1e-4)
    assert (found[0].gain.percent > 1) == (metric != "max")  # of the longest kernel alone no gain is known


def test_too_little_is_found_too_and_gains_nothing(run: Run) -> None:
    found = rule('table = "steps"\ncolumn = "exposed"\nmetric = "sum"\ntimes_peers = 0.5')(DiagnosisContext(run))
    exposed = per_rank(run, "SELECT rank, sum(exposed) / 4 FROM steps GROUP BY rank")
    low = tuple(sorted(rank for rank, value in exposed.items() if value < 0.5 * median(exposed.values())))
    assert found[0].subject.ranks == low and 3 in low
    assert found[0].gain.percent == 0 and found[0].severity == "low"


def test_chosen_steps_alone_are_measured(run: Run) -> None:
    wanted = rule('table = "steps"\ncolumn = "computing"\nmetric = "sum"\nabove = 0')
    one = per_rank(run, "SELECT rank, max(computing) / 1e6 FROM steps WHERE step = 2 GROUP BY rank")
    assert wanted(DiagnosisContext(run, (2,)))[0].evidence[0].value == pytest.approx(max(one.values()), rel=1e-4)


def test_nothing_fires_without_rows_or_peers(run: Run) -> None:
    assert rule('table = "flops"\ncolumn = "flops"\nmetric = "max"\nabove = 0')(DiagnosisContext(run)) == []
    lonely = 'table = "kernels"\ncolumn = "duration"\nmetric = "sum"\nwhere = { rank = 3 }\ntimes_peers = 0.9'
    assert rule(lonely)(DiagnosisContext(run)) == []


def test_every_table_and_column_a_rule_may_name_can_be_measured(run: Run) -> None:
    context = DiagnosisContext(run)
    for table in TABLES.values():
        for column in table.columns:
            if custom_rules._is_measured(table.name, column):
                rule(f'table = "{table.name}"\ncolumn = "{column.name}"\nmetric = "sum"\nabove = -1')(context)


def test_findings_of_own_rules_stand_among_the_others(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        rule_text('table = "steps"\ncolumn = "exposed"\nmetric = "max"\nabove = 0\nat_least = "info"'), encoding="utf-8"
    )
    diagnosis = diagnose(run, custom_rules=[find_rule(str(path))])
    assert [finding.id for finding in diagnosis.findings] == ["slow-rank", "too-much"]
    assert diagnosis.findings[1].title.startswith("Every rank: ")
    chinese = diagnose(run, custom_rules=[find_rule(str(path))], language="zh").findings[1]
    assert chinese.see == "own/too-much" and chinese.advice == ("减少。",)
    assert chinese.evidence[0].metric == "steps.exposed 最大值" and chinese.severity == "info"


# -- what a bad file is told ------------------------------------------------------------------------------------------

GOOD = 'table = "kernels"\ncolumn = "duration"\nmetric = "sum"\nabove = 1.5'


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"kernels"', '"kernel"', r"when\.table: unknown table 'kernel'; known: ranks, "),
        ('"kernels"', '"(select 1)"', r"when\.table: unknown table"),
        ('"kernels"', '["kernels"]', r"when\.table: unknown table \['kernels'\]"),
        ('"kernels"', '"raw.kernels"', r"when\.table: unknown table"),
        ('"duration"', '"length"', r"when\.column: kernels has no 'length' that can be measured; .*duration"),
        ('"duration"', '"duration) FROM kernels; DROP TABLE steps --"', r"when\.column: kernels has no "),
        ('"duration"', '"start"', r"when\.column: kernels has no 'start' that can be measured"),
        ('"duration"', '"rank"', r"when\.column: "),
        ('"duration"', "7", r"when\.column: kernels has no 7"),
        ('"sum"', '"stddev"', r"when\.metric: expected one of sum, mean, max, share, got 'stddev'"),
        ('"sum"', "{ a = 1 }", r"when\.metric: expected one of"),
        ("above = 1.5", "", r"when\.above: expected exactly one of above, below, times_peers, got 0"),
        ("above = 1.5", "above = 1\nbelow = 2", r"when\.below: expected exactly one of .* got 2"),
        ("above = 1.5", "above = nan", r"when\.above: expected a number, got nan"),
        ("above = 1.5", "above = inf", r"when\.above: expected a number"),
        ("above = 1.5", "above = true", r"when\.above: expected a number, got True"),
        ("above = 1.5", "above = 1" + "0" * 400, r"when\.above: expected a number"),
        ("above = 1.5", "above = 1" + "0" * 5000, "not TOML"),
        ("above = 1.5", "times_peers = 1", r"when\.times_peers: expected a factor"),
        ("above = 1.5", "times_peers = -2", r"when\.times_peers: expected a factor"),
        ("above", "where = { nothing = 1 }\nabove", r"when\.where\.'nothing': kernels has no such column"),
        ("above", 'where = { "1=1 OR type" = "x" }\nabove', r"when\.where\.'1=1 OR type': kernels has no such column"),
        ("above", "where = { type = 7 }\nabove", r"when\.where\.type: expected VARCHAR, got 7"),
        ("above", 'where = { rank = "7" }\nabove', r"when\.where\.rank: expected BIGINT, got '7'"),
        ("above", "where = { rank = 99999999999999999999 }\nabove", r"when\.where\.rank: expected BIGINT"),
        ("above", "where = { rank = true }\nabove", r"when\.where\.rank: expected BIGINT, got True"),
        ("above", "where = [1]\nabove", r"when\.where: expected at most 16"),
        ("above", "at_least = 'worst'\nabove", r"when\.at_least: expected one of high, medium, low, info"),
        ("above", "at_most = [1]\nabove", r"when\.at_most: expected one of"),
        ("above", "run = 'rm -rf /'\nabove", r"when\.run: unknown key; known: table"),
        ("[when]", "[whenever]", r"whenever: unknown key"),
        ('id = "too-much"', 'id = "slow-rank"', "id: slow-rank is an id of the knowledge base"),
        ("{who}: {amount}", "{who.__class__}", r"en\.title: unknown placeholder"),
    ],
)
def test_a_bad_file_is_told_file_and_key(before: str, after: str, said: str) -> None:
    text = rule_text(GOOD).replace(before, after, 1)
    with pytest.raises(FormatError, match=said) as error:
        parse_rule(text.encode(), Path("own.toml"))
    assert str(error.value).startswith("own.toml: ") and "\n" not in str(error.value).strip()


def test_the_trigger_may_not_be_missing() -> None:
    with pytest.raises(FormatError, match=r"own\.toml: when: the table \[when\] is missing"):
        parse_rule(f'id = "too-much"\n{TEXTS}'.encode(), Path("own.toml"))


def test_values_are_bound_never_spliced(run: Run) -> None:
    hostile = """table = "kernels"\ncolumn = "duration"\nmetric = "sum"\nabove = 0
        where = { type = "x' OR 1=1; DROP TABLE steps; --\\u0000", name = "\\"; SELECT 1" }"""
    assert rule(hostile)(DiagnosisContext(run)) == []
    assert run.sql("SELECT count(*) FROM steps").fetchall() == [(32,)]


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.just("kernels"),
    st.sampled_from(["duration", "sum", "share", "low"]),
)
nested = st.one_of(values, st.lists(values, max_size=3), st.dictionaries(st.text(max_size=8), values, max_size=3))
known = st.sampled_from(custom_rules._KEYS)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.one_of(known, st.text(max_size=8)), nested, max_size=8))
def test_any_trigger_is_a_rule_or_a_sentence(when: dict[str, Any]) -> None:
    problems = list(custom_rules._problems(when))
    assert all(isinstance(problem, str) and ":" in problem and len(problem) < 600 for problem in problems)
    if not problems:
        assert when["table"] in TABLES and when["column"] in TABLES[when["table"]].column_names


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=400), st.text(max_size=400).map(lambda text: rule_text(text).encode("utf-8", "replace"))
    )
)
def test_any_bytes_are_a_rule_or_a_format_error(content: bytes) -> None:
    try:
        parse_rule(content, Path("own.toml"))
    except FormatError as error:
        assert str(error).startswith("own.toml: ")


# -- packages ---------------------------------------------------------------------------------------------------------


TOY_RULES = f"""
from pathlib import Path

from paceline.diagnosis.context import DiagnosisContext
from paceline.diagnosis.custom_rules import parse_rule
from paceline.diagnosis.finding import Subject
from paceline.diagnosis.rule import rule
from paceline.diagnosis.rule_finding import RuleFinding

ENTRY = parse_rule({rule_text(GOOD).encode()!r}, Path("own.toml")).entry
NO_RULE = 7


@rule(priority=500)
def lazy_cards(context: DiagnosisContext) -> list[RuleFinding]:
    return [RuleFinding("too-much", Subject(ranks=(context.ranks[0].rank,)), context.no_gain(), 1.0, entry=ENTRY)]


def unknown_words(context: DiagnosisContext) -> list[RuleFinding]:
    return [RuleFinding("nobody-knows", Subject(), context.no_gain(), 1.0)]
"""


@pytest.fixture
def toy_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {name: f"toy_rules:{name}" for name in ("lazy_cards", "unknown_words", "NO_RULE", "gone")}
    install_package(tmp_path, monkeypatch, name="toy_rules", code=TOY_RULES, group="paceline.rules", entries=entries)


@pytest.mark.usefixtures("toy_rules")
def test_a_packages_rule_runs_only_when_it_is_named(run: Run) -> None:
    assert "too-much" not in [finding.id for finding in diagnose(run).findings]
    findings = diagnose(run, custom_rules=[find_rule("entry:lazy_cards")]).findings
    assert findings[-1].id == "too-much" and findings[-1].subject.ranks == (0,)


@pytest.mark.usefixtures("toy_rules")
def test_a_packages_bad_rule_is_named(run: Run) -> None:
    with pytest.raises(UsageError, match="entry:nope: no installed package registers this rule") as error:
        find_rule("entry:nope")
    assert error.value.hint == "known: NO_RULE, gone, lazy_cards, unknown_words"
    with pytest.raises(
        PacelineError, match=r"the plug-in 'gone' \(toy_rules:gone, .* of toy_rules could not be loaded"
    ):
        find_rule("entry:gone")
    with pytest.raises(UsageError, match="entry:NO_RULE: toy_rules:NO_RULE is not a function"):
        find_rule("entry:NO_RULE")
    with pytest.raises(PacelineError, match="entry:unknown_words: expected a list of RuleFinding"):
        diagnose(run, custom_rules=[find_rule("entry:unknown_words")])


def test_our_rules_are_entry_points_too_each_with_its_own_priority() -> None:
    priorities = [each.priority for each in our_rules()]
    assert len(priorities) == 16 and priorities == sorted(set(priorities))
    with pytest.raises(UsageError, match="no installed package registers this rule"):
        find_rule("entry:slow-links")


def test_the_example_of_the_guide_is_a_rule(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "custom-rules.md").read_text(encoding="utf-8")
    example = guide.split("```toml\n")[1].split("```")[0]
    path = tmp_path / "example.toml"
    path.write_text(example, encoding="utf-8")
    assert load_rule(path).trigger.table == "kernels"
