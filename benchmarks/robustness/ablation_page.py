"""The table of the ablation in docs/robustness.md, in both languages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from paceline.core.i18n import LANGUAGES, Language
from robustness.verdicts import GOOD, Outcome

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES: dict[Language, Path] = {"en": DOCS / "robustness.md", "zh": DOCS / "robustness.zh.md"}
BEGIN, END = "<!-- ablation -->\n", "<!-- /ablation -->"
CHINESE = {
    "layout": "格式",
    "file": "文件",
    "cases": "用例数",
    "missing": "缺失",
    "cut": "截断",
    "duplicated": "重复",
    "renamed": "改名",
    "swapped": "互换",
    "same": "相同",
    "same, less sure": "相同，置信度降低",
    "same, not read": "相同，未读取",
    "same, as sure": "相同，置信度不变",
    "other, with a warning": "不同，有告警",
    "refused": "拒绝",
    "silently wrong": "错误且无告警",
    "traceback": "异常堆栈",
    "hang": "挂死",
    "crash": "崩溃",
}
Result = tuple[str, str, Outcome]
"""Layout, kind of damage, outcome."""


def write_pages(results: Sequence[Result]) -> None:
    for language in LANGUAGES:
        page = PAGES[language].read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        after = rest[rest.index(END) :]
        text = f"{_summary(results, language)}\n\n{table(results, language)}"
        PAGES[language].write_text(before + BEGIN + text + after, encoding="utf-8")


def table(results: Sequence[Result], language: Language) -> str:
    """Outcomes by layout and kind, as Markdown."""
    outcomes = _outcomes([outcome for _, _, outcome in results])
    counts: dict[tuple[str, str], Counter[Outcome]] = defaultdict(Counter)
    for layout, kind, outcome in results:
        counts[layout, kind][outcome] += 1
    names = [_word(name, language) for name in ("layout", "file", "cases", *outcomes)]
    head = f"| {' | '.join(names)} |\n|---|---|{'---:|' * (len(outcomes) + 1)}\n"
    rows = [
        f"| {layout} | {_word(kind, language)} | {of.total()} | {' | '.join(str(of[name]) for name in outcomes)} |\n"
        for (layout, kind), of in sorted(counts.items())
    ]
    return head + "".join(rows)


def _summary(results: Sequence[Result], language: Language) -> str:
    found = Counter(outcome for _, _, outcome in results)
    each = [
        f"{found[outcome]} {_word(outcome, language)}" for outcome in dict.fromkeys((*sorted(GOOD), *sorted(found)))
    ]
    if language == "zh":
        return f"{len(results)} 个用例：{' · '.join(each)}。"
    return f"{len(results)} cases: {' · '.join(each)}."


def _outcomes(found: Sequence[Outcome]) -> list[Outcome]:
    good = [outcome for outcome in sorted(GOOD) if outcome in found]
    return [*good, *sorted(set(found) - set(good))]


def _word(name: str, language: Language) -> str:
    return CHINESE[name] if language == "zh" else name
