"""Write the reports that docs/gallery.md shows, in both languages, beside the built site (`make docs`).

python scripts/write_gallery.py build/site/gallery build/site/zh/gallery
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "gallery.md"
PACELINE = str(Path(sys.executable).with_name("paceline"))


def main(targets: list[Path]) -> None:
    for target in targets:
        target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        for name, options in cases():
            subprocess.run([PACELINE, "simulate", name, *options], cwd=directory, check=True)
            for language, suffix in (("en", ""), ("zh", "-zh")):
                report = Path(directory) / f"{name}{suffix}.html"
                words = ["diagnose", name, "--html", report.name, "--lang", language]
                subprocess.run([PACELINE, *words], cwd=directory, check=True, stdout=subprocess.DEVNULL)
                for target in targets:
                    (target / report.name).write_bytes(report.read_bytes())


def cases() -> list[tuple[str, list[str]]]:
    """Name and options of every simulation on the page."""
    found = re.findall(r"^paceline simulate (\S+)(.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [(name, options.split()) for name, options in found]


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
