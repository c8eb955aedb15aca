"""A store that is down for more than a minute while `paceline train` runs; started in a thread, ended by the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from support.storage.servers import S3Server
from support.training.running import wait_for
from support.training.tiny import import_path, write_config, write_text

LASTS = 60.0
STEPS, HELD_AT = 240, 230
_SAVE = {
    "type": "CheckpointMonitor",
    "prefix": "gpt2",
    "save_checkpoint_steps": 10,
    "keep_checkpoint_max": 3,
    "async_save": True,
}


class Outage:
    def __init__(self, directory: Path) -> None:
        self._directory, self.root, self._flag = directory, directory / "run", directory / "go"
        self.server = S3Server(directory / "server")
        self.failed_while_down = 0
        self._step_before = 0
        self._since = 0.0
        self._job: subprocess.Popen[bytes] | None = None
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._begin, daemon=True)
        self._thread.start()

    def end(self) -> int:
        """Bring the store back and wait for the training to finish."""
        self._thread.join()
        if self._problem is not None:
            raise self._problem
        assert self._job is not None
        job = self._job
        wait_for(lambda: job.poll() is not None or self._is_noticed())
        self.failed_while_down = self.told().get("failures", 0)
        self.server.start()
        self._flag.write_text("")
        return job.wait(600)

    def close(self) -> None:
        self._thread.join()
        if self._job is not None and self._job.poll() is None:
            self._job.kill()
            self._job.wait()
        self.server.stop(hard=True)

    @property
    def step(self) -> int:
        try:
            return len((self.root / "log/rank_0/loss.csv").read_text().splitlines()) - 1
        except FileNotFoundError:
            return 0

    @property
    def output(self) -> str:
        return (self._directory / "output").read_text()

    @property
    def went_on(self) -> bool:
        """Whether training made steps while the store was down, as long as the test let it."""
        return self.step - self._step_before > 20 or self.step >= HELD_AT

    def _is_noticed(self) -> bool:
        over = time.monotonic() - self._since >= LASTS
        return over and self.went_on and self.told().get("failures", 0) > 0

    def told(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.root / "log/rank_0/obs-monitor.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    def _begin(self) -> None:
        try:
            self.server.start()
            self.url = f"s3://{self.server.bucket()}/run"
            job = self._job = self._start()
            wait_for(lambda: job.poll() is not None or self.told().get("bytes", 0) > 0, told=lambda: self.output)
            self._step_before = self.step
            self.server.stop(hard=True)
            self._since = time.monotonic()
        except BaseException as error:  # raised again in the test
            self._problem = error

    def _start(self) -> subprocess.Popen[bytes]:
        paced = {"type": "support.training.tiny:Paced", "seconds": 0.3, "until": str(self._flag), "hold_at": HELD_AT}
        callbacks = [{"type": "MFLossMonitor"}, _SAVE, {"type": "ObsMonitor", "upload_sequence": 10}, paced]
        config = write_config(self._directory / "run.yaml", callbacks=callbacks, record=False)
        command = [
            sys.executable,
            "-m",
            "paceline",
            "train",
            "--config",
            str(config),
            "--epochs",
            str(STEPS // 40),
            "--train_dataset_dir",
            str(write_text(self._directory / "text.txt")),
            "--output_dir",
            str(self.root),
            "--remote_save_url",
            self.url,
        ]
        places = {
            "HOME": str(self._directory),
            "PACELINE_CACHE": str(self._directory / "cache"),
            "PYTHONPATH": import_path(),
        }
        with (self._directory / "output").open("wb") as output:
            return subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                cwd=self._directory,
                env={**os.environ, **self.server.environment(), **places},
            )
