"""Launch an unchanged script: fetch its inputs, upload its outputs during and after training, record its steps.

Inputs and outputs belong to the host: one launcher per host does this, beside its ranks. A script learns where an input lies
from the argument --NAME=PATH, which is added, or from {NAME} in its arguments; {output_dir} is the directory that is
uploaded, also found in $LOCAL_DEFAULT_PATH.
"""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from paceline.core.errors import PacelineError, UsageError
from paceline.core.scratch_directory import scratch_directory
from paceline.profiling import full_disk_output
from paceline.profiling.autorecord import RECORD_VARIABLE
from paceline.profiling.launch import startup_path
from paceline.training.launcher.launch_plan import LaunchPlan
from paceline.training.launcher.launcher import launch
from paceline.training.session.input_download import Input, download_inputs, input_cache_dir

OUTPUT = "output_dir"
_DOWNLOAD_TIMEOUT = 24 * 3600.0
_FULL = 64 << 10
"""Free bytes below which a disk counts as full."""
_PATIENCE = 120.0
"""Seconds that an upload waits for a store that does not answer."""


@dataclass(frozen=True)
class Wrapping:
    output_dir: Path
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Name → URL or path."""
    remote_save_url: str = ""
    record: bool = False
    upload_seconds: float = 60.0
    """Between two uploads while the job runs."""


def launch_unwrapped(plan: LaunchPlan) -> int:
    """Without inputs and outputs; a full disk of its logs ends no rank either. Other hosts run a launcher of their own."""
    if plan.hosts:
        return launch(plan)
    with ExitStack() as stack:
        try:
            environment = stack.enter_context(_startup())
        except OSError:
            environment = {}  # the temporary directory is full
        stack.callback(_say_what_is_full, plan.log_dir)
        return launch(replace(plan, env={**plan.env, **environment}))


def launch_wrapped(plan: LaunchPlan, wrapping: Wrapping) -> int:
    """The exit code is the training's, also when files could not be uploaded: those are listed."""
    root = wrapping.output_dir.absolute()
    root.mkdir(parents=True, exist_ok=True)
    wanted = {name: Input(location) for name, location in wrapping.inputs.items()}
    inputs = download_inputs(wanted, input_cache_dir(), _say, _DOWNLOAD_TIMEOUT)
    command = with_paths(plan.command, inputs, root)
    recording = {RECORD_VARIABLE: str(root / "recording")} if wrapping.record else {}
    with _startup() as environment:
        env = {**plan.env, "LOCAL_DEFAULT_PATH": str(root), **environment, **recording}
        upload = PeriodicUpload(root, wrapping.remote_save_url, wrapping.upload_seconds)
        upload.start()
        try:
            return launch(replace(plan, command=command, env=env))
        finally:
            _say_what_is_full(plan.log_dir, root)
            upload.finish()


def _say_what_is_full(*directories: Path) -> None:
    """The ranks themselves cannot: their logs are on that disk."""
    full = [each for each in directories if each.is_dir() and shutil.disk_usage(each).free < _FULL]
    if full:
        _say(f"the disk of {full[0]} is full: what ranks printed and recorded since then is lost, training went on")


def parse_inputs(given: list[str]) -> dict[str, str]:
    """NAME=URL options.

    >>> parse_inputs(["data=obs://bucket/wiki"])
    {'data': 'obs://bucket/wiki'}
    """
    found = {}
    for text in given:
        name, equals, location = text.partition("=")
        if not (name.isidentifier() and equals and location) or name == OUTPUT:
            raise UsageError(
                f"--input {text}: expected NAME=URL", hint="e.g. --input train_dataset_dir=obs://bucket/wiki"
            )
        found[name] = location
    return found


def with_paths(command: tuple[str, ...], inputs: Mapping[str, str], root: Path) -> tuple[str, ...]:
    """The command with the paths of its inputs: where {NAME} stands, else as --NAME=PATH at the end.

    >>> with_paths(("t.py", "--text={book}"), {"book": "/in/b", "more": "/in/m"}, Path("/out"))
    ('t.py', '--text=/in/b', '--more=/in/m')
    """
    placed = {f"{{{name}}}": path for name, path in {**inputs, OUTPUT: str(root)}.items()}
    words = []
    for word in command:
        for mark, path in placed.items():
            word = word.replace(mark, path)
        words.append(word)
    named = " ".join(command)
    words += [f"--{name}={path}" for name, path in inputs.items() if f"{{{name}}}" not in named]
    return tuple(words)


class PeriodicUpload:
    """Uploads a directory now and then, and once more at the end; failures are reported and lose nothing here."""

    def __init__(self, directory: Path, url: str, seconds: float) -> None:
        self._directory, self._url, self._seconds = directory, url, seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paceline-upload", daemon=True)
        self._said = ""

    def start(self) -> None:
        if self._url:
            _say(f"outputs: {self._directory} → {self._url}")
            self._thread.start()

    def finish(self) -> None:
        if not self._url:
            return
        self._end.set()
        self._thread.join()
        lost = self._upload()
        if lost:
            _say(f"NOT everything of {self._directory} is at {self._url}: {lost}")
            _say(f"upload the rest with: paceline sync {self._directory} {self._url}")

    def _run(self) -> None:
        while not self._end.wait(self._seconds):
            problem = self._upload()
            if problem and problem != self._said:
                _say(f"upload: {problem}; training continues, the next upload tries again")
            self._said = problem

    def _upload(self) -> str:
        """What went wrong, or nothing."""
        from paceline.storage.transfer.retry import Backoff
        from paceline.storage.transfer.transfer import TransferOptions, transfer
        from paceline.storage.transfer.transfer_pool import TransferLimits

        options = TransferOptions(limits=TransferLimits(8, Backoff(longest_wait=5.0, patience=_PATIENCE)))
        try:
            report = transfer(self._directory, self._url, options)
        except (PacelineError, OSError) as error:
            return str(error)
        if not report.failures:
            return ""
        first = report.failures[0]
        more = f" and {len(report.failures) - 1} more" if len(report.failures) > 1 else ""
        return f"{first}{more}"


@contextmanager
def _startup() -> Iterator[dict[str, str]]:
    """Environment variables with which Python processes survive a full disk, and can record their training by themselves."""
    with scratch_directory() as directory:
        yield {**startup_path(directory), full_disk_output.VARIABLE: "1"}


def _say(text: str) -> None:
    print(f"paceline: {text}", file=sys.stderr, flush=True)
