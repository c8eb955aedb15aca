"""Download remote inputs to this host, once and verified; local inputs are used in place."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.core.errors import PacelineError, UsageError
from paceline.storage.cache_dir import cache_name, cache_part
from paceline.storage.url import is_remote, parse_url
from paceline.training.session.output_tree import MODELARTS_ROOT, in_modelarts

_log = logging.getLogger("paceline.training")

_LAST_LINES = 15


@dataclass(frozen=True)
class Input:
    """An input location; `keys`: only these files below it."""

    location: str
    keys: tuple[str, ...] | None = None


def input_cache_dir() -> Path:
    """Below /cache on ModelArts (the large disk), else in Paceline's cache."""
    disk = MODELARTS_ROOT.parent
    return disk / "inputs" if in_modelarts() and disk.is_dir() else cache_part("inputs")


def download_inputs(
    inputs: Mapping[str, Input], root: Path, report: Callable[[str], None], timeout: float
) -> dict[str, str]:
    return {name: str(_download(name, wanted, root, report, timeout)) for name, wanted in inputs.items()}


def local_path(name: str, location: str) -> Path:
    path = Path(parse_url(location).path if location.startswith("file:") else location).absolute()
    if not path.exists():
        raise UsageError(f"{name}: {path}: no such file or directory")
    return path


def _download(name: str, wanted: Input, root: Path, report: Callable[[str], None], timeout: float) -> Path:
    if not is_remote(wanted.location):
        return local_path(name, wanted.location)
    from paceline.storage.reachability import require_reachable
    from paceline.training.session.upload_messages import TransferTask
    from paceline.training.session.upload_process import UploadProcess

    url = parse_url(wanted.location).text
    target = root / cache_name(url) / parse_url(url).name
    report(f"{name}: {url} → {target}")
    _log.info("downloading %s from %s", name, url)
    require_reachable(url)
    target.parent.mkdir(parents=True, exist_ok=True)
    task = TransferTask(url, str(target), keys=wanted.keys, workers=16)
    result = UploadProcess().run([task], patience=300.0, seconds=timeout)
    if not result.complete:
        failure = result.results[0].failures[0] if result.results else None
        reason = f"{failure.key}: {failure.reason}".lstrip(": ") if failure else result.reason
        raise PacelineError(
            f"{name}: could not download {url}: {reason}",
            hint=(result.results[0].hint if result.results else "")
            or "downloaded files are kept; the next start resumes",
        )
    return target


def install_requirements(file: Path, report: Callable[[str], None]) -> None:
    """Install with the pip of this interpreter."""
    if not file.is_file():
        raise UsageError(f"{file}: no such file", hint="requirements=True expects it next to the script")
    report(f"pip install -r {file}")
    _log.info("installing %s", file)
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-r", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-_LAST_LINES:])
        raise PacelineError(
            f"{file}: pip install failed:\n{last}", hint="run the same command in the job's image to see why"
        )
