"""What Paceline says about a damaged recording, beside what it says about the intact one."""

from __future__ import annotations

import resource
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Literal, TypeVar

from paceline.core.errors import PacelineError, is_interrupt
from paceline.diagnosis.diagnose import diagnose
from paceline.diagnosis.finding import Diagnosis, Finding
from paceline.run.run import Run

Outcome = Literal[
    "same", "same, less sure", "other, with a warning", "refused", "same, not read", "same, as sure", "silently wrong",
    "traceback", "hang", "crash",
]  # fmt: skip
GOOD: frozenset[Outcome] = frozenset({"same", "same, less sure", "other, with a warning", "refused", "same, not read"})
"""`same`: the damage left all that was measured in place (a byte order mark, a spare copy). `same, not read`: of a file
that a diagnosis does not read, and what is left of it looks whole."""
TIMEOUT_S = 60
"""Of processor time: a busy machine is no hang."""
MEMORY_BYTES = 4 << 30
Case = TypeVar("Case")


@dataclass(frozen=True)
class Said:
    """The first finding that is about a cause, and how sure it is."""

    id: str
    about: frozenset[tuple[str, object]]
    confidence: float
    warned: bool
    read: frozenset[str] = frozenset()
    """Files that the diagnosis was built on."""


class Hang(BaseException):
    """Not an Exception: nothing may swallow it."""


def judge(intact: Said, work: Callable[[], Said], *, harmless: bool = False) -> tuple[Outcome, str]:
    """The outcome of `work`, and its error in one line; `harmless`: the damage changes nothing that is measured."""
    try:
        with_limit = _limited(work)
    except PacelineError as error:
        return "refused", str(error)
    except Hang:
        return "hang", ""
    except Exception as error:  # whatever it is, users would see a traceback
        if is_interrupt(error):
            return "hang", ""  # the signal met DuckDB
        where = traceback.extract_tb(error.__traceback__)[-1]
        return "traceback", f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
    if with_limit.id == intact.id and with_limit.about & intact.about == intact.about:
        if with_limit.confidence < intact.confidence:
            return "same, less sure", ""
        return ("same" if harmless else "same, as sure"), ""
    less_sure = with_limit.id == "nothing" or with_limit.confidence < intact.confidence
    outcome: Outcome = "other, with a warning" if with_limit.warned and less_sure else "silently wrong"
    return outcome, f"{with_limit.id} {sorted(map(str, with_limit.about))}, confidence {with_limit.confidence}"


def said_of(source: Path) -> Said:
    """The diagnosis of a recording, in few words."""
    with tempfile.TemporaryDirectory() as store, Run(source, store=store) as run:
        return replace(summary(diagnose(run)), read=run.files_read)


def summary(diagnosis: Diagnosis) -> Said:
    causes = [each for each in diagnosis.findings if each.severity != "info" and each.id != "data-incomplete"]
    warned = bool(diagnosis.run.warnings) or any(each.id == "data-incomplete" for each in diagnosis.findings)
    if not causes:
        return Said("nothing", frozenset(), 1.0, warned)
    return Said(causes[0].id, _about(causes[0]), causes[0].confidence, warned)


def _about(finding: Finding) -> frozenset[tuple[str, object]]:
    subject = finding.subject
    links = {("link", frozenset((link.src, link.dst))) for link in subject.links}
    parts = {("rank", rank) for rank in subject.ranks} | {("stage", stage) for stage in subject.stages}
    return frozenset(links or parts | {("operator", name) for name in subject.operators})


def _limited(work: Callable[[], Said]) -> Said:
    signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, TIMEOUT_S)
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _stop(_: int, __: FrameType | None) -> None:
    raise Hang


def run_all(
    work: Callable[[Case], tuple[Outcome, str]], cases: Sequence[Case], jobs: int
) -> Iterator[tuple[Case, Outcome, str]]:
    """All cases in worker processes; a case that kills its worker is a crash, and the others go on."""
    waiting = list(cases)
    while waiting:
        with ProcessPoolExecutor(jobs, get_context("spawn"), _limit_memory) as pool:
            futures = [(case, pool.submit(work, case)) for case in waiting]
            done, broken = 0, False
            for case, future in futures:
                try:
                    outcome, detail = future.result()
                except BrokenProcessPool:
                    broken = True
                    break
                done += 1
                yield case, outcome, detail
        waiting = waiting[done:]
        if broken:
            yield waiting.pop(0), "crash", "the process died"


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def counted(outcomes: Iterable[Outcome]) -> str:
    """Counts by outcome in one line."""
    found = list(outcomes)
    counts = {outcome: found.count(outcome) for outcome in dict.fromkeys((*sorted(GOOD), *sorted(found)))}
    return f"{len(found)} cases: " + " · ".join(f"{count} {outcome}" for outcome, count in counts.items())
