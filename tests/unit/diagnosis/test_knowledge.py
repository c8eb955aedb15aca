"""Entries of the knowledge base: what a file must contain, and what its author is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.core.errors import FormatError, UsageError
from paceline.diagnosis.knowledge import (
    IDS,
    EntryText,
    all_entries,
    load_entry,
    load_entry_file,
    parse_entry,
    parse_toml,
    read_small_file,
)

TEXT = {"title": "{who}: {amount}", "summary": "s", "meaning": "m", "measured": "e", "advice": ["Do less.", "Wait."]}
ENTRY = {"id": "too-much-2", "en": TEXT, "zh": {**TEXT, "title": "多"}}


def problems(**changed: Any) -> list[str]:
    data = {key: value for key, value in {**ENTRY, **changed}.items() if value is not None}
    with pytest.raises(FormatError) as error:
        parse_entry(data, Path("own.toml"))
    assert error.value.file == Path("own.toml")
    return [line.removeprefix("own.toml: ") for line in str(error.value).splitlines()]


def text(**changed: Any) -> dict[str, Any]:
    return {key: value for key, value in {**TEXT, **changed}.items() if value is not None}


def test_an_entry_has_both_languages() -> None:
    entry = parse_entry(ENTRY, Path("own.toml"))
    assert entry.id == "too-much-2"
    assert entry.text("en") == EntryText("{who}: {amount}", "s", "m", "e", ("Do less.", "Wait."))
    assert entry.text("zh").title == "多"


@pytest.mark.parametrize("id", [None, 3, "", "Slow", "slow_rank", "-slow", "slow-"])
def test_an_id_is_words_joined_by_hyphens(id: object) -> None:
    assert problems(id=id) == [f"id: expected lower-case words joined by '-', like slow-rank; got {id!r}"]


def test_unknown_keys_and_missing_tables_are_named() -> None:
    assert problems(extra=1) == ["extra: unknown key; known: id, [en], [zh]"]
    assert problems(zh=None) == ["zh: the table [zh] is missing"]
    assert problems(en="text") == ["en: the table [en] is missing"]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"extra": 1}, "extra: unknown key; known: title, summary, meaning, measured, advice"),
        ({"summary": None}, "summary: expected text, got None"),
        ({"summary": " "}, "summary: expected text, got ' '"),
        ({"meaning": 3}, "meaning: expected text, got 3"),
        ({"advice": []}, "advice: expected a list of sentences, got []"),
        ({"advice": None}, "advice: expected a list of sentences, got None"),
        ({"advice": ["a", ""]}, "advice: expected a list of sentences, got ['a', '']"),
        (
            {"title": "{whom} {who}"},
            "title: unknown placeholder {whom}; allowed: {who}, {amount}, {detail}, {steps}",
        ),
        ({"title": "a {who"}, "title: unmatched brace; braces only mark {who}, {amount}, {detail}, {steps}"),
        ({"title": "a } b"}, "title: unmatched brace; braces only mark {who}, {amount}, {detail}, {steps}"),
    ],
)
def test_what_is_wrong_with_a_text_is_said_with_its_language(changed: dict[str, Any], problem: str) -> None:
    assert problems(en=text(**changed)) == [f"en.{problem}"]
    assert problems(zh=text(**changed)) == [f"zh.{problem}"]


def test_titles_are_filled_as_they_are() -> None:
    entry = EntryText("{who}: {amount} not {detail} in {steps}", "", "", "", ())
    assert entry.placeholders == {"who", "amount", "detail", "steps"}
    assert entry.title_for(who="{amount}", amount="1", detail="2", steps="3") == "{amount}: 1 not 2 in 3"
    assert EntryText("{who}: {amount} {detail} {steps}.", "", "", "", ()).title_for() == ":   ."


def test_ids_that_do_not_exist() -> None:
    with pytest.raises(UsageError, match="no knowledge base entry 'slow-rnk'") as error:
        load_entry("slow-rnk")
    assert error.value.hint == "did you mean slow-rank?"
    with pytest.raises(UsageError) as error:
        load_entry("qqqq")
    assert error.value.hint == f"known: {', '.join(IDS)}"


def test_all_entries_come_in_the_order_of_their_ids() -> None:
    assert [entry.id for entry in all_entries()] == list(IDS) and len(IDS) == 25


def test_files_are_read_up_to_256_kb(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_bytes(b"#" * 262_144)
    assert len(read_small_file(file)) == 262_144
    file.write_bytes(b"#" * 262_145)
    with pytest.raises(FormatError, match=r"own.toml: larger than 256 KB"):
        read_small_file(file)
    with pytest.raises(FormatError, match=r"missing.toml: cannot be read: No such file"):
        read_small_file(tmp_path / "missing.toml")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a = ", "not TOML in UTF-8"),
        (b"a = '\xff'", "not TOML in UTF-8"),
        (b"a = " + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_broken_files_are_refused_by_name(content: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=f"^own.toml: {problem}"):
        parse_toml(content, Path("own.toml"))


def test_an_entry_from_a_file(tmp_path: Path) -> None:
    texts = "\n".join(
        f'[{language}]\ntitle = "t"\nsummary = "s"\nmeaning = "m"\nmeasured = "e"\nadvice = ["a"]'
        for language in ("en", "zh")
    )
    (tmp_path / "own.toml").write_text(f'id = "own"\n{texts}', encoding="utf-8")
    assert load_entry_file(tmp_path / "own.toml").zh == EntryText("t", "s", "m", "e", ("a",))
