"""A job backend as another package would bring it: runs the boot file at once, in this process' child."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from paceline.jobs.backend import JobHandle, JobPhase, JobStatus, LogPiece
from paceline.jobs.description import JobDescription
from paceline.jobs.job_plan import make_job_plan
from paceline.jobs.log_tail import LogTail
from paceline.jobs.outputs import fetch_outputs
from paceline.storage.file_selection import FileFilter, everything
from paceline.storage.transfer.transfer_report import OnProgress


def create_backend(job: JobDescription) -> ToyBackend:
    return ToyBackend(str(job.backend_options.get("greeting", "hello")))


class ToyBackend:
    name = "toy"
    poll_seconds = 0.05

    def __init__(self, greeting: str) -> None:
        self._greeting, self._tail = greeting, LogTail()

    def submit(self, job: JobDescription, directory: Path, *, progress: OnProgress | None = None) -> JobHandle:
        plan = make_job_plan(job, directory.name, directory)
        handle = JobHandle(
            id=plan.id,
            name=plan.id,
            backend=self.name,
            remote_id="toy-1",
            job=job,
            directory=plan.directory,
            submitted=time.time(),
            outputs=plan.destinations,
        )
        handle.logs.mkdir(parents=True)
        with (handle.logs / handle.log_name(0)).open("w") as log:
            log.write(f"{self._greeting} from the toy backend\n")
            log.flush()
            command = [sys.executable, str(Path(job.code_dir) / job.boot_file), *plan.arguments()]
            code = subprocess.run(command, stdout=log, stderr=log, env={"RANK_ID": "0"}, check=False).returncode
        (directory / "exit_code").write_text(str(code))
        return handle

    def recover(self, handle: JobHandle) -> JobHandle | None:
        return handle

    def status(self, handle: JobHandle) -> JobStatus:
        code = int((Path(handle.directory) / "exit_code").read_text())
        return JobStatus(JobPhase.failed if code else JobPhase.completed, "done")

    def sync_logs(self, handle: JobHandle, *, last: bool = False) -> list[LogPiece]:
        return self._tail.new(handle)

    def stop(self, handle: JobHandle) -> None:
        pass  # it ended before it could be stopped

    def fetch_outputs(self, handle: JobHandle, target: Path, rule: FileFilter = everything) -> Path:
        return fetch_outputs(handle, target, rule)
