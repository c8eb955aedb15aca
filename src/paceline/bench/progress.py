"""What a benchmark has done so far, in its directory: finished runs are kept whatever happens to the client.

progress.json is written before every run (with the id of its job) and after it (with its result), so that `bench resume`
keeps what was measured, re-attaches to a job that still runs or has completed meanwhile, and starts only what is missing.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from paceline.bench.result import LARGEST, ProfilePart, Repetition
from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import UsageError
from paceline.core.message import Sentence

FILE = "progress.json"
PROFILE = 0
"""Number of the recorded run of a size; measured runs count from 1."""


class BenchOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the benchmark was started: a resumed one must be the same."""

    config: str
    config_sha256: str
    backend: str
    repeat: int
    started: float
    baseline: str | None = None
    tester: str | None = None
    store: str | None = None


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    size: int
    """Processes per node."""
    number: int
    job_id: str
    repetition: Repetition | None = None
    """None while it runs."""
    profile: ProfilePart | None = None
    warnings: tuple[Sentence, ...] = ()


class _Document(msgspec.Struct, frozen=True, tag="paceline.bench-progress/1", tag_field="schema"):
    options: BenchOptions
    runs: tuple[RunRecord, ...] = ()


class BenchProgress:
    """Every change is on disk before the next step."""

    def __init__(self, directory: Path, document: _Document) -> None:
        self._path = directory / FILE
        self._options = document.options
        self._runs = {(run.size, run.number): run for run in document.runs}

    @classmethod
    def begin(cls, directory: Path, options: BenchOptions) -> BenchProgress:
        directory.mkdir(parents=True, exist_ok=True)
        made = cls(directory, _Document(options))
        made._save()
        return made

    @classmethod
    def read(cls, directory: Path) -> BenchProgress:
        path = directory / FILE
        try:
            with path.open("rb") as file:
                return cls(directory, msgspec.json.decode(file.read(LARGEST), type=_Document))
        except FileNotFoundError:
            raise UsageError(
                f"{directory}: no benchmark was started here", hint="give the directory that bench run named (--out)"
            ) from None
        except (OSError, msgspec.DecodeError, RecursionError) as error:
            raise UsageError(f"{path}: cannot be read: {error}") from None

    @property
    def options(self) -> BenchOptions:
        return self._options

    @property
    def finished(self) -> int:
        """Number of measured runs that are kept."""
        return sum(run.repetition is not None for run in self._runs.values())

    def find(self, size: int, number: int) -> RunRecord | None:
        return self._runs.get((size, number))

    def record(self, run: RunRecord) -> RunRecord:
        self._runs[run.size, run.number] = run
        self._save()
        return run

    def _save(self) -> None:
        document = _Document(self._options, tuple(self._runs.values()))
        atomic_write_text(self._path, msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n")
