"""`job list` says what backends report now, or how old a status is; a name means the job that runs."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from paceline.cli.console.job_output import table
from paceline.core.errors import UsageError
from paceline.jobs import JobDescription, JobHandle, JobPhase, JobStatus, live_status
from paceline.jobs.job_registry import JobRecord, find_record, save_record
from paceline.jobs.live_status import running_records, with_live_status
from paceline.storage.store_errors import TransientError

RUNNING, COMPLETED = JobStatus(JobPhase.running), JobStatus(JobPhase.completed)


def handle(number: int) -> JobHandle:
    job = JobDescription(job_name="gpt2", boot_file="train.py")
    return JobHandle(f"gpt2-{number}", f"gpt2-{number}", "slurm", str(number), job, f"/jobs/{number}", 1000.0 + number)


class FakeBackend:
    """Answers with a status, an error, or not at all."""

    def __init__(self, answers: dict[str, object]) -> None:
        self.answers = answers

    def status(self, asked: JobHandle) -> JobStatus:
        answer = self.answers[asked.id]
        if isinstance(answer, threading.Event):
            answer.wait(600)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, JobStatus) else RUNNING


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setenv("PACELINE_STATE", str(tmp_path))
    found: dict[str, object] = {}
    monkeypatch.setattr(live_status, "backend_for", lambda _: FakeBackend(found))
    return found


def test_live_phases_replace_remembered_ones_and_silence_shows_their_age(answers: dict[str, object]) -> None:
    long_ago = time.time() - 300
    silent = threading.Event()
    answers |= {"gpt2-1": COMPLETED, "gpt2-2": TransientError("away"), "gpt2-3": silent}
    records = [JobRecord(handle(number), RUNNING, long_ago) for number in (1, 2, 3)]
    found = [*with_live_status(records[:2], seconds=600), *with_live_status(records[2:], seconds=0.1)]
    silent.set()
    assert [record.status for record in found] == [COMPLETED, RUNNING, RUNNING]
    shown = table(found).splitlines()
    assert "completed " in shown[1] and "ago" not in shown[1]
    assert "running (5 min ago)" in shown[2] and "running (5 min ago)" in shown[3]


def test_a_job_that_ended_is_not_asked_again(answers: dict[str, object]) -> None:
    assert with_live_status([JobRecord(handle(1), COMPLETED, 1.0)])[0].status == COMPLETED
    assert "ago" not in table([JobRecord(handle(1), COMPLETED, 1.0)])
    assert "running (last known)" in table([JobRecord(handle(1), RUNNING)])


def test_a_name_of_several_jobs_means_the_one_that_runs(answers: dict[str, object]) -> None:
    for number in (1, 2, 3):
        save_record(handle(number), RUNNING)
    answers |= {"gpt2-1": COMPLETED, "gpt2-2": RUNNING, "gpt2-3": COMPLETED}
    assert find_record("gpt2", running_records).handle.id == "gpt2-2"
    with pytest.raises(UsageError, match="3 jobs have this name"):
        find_record("gpt2")
    for number in (1, 3):
        save_record(handle(number), RUNNING)
    answers["gpt2-3"] = RUNNING
    with pytest.raises(UsageError, match="2 jobs have this name") as caught:
        find_record("gpt2", running_records)
    assert caught.value.hint == "use one of the ids: gpt2-3, gpt2-2"
