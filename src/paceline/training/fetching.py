"""Inputs, brought to this host: local ones are used where they lie, remote ones are fetched once and verified."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import PacelineError, UsageError
from paceline.storage.cache import cache_name, cache_root
from paceline.storage.location import is_remote, parse
from paceline.training.outputs import MODELARTS_ROOT, in_modelarts
from paceline.training.telling import log

_LAST_LINES = 15


@dataclass(frozen=True)
class Input:
    """Something to fetch; `keys`: only these files below it."""

    location: str
    keys: tuple[str, ...] | None = None


def input_root() -> Path:
    """/cache on ModelArts (the large disk), else Paceline's cache."""
    disk = MODELARTS_ROOT.parent
    return (disk if in_modelarts() and disk.is_dir() else cache_root()) / "inputs"


def fetch_all(inputs: Mapping[str, Input], root: Path, tell: Callable[[str], None], timeout: float) -> dict[str, str]:
    return {name: str(_fetch(name, wanted, root, tell, timeout)) for name, wanted in inputs.items()}


def local_path(name: str, location: str) -> Path:
    path = Path(parse(location).path if location.startswith("file:") else location).absolute()
    if not path.exists():
        raise UsageError(f"{name}: {path}: no such file or directory")
    return path


def _fetch(name: str, wanted: Input, root: Path, tell: Callable[[str], None], timeout: float) -> Path:
    if not is_remote(wanted.location):
        return local_path(name, wanted.location)
    from paceline.training.carrying import Courier
    from paceline.training.courier import Move

    url = parse(wanted.location).url
    target = root / cache_name(url) / parse(url).name
    tell(f"{name}: {url} → {target}")
    log.info("fetching %s from %s", name, url)
    target.parent.mkdir(parents=True, exist_ok=True)
    move = Move(url, str(target), keys=wanted.keys, workers=16)
    trip = Courier().run([move], patience=300.0, seconds=timeout)
    if not trip.complete:
        told = trip.carried[0].troubles[0] if trip.carried else None
        reason = f"{told.key}: {told.reason}".lstrip(": ") if told else trip.complaint
        raise PacelineError(
            f"{name}: {url} could not be fetched: {reason}",
            hint=(trip.carried[0].hint if trip.carried else "")
            or "what arrived is kept: the next start goes on from there",
        )
    return target


def install_requirements(file: Path, tell: Callable[[str], None]) -> None:
    """With this interpreter's pip."""
    if not file.is_file():
        raise UsageError(f"{file}: no such file", hint="requirements=True looks beside the script")
    tell(f"pip install -r {file}")
    log.info("installing %s", file)
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-r", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-_LAST_LINES:])
        raise PacelineError(f"{file}: pip install failed:\n{last}", hint="try the same command in the job's image")
