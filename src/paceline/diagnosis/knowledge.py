"""The knowledge base: what each finding means, how it is measured and what to do, in English and Chinese.

An entry is a TOML file (`knowledge/<id>.toml` here, or a custom rule's): data that is checked, never run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path

from paceline.core.errors import FormatError, UsageError
from paceline.core.i18n import Language, text
from paceline.diagnosis.platform import ORDER, TAGS, fits

if sys.version_info >= (3, 11):
    import tomllib as toml
else:
    import tomli as toml

IDS: tuple[str, ...] = (
    "slow-rank",
    "slow-host",
    "slow-nic",
    "slow-link",
    "slow-network",
    "small-packets",
    "bandwidth-contention",
    "comm-exposed",
    "load-imbalance",
    "expert-imbalance",
    "stage-imbalance",
    "pipeline-bubble",
    "input-bound",
    "host-bound",
    "blocking-call",
    "memory-management",
    "slow-operator",
    "cpu-operators",
    "frequency-drop",
    "memory-pressure",
    "memory-imbalance",
    "one-off-stall",
    "periodic-stall",
    "jitter",
    "data-incomplete",
)
"""Stable: reports, users' scripts and links name findings by these."""
LANGUAGES = ("en", "zh")
PLACEHOLDERS = ("who", "amount", "detail", "steps")
MOST_BYTES = 256 * 1024

_SENTENCES = ("title", "summary", "meaning", "measured")
_KEYS = (*_SENTENCES, "advice")
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_BRACED = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class EntryText:
    """An entry in one language."""

    title: str
    """May hold {who}, {amount}, {detail} and {steps}; nothing else."""
    summary: str
    meaning: str
    measured: str
    advice: tuple[str, ...]
    advice_tags: tuple[frozenset[str], ...] = ()
    """For which recordings each line is, as in platform.py; no tags: for all."""

    def labelled_advice(self, language: Language) -> tuple[str, ...]:
        """All advice, each line that is not for every recording with the recordings it is for before it."""
        tags = self.advice_tags or (frozenset[str](),) * len(self.advice)
        return tuple(f"{_label(for_, language)}{line}" for line, for_ in zip(self.advice, tags, strict=True))

    def advice_for(self, facts: frozenset[str]) -> tuple[str, ...]:
        """The advice that fits, in the order to try it; all of it where none does."""
        tagged = zip(self.advice, self.advice_tags or (frozenset[str](),) * len(self.advice), strict=True)
        return tuple(line for line, tags in tagged if fits(tags, facts)) or self.advice

    @property
    def placeholders(self) -> frozenset[str]:
        return frozenset(_BRACED.findall(self.title))

    def title_for(self, *, who: str = "", amount: str = "", detail: str = "", steps: str = "") -> str:
        """The title of one finding; values are inserted as they are, braces in them mean nothing."""
        values = {"who": who, "amount": amount, "detail": detail, "steps": steps}
        return _BRACED.sub(lambda found: values[found[1]], self.title)


@dataclass(frozen=True)
class KnowledgeEntry:
    id: str
    en: EntryText
    zh: EntryText

    def text(self, language: str) -> EntryText:
        return self.zh if language == "zh" else self.en


def _label(tags: frozenset[str], language: Language) -> str:
    if not tags:
        return ""
    return f"[{', '.join(text(f'diagnosis.for.{tag}', language) for tag in ORDER if tag in tags)}] "


@cache
def load_entry(id: str) -> KnowledgeEntry:
    """The entry of one stable id."""
    if id not in IDS:
        near = get_close_matches(id, IDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(IDS)}"
        raise UsageError(f"no knowledge base entry {id!r}", hint=hint)
    path = Path(f"{id}.toml")
    return parse_entry(parse_toml((files("paceline.diagnosis") / "knowledge" / path.name).read_bytes(), path), path)


def all_entries() -> tuple[KnowledgeEntry, ...]:
    """The entries of the knowledge base, in the order of IDS."""
    return tuple(load_entry(id) for id in IDS)


def load_entry_file(path: Path) -> KnowledgeEntry:
    """The entry of a custom rule; FormatError names the file and the wrong key."""
    return parse_entry(parse_toml(read_small_file(path), path), path)


