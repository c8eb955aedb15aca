"""Benchmarks that are shipped: a directory each, with bench.yaml and the boot file of its job."""

from __future__ import annotations

from pathlib import Path
from shutil import copyfile

from paceline.core.errors import UsageError

_HERE = Path(__file__).parent
EXAMPLES = ("gpt2", "resnet50", "bert")


def find_description(wanted: Path | None) -> Path:
    """A file, or the name of an example; without either the reference GPT-2."""
    if wanted is None:
        return _HERE / "gpt2" / "bench.yaml"
    return _HERE / wanted / "bench.yaml" if str(wanted) in EXAMPLES and not wanted.is_file() else wanted


def copy_example(name: str, directory: Path) -> list[Path]:
    """The files, copied into a new directory."""
    if name not in EXAMPLES:
        raise UsageError(f"no example is named {name}", hint=f"there are: {', '.join(EXAMPLES)}")
    if directory.exists():
        raise UsageError(f"{directory} already exists", hint="give another directory")
    directory.mkdir(parents=True)
    sources = sorted(path for path in (_HERE / name).iterdir() if path.is_file())
    return [Path(copyfile(path, directory / path.name)) for path in sources]
