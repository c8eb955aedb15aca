"""Write the agent wheel: what a training job imports and runs, without analysis and without required dependencies.

    python -m paceline.core.agent_wheel DIRECTORY        prints the path of the wheel

It is made of the installed files, so it needs neither a clone nor a network, and the same files give the same bytes. Its
distribution is `paceline` too, with "+agent" after the version: pip replaces one by the other instead of mixing both.
"""

from __future__ import annotations

import base64
import hashlib
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from paceline.core.atomic_write import atomic_write_path
from paceline.core.plugins import our_plugins
from paceline.core.version import __version__

VERSION = f"{__version__}+agent"
PACKAGES = (
    "checkpoint",
    "cli",
    "collect",
    "core",
    "integrations",
    "profiling",
    "recorder",
    "storage",
    "training",
)
_FILES = ("__init__.py", "__main__.py", "py.typed", "output/__init__.py", "output/console.py")
"""The console is what commands print on; the rest of output stays behind."""
_FORMAT_DECLARATIONS = ("*.py", "*/__init__.py")
"""Which files collect_data copies; the readers stay behind."""
_EXTRAS = {
    "checkpoint": ("msgspec>=0.18.6", "numpy"),
    "commands": ("msgspec>=0.18.6", "pyyaml>=6", "rich>=13.7", "typer<0.27,>=0.12", "typing-extensions>=4.5"),
    "storage": (
        "msgspec>=0.18.6",
        "asyncssh>=2.18",
        "esdk-obs-python>=3.24",
        'obstore>=0.8; python_version >= "3.9"',
    ),
}
_WHEEL = "Wheel-Version: 1.0\nGenerator: paceline\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_agent_wheel(directory: Path) -> Path:
    """The wheel's path; an existing file of this version is replaced."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"paceline-{VERSION}-py3-none-any.whl"
    info = f"paceline-{VERSION}.dist-info"
    content = {f"paceline/{name}": file.read_bytes() for name, file in _files(Path(__file__).parents[1])}
    content[f"{info}/METADATA"] = _metadata().encode()
    content[f"{info}/WHEEL"] = _WHEEL.encode()
    content[f"{info}/entry_points.txt"] = _entry_points().encode()
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    with atomic_write_path(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, data)
    return path


def requirements(extras: Sequence[str]) -> list[str]:
    """What these extras of the agent need."""
    return list(dict.fromkeys(requirement for extra in extras for requirement in _EXTRAS[extra]))


def _files(package: Path) -> Iterator[tuple[str, Path]]:
    found = [package / name for name in _FILES]
    for pattern in _FORMAT_DECLARATIONS:
        found += (package / "formats").glob(pattern)
    for name in PACKAGES:
        found += (package / name).rglob("*")
    for file in sorted(found):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file.relative_to(package).as_posix(), file


def _metadata() -> str:
    lines = [
        "Metadata-Version: 2.1",
        "Name: paceline",
        f"Version: {VERSION}",
        "Summary: The part of Paceline that runs in a training job.",
        "Requires-Python: >=3.8",
    ]
    for extra, requirements in _EXTRAS.items():
        lines.append(f"Provides-Extra: {extra}")
        for requirement in requirements:
            needed, _, marker = requirement.partition(";")
            condition = f'({marker.strip()}) and extra == "{extra}"' if marker else f'extra == "{extra}"'
            lines.append(f"Requires-Dist: {needed}; {condition}")
    return "\n".join([*lines, ""])


def _entry_points() -> str:
    stores = [f"{name} = {plugin.value}" for name, plugin in our_plugins("paceline.stores").items()]
    return "\n".join(["[console_scripts]", "paceline = paceline.cli.main:main", "", "[paceline.stores]", *stores, ""])


def _digest(data: bytes) -> str:
    """As RECORD files hold it."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    print(write_agent_wheel(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
