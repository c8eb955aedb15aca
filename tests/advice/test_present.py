"""What people read: every metric of every rule in Chinese too, and whom a finding is about."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import paceline.advice.rules
from paceline.advice.chinese import METRICS, UNITS, in_chinese
from paceline.advice.finding import Diagnosis, Evidence, Finding, Gain, Subject
from paceline.advice.present import as_json, evidence, proof, title

SAME_IN_BOTH = {"", "%", "ms", "MB", "GiB", "GB/s"}


def finding(**values: object) -> Finding:
    usual = {"id": "host-bound", "subject": Subject(ranks=(0, 1)), "gain": Gain(100, 90), "confidence": 0.9}
    return Finding(**{**usual, **values})  # type: ignore[arg-type]


def spoken() -> list[tuple[str, str]]:
    """(metric, unit) of every Evidence(…) in the rules; what an f-string inserts is written {}."""
    found = []
    for path in sorted(Path(paceline.advice.rules.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Evidence":
                found.append((_text(node.args[0]), _text(node.args[3])))
    return found


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    assert isinstance(node, ast.Constant), ast.dump(node)
    return str(node.value)


def test_every_metric_and_unit_of_the_rules_has_a_chinese_name() -> None:
    assert len(spoken()) >= 18
    assert {metric for metric, _ in spoken()} <= set(METRICS)
    assert {unit for _, unit in spoken()} <= set(UNITS) | SAME_IN_BOTH


def test_both_languages_insert_the_same_things() -> None:
    assert all(english.count("{}") == chinese.count("{}") <= 1 for english, chinese in METRICS.items())


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("bandwidth", "带宽"),
        ("own time of stage 3", "阶段 3 的自身耗时"),
        ("share of the step: kernels.duration", "占单步的比例：kernels.duration"),
        ("sum of kernels.duration", "kernels.duration 之和"),
        ("nobody's metric", "nobody's metric"),
        ("own time of stage {}", "阶段 {} 的自身耗时"),
    ],
)
def test_numbers_and_names_pass_through(english: str, chinese: str) -> None:
    assert in_chinese(english, METRICS) == chinese


def test_the_proof_speaks_the_readers_language() -> None:
    told = finding(evidence=(Evidence("last to arrive", 94.0, None, "% of its collectives"),
                             Evidence("own time a step", 289.0, 227.0, "ms")))  # fmt: skip
    assert proof(told, "en") == "last to arrive 94 % of its collectives · own time a step 289 ms (peers 227)"
    assert proof(told, "zh") == "最后到达的占比 94 %（占其集合通信） · 每步自身耗时 289 ms (同类 227)"
    diagnosis = Diagnosis({"ranks": 2}, (told,))
    metrics = {language: [row["metric"] for row in as_json(diagnosis, language)["findings"][0]["evidence"]]
               for language in ("en", "zh")}  # fmt: skip
    assert metrics == {"en": ["last to arrive", "own time a step"], "zh": ["最后到达的占比", "每步自身耗时"]}
    assert evidence(told, "en") is told.evidence


def test_all_ranks_are_called_every_rank() -> None:
    everybody = finding(subject=Subject(ranks=tuple(range(16)), hosts=("a", "b")), amount="13 %", everybody=True)
    assert title(everybody, "en").startswith("Every rank: idle for 13 %")
    assert title(everybody, "zh").startswith("所有卡：")
    assert title(finding(amount="13 %"), "en").startswith("Ranks 0, 1: ")


def test_a_step_is_named_in_chinese() -> None:
    stall = finding(id="one-off-stall", amount="50 ms", detail="step 7")
    assert "第 7 步" in title(stall, "zh") and "step 7" in title(stall, "en")
