"""The Python of a framework image: of the version in the engine's name, with pip, without Paceline or anything it needs.

An image whose engine is pytorch and whose Python is ours also has torch and NumPy, linked from this environment; one with
mindspore and Python 3.9 has those of `make venv-mindspore-3.9`, where somebody made it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from support.old_pythons import interpreter

OURS = "{}.{}".format(*sys.version_info[:2])
TORCH_IMAGE = f"pytorch_2.13.0-cann_8.0.rc1-py_{OURS}-euler_2.10.7-x86_64"
"""Offered by the stand-in: with torch and without Paceline."""
MINDSPORE_3_9 = Path(__file__).parents[3] / ".venv-mindspore-3.9"
"""What an image with MindSpore and Python 3.9 has (make venv-mindspore-3.9); without it that image has pip alone."""
_VERSION = re.compile(r"py_(\d+\.\d+)")


def image_python(engine: str, directory: Path) -> Path:
    """A new environment below `directory`: what one container installs, no other one has."""
    wanted = match[1] if (match := _VERSION.search(engine)) else OURS
    base = interpreter(wanted) or Path(sys._base_executable)  # type: ignore[attr-defined]
    command = [str(base), "-m", "venv", "--without-pip", "--symlinks", str(directory)]
    subprocess.run(command, check=True, capture_output=True)
    site = next((directory / "lib").glob("python*")) / "site-packages"
    for item in _pip_of(base):
        (site / item.name).symlink_to(item)
    if engine.startswith("pytorch") and wanted == OURS:
        for item in _top_level("torch") | _top_level("numpy"):
            (site / item.name).symlink_to(item)
    if engine.startswith("mindspore") and wanted == "3.9":
        for item in _mindspore_3_9():
            (site / item.name).symlink_to(item)
    return directory / "bin" / "python"


def _mindspore_3_9() -> Iterator[Path]:
    """MindSpore and what it needs, without what venv itself puts there."""
    for item in sorted(MINDSPORE_3_9.glob("lib/python3.9/site-packages/*")):
        if not item.name.startswith(("pip", "setuptools", "_distutils", "distutils", "pkg_resources", "__pycache__")):
            yield item


def _pip_of(base: Path) -> Iterator[Path]:
    """As installed in the base; installing it into every container would take longer than the jobs."""
    script = "import pathlib, pip; print(pathlib.Path(pip.__file__).parent.parent)"
    done = subprocess.run([str(base), "-c", script], check=True, capture_output=True, text=True)
    yield from Path(done.stdout.strip()).glob("pip*")


def _top_level(name: str) -> set[Path]:
    """Files and directories of a distribution and its requirements, as they lie in site-packages."""
    found: set[Path] = set()
    todo, seen = [name], set[str]()
    while todo:
        try:
            each = distribution(todo.pop())
        except PackageNotFoundError:
            continue
        if each.name in seen:
            continue
        seen.add(each.name)
        found |= {path for path in _items(each) if path.exists()}
        todo += [re.split(r"[\s;<>=!~\[(]", text)[0] for text in each.requires or () if "extra ==" not in text]
    return found


def _items(each: Distribution) -> Iterator[Path]:
    root = Path(str(each.locate_file("")))
    for file in each.files or ():
        if file.parts[0] not in ("..", "__pycache__"):
            yield root / file.parts[0]