def read_small_file(path: Path) -> bytes:
    """The content of a user's file; FormatError if it cannot be read or is larger than 256 KB."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}", file=path) from error
    if len(content) > MOST_BYTES:
        raise FormatError(f"{path}: larger than {MOST_BYTES // 1024} KB", file=path)
    return content


def parse_toml(content: bytes, path: Path) -> dict[str, object]:
    try:
        data: dict[str, object] = toml.loads(content.decode())
    except ValueError as error:  # bad TOML, bad UTF-8, or a number of thousands of digits
        raise FormatError(f"{path}: not TOML in UTF-8: {error}", file=path) from error
    except RecursionError as error:  # the parser recurses into nested arrays and tables
        raise FormatError(f"{path}: nested too deeply", file=path) from error
    return data


def parse_entry(data: Mapping[str, object], path: Path) -> KnowledgeEntry:
    problems = list(_problems(data))
    if problems:
        raise FormatError("\n".join(f"{path}: {problem}" for problem in problems), file=path)
    return KnowledgeEntry(str(data["id"]), en=_text(_table(data, "en")), zh=_text(_table(data, "zh")))


def _text(table: Mapping[str, object]) -> EntryText:
    title, summary, meaning, measured = (str(table[key]) for key in _SENTENCES)
    advice = table["advice"]
    assert isinstance(advice, list)  # checked by _problems
    lines = tuple(item["text"] if isinstance(item, dict) else item for item in advice)
    tags = tuple(frozenset(item["for"]) if isinstance(item, dict) else frozenset[str]() for item in advice)
    return EntryText(title, summary, meaning, measured, lines, tags if any(tags) else ())


def _problems(data: Mapping[str, object]) -> Iterator[str]:
    """What is wrong with an entry, each with its key."""
    id = data.get("id")
    if not isinstance(id, str) or not _ID.fullmatch(id):
        yield f"id: expected lower-case words joined by '-', like slow-rank; got {id!r}"
    for key in data.keys() - {"id", *LANGUAGES}:
        yield f"{key}: unknown key; known: id, [en], [zh]"
    for language in LANGUAGES:
        if isinstance(data.get(language), dict):
            yield from (f"{language}.{problem}" for problem in _text_problems(_table(data, language)))
        else:
            yield f"{language}: the table [{language}] is missing"


def _text_problems(table: Mapping[str, object]) -> Iterator[str]:
    for key in table.keys() - set(_KEYS):
        yield f"{key}: unknown key; known: {', '.join(_KEYS)}"
    for key in _SENTENCES:
        if not _is_sentence(table.get(key)):
            yield f"{key}: expected text, got {table.get(key)!r}"
    advice = table.get("advice")
    if not isinstance(advice, list) or not advice or not all(_is_advice(item) for item in advice):
        yield f"advice: expected a list of sentences, got {advice!r}"
    else:
        for tag in {tag for item in advice if isinstance(item, dict) for tag in item["for"]} - TAGS:
            yield f"advice: unknown tag {tag!r}; known: {', '.join(sorted(TAGS))}"
    yield from _title_problems(str(table.get("title", "")))


def _title_problems(title: str) -> Iterator[str]:
    allowed = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    for name in _BRACED.findall(title):
        if name not in PLACEHOLDERS:
            yield f"title: unknown placeholder {{{name}}}; allowed: {allowed}"
    if set(_BRACED.sub("", title)) & {"{", "}"}:
        yield f"title: unmatched brace; braces only mark {allowed}"


def _is_sentence(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_advice(item: object) -> bool:
    """A sentence, or one with the recordings it is for."""
    if not isinstance(item, dict):
        return _is_sentence(item)
    tags = item.get("for")
    tagged = isinstance(tags, list) and bool(tags) and all(isinstance(tag, str) for tag in tags)
    return item.keys() == {"for", "text"} and tagged and _is_sentence(item["text"])


def _table(data: Mapping[str, object], language: str) -> Mapping[str, object]:
    table = data[language]
    assert isinstance(table, dict)
    return table
