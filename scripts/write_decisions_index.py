"""Writes docs/decisions/README.md: every decision with its status.

    python scripts/write_decisions_index.py

A decision is "accepted" unless its text has a line `Status: superseded by NNN` (or another status).
"""

from __future__ import annotations

import re
from pathlib import Path

DECISIONS = Path(__file__).parents[1] / "docs" / "decisions"
HEAD = """# Decisions

One page per decision: what was chosen, why, and what was measured. Numbers are never reused; gaps are drafts that were
not kept. A decision that no longer holds says `Status: superseded by NNN` in its second line.

| number | decision | status |
|---|---|---|
"""


def index() -> str:
    return HEAD + "".join(map(_row, sorted(DECISIONS.glob("[0-9]*.md"))))


def _row(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    number, title = re.match(r"# (\d{3}) (.+)", text).groups()  # type: ignore[union-attr]
    status = re.search(r"^Status: (.+)$", text, re.MULTILINE)
    return f"| {number} | [{title}]({path.name}) | {status[1] if status else 'accepted'} |\n"


if __name__ == "__main__":
    (DECISIONS / "README.md").write_text(index(), encoding="utf-8")
