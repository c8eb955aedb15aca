"""Fail on words that the style guide asks not to use, with file, line and the word to use instead.

    python scripts/check_words.py                 src, docs, ui/src and the top-level Markdown files
    python scripts/check_words.py src/paceline/cli docs/jobs.md

Identifiers are checked too: an underscore separates words as a blank does, and a phrase may be broken over two lines.
Of docs/decisions only the titles are checked: old decisions keep their texts.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PLACES = ("src", "docs", "ui/src", "README.md", "README.zh.md", "CONTRIBUTING.md", "CHANGELOG.md")
SUFFIXES = {".py", ".md", ".json", ".toml", ".yaml", ".ts", ".tsx", ".css", ".html"}
BUILT = ("src/paceline/output/static", "src/paceline/web/static")

WORDS = {
    r"mend(?:s|ed|ing)?": "fix, fixed, if fixed",
    r"courier": "upload worker, upload process",
    r"homecoming": "final upload",
    r"(?:bring|brings|bringing|brought|go|goes|going|gone|went|get|gets|come|comes|coming|came) home": "upload, download",
    r"on (?:its|their) way": "being uploaded, being transferred",
    r"keeper": "orphan reaper, parent process",
    r"anew": "again; for checkpoints: reshard",
    r"whoever|whomever": "the process that, the rank that",
    r"(?:is|are|was|were|be|been|being) said": "is reported, is printed, is logged",
    r"(?:is|are|was|were|be|been|being) told of": "is reported to, hears of",
    r"nobody answers|does anybody answer": "could not connect to HOST (reason)",
    r"is nobody's": "not found, unknown",
    r"is no key": "unknown key 'x', did you mean 'y'?",
    r"(?:is|are|was|were) there already": "already exists",
    r"own time": "self time",
    r"(?:of|than) usual": "of the median",
    r"habit|habits|habitual|habitually": "persistent",
    r"for good": "persistently, always",
    r"(?:ms|us|s|seconds|milliseconds|bytes|MB|GB|TB|FLOPs|tokens|samples|times|time) a step": "per step",
    r"doors?": "entry point, command",
    r"roads?": "dependency order, layers",
    r"rooms": "packages",
    r"(?:a|the|each|every|which|this|other|another|leftmost|own) room": "package",
    r"(?:the|our) house": "project, code base",
}
"""Pattern → what to say instead. A blank in a pattern is any white space or an underscore."""


class AllowedUse(NamedTuple):
    pattern: str
    path: str
    reason: str


ALLOWED: tuple[AllowedUse, ...] = ()
"""A pattern of WORDS, the one file in which it may occur, and why."""


class Use(NamedTuple):
    path: str
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r}: say {self.instead!r}"


def main(arguments: list[str]) -> int:
    found = [use for path in files(arguments or PLACES) for use in check(path)]
    for use in found:
        print(use)
    if found:
        print(f"{len(found)} words that the style guide asks not to use", file=sys.stderr)
    return int(bool(found))


def files(places: Iterable[str]) -> Iterator[Path]:
    for place in places:
        path = ROOT / place
        below = sorted(path.rglob("*")) if path.is_dir() else [path]
        for each in below:
            name = each.relative_to(ROOT).as_posix()
            if each.suffix in SUFFIXES and each.is_file() and not name.startswith(BUILT):
                yield each


def check(path: Path) -> Iterator[Use]:
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text(encoding="utf-8")
    if name.startswith("docs/decisions/") and path.stem[:1].isdigit():
        text = text.partition("\n")[0]
    allowed = {each.pattern for each in ALLOWED if each.path == name}
    yield from uses(text, name, allowed)


def uses(text: str, name: str, allowed: Iterable[str] = ()) -> list[Use]:
    """Every use of a word in a text, in the order of its lines."""
    found = []
    for pattern, instead in WORDS.items():
        if pattern in allowed:
            continue
        for match in compiled(pattern).finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Use(name, line, " ".join(match[0].split()), instead))
    return sorted(found, key=lambda use: use.line)


def compiled(pattern: str) -> re.Pattern[str]:
    # A phrase that is broken over two lines may have a comment sign between its words.
    spaced = pattern.replace(" ", r"(?:\s+(?:#\s+|\*\s+|//\s+)?|_)")
    return re.compile(rf"(?<![A-Za-z])(?:{spaced})(?![A-Za-z])", re.IGNORECASE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
