"""Messages: said in both languages, stored and masked, and that code and catalogue name the same ones."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from string import Formatter

import msgspec
import pytest

from paceline.core.errors import FormatError
from paceline.core.i18n import catalogue
from paceline.core.message import Message, Sentence, in_lines, message, message_in, said_at
from paceline.run.evidence.gap import EvidenceGap
from paceline.run.read_warning import ReadWarning

SOURCE = Path(str(files("paceline")))
SPOKEN = sorted([*(SOURCE / "formats").rglob("*.py"), *(SOURCE / "run" / "evidence").glob("*.py")])
SINKS = ("warn", "ReadWarning", "EvidenceGap", "FormatError", "CutOffError")


@pytest.mark.parametrize(
    ("said", "english", "chinese"),
    [
        (message("cut_smaller", size=1234, typical=5678), "has 1,234 bytes", "大小为 1,234 字节"),
        (
            ReadWarning(3, "kernel_details.csv", message("empty"), 12).sentence,
            "rank 3: kernel_details.csv:12: is empty",
            "3 号卡：kernel_details.csv:12：文件为空",
        ),
        (
            EvidenceGap("conflict", tuple(range(12)), message("mixed_links")).to_warning().sentence,
            "ranks 0, 1, 2, 3, 4, 5, 6, 7 … (12 in all): its links begin at another rank",
            "0, 1, 2, 3, 4, 5, 6, 7 等 12 张卡：其链路的起点是另一张卡",
        ),
        (
            message("no_types", error=FormatError(message("not_json", error="x", size=3))),
            "is not valid JSON (x; 3 bytes); types and shapes are missing",
            "不是有效的 JSON（x；3 字节）；缺少类型与形状",
        ),
        (said_at("a.csv", "somebody else's: 3"), "a.csv: somebody else's: 3", "a.csv：somebody else's: 3"),
        (in_lines([message("empty"), "b"]), "is empty\n          b", "文件为空\n          b"),
    ],
)
def test_a_message_is_said_in_the_language_of_who_reads_it(said: Sentence, english: str, chinese: str) -> None:
    assert str(said).startswith(english)
    assert message_in("en", said) == str(said)
    assert message_in("zh", said).startswith(chinese)


def test_a_plain_sentence_is_shown_as_it_is() -> None:
    assert message_in("zh", "rank 3: is empty") == "rank 3: is empty"
    assert str(ReadWarning(None, None, "is empty")) == "is empty"


def test_a_message_is_stored_with_its_values() -> None:
    said = message("hccl_left", n=1, all=2, reason=message("empty"))
    stored = msgspec.json.encode(said)
    assert b'"n":1' in stored
    assert msgspec.json.decode(stored, type=Sentence) == said
    assert msgspec.json.decode(b'"plain"', type=Sentence) == "plain"
    assert pickle.loads(pickle.dumps(said)) == said
    assert len({said, message("hccl_left", n=1, all=2, reason=message("empty"))}) == 1


def test_an_error_keeps_its_message() -> None:
    error = FormatError(message("empty"), line=3)
    assert (str(error), error.said) == ("is empty", message("empty"))
    assert pickle.loads(pickle.dumps(error)).said == message("empty")


@pytest.mark.parametrize("huge", [1 << 63, -(1 << 80), float("inf"), float("nan")])
def test_a_number_that_json_cannot_hold_is_stored_as_text(huge: float) -> None:
    said = message("cut_smaller", size=huge, typical=3)
    assert msgspec.json.decode(msgspec.json.encode(said), type=Sentence) == said
    assert str(said).startswith(f"has {huge} bytes, those of other ranks 3")


def test_bytes_that_are_no_text_are_shown_as_escapes() -> None:
    assert message("empty_of", name="a\udcff").values == {"name": "a\\udcff"}


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (Message("of_tomorrow", {"n": 3, "name": "a"}), "of_tomorrow (3, a)"),
        (Message("of_tomorrow", {}), "of_tomorrow"),
        (Message("cut_rows", {"name": "a"}), "cut_rows (a)"),
    ],
)
def test_a_message_of_another_version(said: Message, shown: str) -> None:
    assert message_in("zh", said) == message_in("en", said) == shown


def test_a_damaged_file_does_not_nest_without_end() -> None:
    said = message("empty")
    for _ in range(500):
        said = message("at", place="a", said=said)
    assert message_in("zh", said).endswith("…")


def test_code_and_catalogue_name_the_same_messages() -> None:
    texts = {key.removeprefix("messages."): each["en"] for key, each in catalogue("messages").items()}
    calls = [call for module in SOURCE.rglob("*.py") for call in messages_of(module)]
    assert {key for key, _ in calls} == set(texts)
    wrong = [(key, values) for key, values in calls if values is not None and values != placeholders(texts[key])]
    assert wrong == []


def test_no_reader_says_a_plain_sentence() -> None:
    said = [text for module in SPOKEN for text in sentences(ast.parse(module.read_text(encoding="utf-8")))]
    assert said == []


def placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}


def messages_of(module: Path) -> Iterator[tuple[str, set[str] | None]]:
    """Every key with the names of its values; None where these are not all written there. A key must be written out."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    imported = [
        node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "paceline.core.message"
    ]
    names = {each.asname or each.name for node in imported for each in node.names if each.name == "message"}
    if module == SOURCE / "core" / "message.py":
        names = {"message"}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in names:
            values = {each.arg for each in call.keywords}
            [key] = call.args
            for each in (key.body, key.orelse) if isinstance(key, ast.IfExp) else (key,):
                assert isinstance(each, ast.Constant) and isinstance(each.value, str), f"{module}:{call.lineno}"
                yield each.value, None if None in values else {name for name in values if name}


def sentences(tree: ast.Module) -> Iterator[str]:
    """Literal texts of warnings, gaps, and errors that become warnings; a word is a kind."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and _called(call) in SINKS:
            for value in [*call.args, *(each.value for each in call.keywords)]:
                if isinstance(value, (ast.Constant, ast.JoinedStr)) and " " in (text := ast.unparse(value)):
                    yield text


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
