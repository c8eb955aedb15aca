"""The knowledge base: complete, bilingual, to the point, and patient with users' own files."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from paceline.cli.main import application
from paceline.core.errors import FormatError, UsageError
from paceline.diagnosis.knowledge import (
    IDS,
    PLACEHOLDERS,
    EntryText,
    KnowledgeEntry,
    all_entries,
    load_entry,
    load_entry_file,
)
from paceline.diagnosis.platform import DEVICES, REACHES

ROOT = Path(__file__).parents[3]
ENTRIES = all_entries()
TEXTS = [
    pytest.param(entry.text(language), id=f"{entry.id}-{language}") for entry in ENTRIES for language in ("en", "zh")
]
HAN = re.compile(r"[\u4e00-\u9fff]")

# What rules hand to each title.
GIVEN = {
    "slow-rank": {"who", "amount"},
    "slow-host": {"who", "amount"},
    "slow-nic": {"who", "amount", "detail"},
    "slow-link": {"who", "amount", "detail"},
    "slow-network": {"who", "amount", "detail"},
    "small-packets": {"who", "amount", "detail"},
    "bandwidth-contention": {"who", "amount"},
    "comm-exposed": {"amount"},
    "load-imbalance": {"who", "amount"},
    "expert-imbalance": {"who", "amount"},
    "stage-imbalance": {"who", "amount"},
    "pipeline-bubble": {"amount"},
    "input-bound": {"who", "amount"},
    "host-bound": {"who", "amount"},
    "blocking-call": {"who", "amount", "detail"},
    "memory-management": {"who", "amount", "detail"},
    "slow-operator": {"who", "amount"},
    "cpu-operators": {"who", "amount"},
    "frequency-drop": {"who", "amount", "detail"},
    "memory-pressure": {"who", "amount"},
    "memory-imbalance": {"who", "amount"},
    "one-off-stall": {"who", "amount", "steps"},
    "periodic-stall": {"who", "amount", "steps", "detail"},
    "jitter": {"who", "amount"},
    "data-incomplete": {"who", "detail"},
}

GOOD = """
id = "cold-coffee"
[en]
title = "{who} has cold coffee since {detail}"
summary = "Coffee is cold."
meaning = "It stood too long."
measured = "Temperature below 40 °C."
advice = ["Brew new coffee: make -j1 {coffee}."]
[zh]
title = "{who} 的咖啡从 {detail} 起凉了"
summary = "咖啡凉了。"
meaning = "放得太久。"
measured = "温度低于 40 °C。"
advice = ["重新煮一杯。"]
"""


def test_every_stable_id_has_its_entry_and_its_page() -> None:
    assert len(IDS) == 25 == len(set(IDS))
    assert [entry.id for entry in ENTRIES] == list(IDS) == list(GIVEN)
    on_disk = {path.stem for path in (ROOT / "src/paceline/diagnosis/knowledge").glob("*.toml")}
    assert on_disk == set(IDS)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: str(entry.id))
def test_both_languages_say_the_same_about_the_same(entry: KnowledgeEntry) -> None:
    assert entry.en.placeholders == entry.zh.placeholders == GIVEN[entry.id] <= set(PLACEHOLDERS)
    assert len(entry.en.advice) == len(entry.zh.advice)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: str(entry.id))
def test_commands_and_settings_are_the_same_in_both_languages(entry: KnowledgeEntry) -> None:
    setting = re.compile(
        r"\b[A-Z]+(?:_[A-Z]+)+\b|--[a-z][a-z-]+"
        r"|(?:npu-smi|hccn_tool|ascend-dmi|cpupower) (?:info|-[a-z]+|--[a-z]+|frequency-[a-z]+)"
    )
    for number, (english, chinese) in enumerate(zip(entry.en.advice, entry.zh.advice, strict=True), start=1):
        assert set(setting.findall(english)) == set(setting.findall(chinese)), f"{entry.id} advice {number}"


@pytest.mark.parametrize("text", TEXTS)
def test_advice_is_several_short_sentences(text: EntryText) -> None:
    assert len(text.advice) >= 3 and len(set(text.advice)) == len(text.advice)
    # As read: the lines for one device, framework and kind of link; recordings of processors name no links.
    for device in sorted(DEVICES - {"cpu"}):
        assert max(len(text.advice_for(frozenset({device, "torch", reach}))) for reach in REACHES) <= 8, device
    for step in text.advice:
        assert len(step) <= 160, step
        assert step.endswith((".", "。")), step


@pytest.mark.parametrize("text", TEXTS)
def test_titles_and_summaries_fit_a_line(text: EntryText) -> None:
    assert len(text.title_for(who="Rank 5 (host node1, card 5)", amount="27 %", detail="step 7")) <= 110
    assert len(text.summary) <= 120


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: str(entry.id))
def test_chinese_is_chinese_and_english_is_not(entry: KnowledgeEntry) -> None:
    for sentence in (entry.zh.summary, entry.zh.meaning, entry.zh.measured, *entry.zh.advice):
        letters = re.sub(r"[\w.\-=/:{}\"'() ]*[A-Za-z_][\w.\-=/:{}\"'() ]*", "", sentence, flags=re.ASCII)
        assert len(HAN.findall(letters)) >= 4, sentence
        assert not re.search(r"[\u4e00-\u9fff][,;!?]", sentence), f"half-width punctuation: {sentence}"
    for sentence in (entry.en.title, entry.en.summary, entry.en.meaning, entry.en.measured, *entry.en.advice):
        assert not HAN.search(sentence), sentence


def test_title_is_filled_with_values_as_they_are() -> None:
    title = load_entry("slow-link").en.title_for(who="Link 3 → 12 (RDMA)", amount="5.9 GB/s", detail="11.8 GB/s")
    assert title == "Link 3 → 12 (RDMA) runs at 5.9 GB/s, its class at 11.8 GB/s"
    assert load_entry("slow-rank").zh.title_for(who="{amount}", amount="27 %") == "{amount} 的计算比同类卡慢 27 %"


def test_unknown_id_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="slowrank") as error:
        load_entry("slowrank")
    assert error.value.hint == "did you mean slow-rank?"
    with pytest.raises(UsageError):
        load_entry("../knowledge/slow-rank")


def test_a_users_own_entry_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cold-coffee.toml"
    path.write_text(GOOD, encoding="utf-8")
    entry = load_entry_file(path)
    assert entry.id == "cold-coffee" and entry.zh.advice == ("重新煮一杯。",)
    assert entry.en.title_for(who="Rank 5", detail="step 7") == "Rank 5 has cold coffee since step 7"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('id = "cold-coffee"', 'id = "../evil"', r"id: expected lower-case words .* got '\.\./evil'"),
        ('id = "cold-coffee"', "", "id: expected lower-case words"),
        (
            "{who} has",
            "{whom} has",
            r"en\.title: unknown placeholder \{whom\}; allowed: \{who\}, \{amount\}, \{detail\}",
        ),
        ("{who} has", "{who.__class__} has", r"en\.title: unknown placeholder \{who\.__class__\}"),
        ("{who} has", "{who!r} has", r"en\.title: unknown placeholder"),
        ("{who} has", "{who has", r"en\.title: unmatched brace"),
        ('summary = "咖啡凉了。"', "", r"zh\.summary: expected text, got None"),
        ('meaning = "It stood too long."', "meaning = 7", r"en\.meaning: expected text, got 7"),
        ('advice = ["重新煮一杯。"]', "advice = []", r"zh\.advice: expected a list of sentences"),
        ('advice = ["重新煮一杯。"]', 'advice = "煮"', r"zh\.advice: expected a list of sentences"),
        ("[zh]", "[fr]", r"fr: unknown key[\s\S]*zh: the table \[zh\] is missing"),
        ("[en]", "[en]\nrun = 'rm'", r"en\.run: unknown key; known: title"),
        ("[en]", "[en", "not TOML in UTF-8: .*line 3"),
    ],
)
def test_a_bad_file_is_explained_by_file_and_key(tmp_path: Path, before: str, after: str, said: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(GOOD.replace(before, after, 1), encoding="utf-8")
    with pytest.raises(FormatError, match=said) as error:
        load_entry_file(path)
    assert str(error.value).startswith(f"{path}: ") and error.value.file == path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe", "not TOML in UTF-8"),
        (b"#" * 300_000, "larger than 256 KB"),
        (b"id = " + b"[" * 100_000, "nested too deeply|not TOML"),
    ],
)
def test_hostile_bytes_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=said):
        load_entry_file(path)
    with pytest.raises(FormatError, match="cannot be read"):
        load_entry_file(tmp_path / "absent.toml")


def test_the_docs_are_what_the_entries_say() -> None:
    pages = _script().pages()
    folder = ROOT / "docs" / "knowledge-base"
    assert {path.name for path in folder.iterdir()} == set(pages)
    for name, content in pages.items():
        assert (folder / name).read_text(encoding="utf-8") == content, "run scripts/write_knowledge_base.py"


def test_the_command_lists_and_explains_in_both_languages() -> None:
    listed = _kb()
    assert [line.split()[0] for line in listed.splitlines()] == list(IDS)
    page = _kb("kb/small-packets")
    assert 'comm_fusion={"allreduce"' in " ".join(page.split()) and "What to do" in page
    assert "处理建议" in _kb("slow-rank", "--lang", "zh") and "处理建议" in _kb("slow-rank", locale="zh_CN.UTF-8")


def test_pages_fit_the_terminal_and_lines_do_not_start_with_closing_punctuation() -> None:
    for entry in ENTRIES:
        for line in _kb(entry.id, "--lang", "zh", columns=60).splitlines():
            assert cell_len(line) <= 60 or " " not in line.strip(), line
            assert not line.strip().startswith(tuple("，。；：、）")), line


def _kb(*words: str, locale: str = "C.UTF-8", columns: int = 200) -> str:
    result = CliRunner().invoke(application(), ["kb", *words], env={"LC_ALL": locale, "COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result.stdout


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_kb", ROOT / "scripts" / "write_knowledge_base.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
