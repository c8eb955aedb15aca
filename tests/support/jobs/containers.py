"""What ModelArts does with a job, with real processes: code and inputs in, ma-pre-start.sh, one boot per card, outputs out.

Every node has the Python of the engine's image (images.py): Paceline is in it only if the job installs it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from support.jobs.images import image_python
from support.storage.servers import S3Server, _free_ports, clean_environment

_CARDS = re.compile(r"\.(\d*)xlarge$")


class CloudJob:
    """One training job; `phase` walks Creating → Pending → Running → Completed, Failed or Terminated."""

    def __init__(self, body: dict[str, Any], directory: Path, s3: S3Server) -> None:
        self.id = str(uuid.uuid4())
        self.body, self.directory, self.s3 = body, directory / self.id, s3
        self.created = time.time()
        self.started = self.ended = 0.0
        self.phase = "Creating"
        self.shown: list[str] = []
        """Words to be said instead of the phase, one per question."""
        self.events: list[dict[str, str]] = []
        self.codes: dict[str, int] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def nodes(self) -> int:
        return int(self.body["spec"]["resource"]["node_count"])

    @property
    def tasks(self) -> list[str]:
        return [f"worker-{number}" for number in range(self.nodes)]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self.phase in ("Creating", "Pending", "Running"):
            self.phase = "Terminating"
            self._stopping.set()
            self._kill(signal.SIGTERM)

    def close(self) -> None:
        self.stop()
        self._kill(signal.SIGKILL)
        if self._thread.ident:
            self._thread.join(600)

    def join(self) -> None:
        self._thread.join(600)

    def log(self, task: str) -> Path:
        return self.directory / f"modelarts-job-{self.id}-{task}.log"

    def answer(self) -> dict[str, Any]:
        phase = self.shown.pop(0) if self.shown else self.phase
        end = self.ended or time.time()
        status = {
            "phase": phase,
            "secondary_phase": phase,
            "tasks": self.tasks,
            "start_time": int(self.started * 1000),
            "duration": int((end - self.started) * 1000) if self.started else 0,
            "task_statuses": [
                {"task": task, "exit_code": code, "message": "" if code == 0 else "training failed"}
                for task, code in self.codes.items()
            ],
        }
        metadata = {**self.body["metadata"], "id": self.id, "create_time": int(self.created * 1000), "user_name": "u"}
        algorithm = {**self.body["algorithm"], "environments": [self.body["algorithm"].get("environments", {})]}
        return {
            "kind": "job",
            "metadata": metadata,
            "status": status,
            "spec": self.body["spec"],
            "algorithm": algorithm,
        }

    def _run(self) -> None:
        self.directory.mkdir(parents=True)
        try:
            homes = [self._home(task) for task in self.tasks]
            self.phase, self.started = "Terminating" if self._stopping.is_set() else "Running", time.time()
            self._say("Normal", "Training job started")
            for number, home in enumerate(homes):
                self._boot(number, home)
            self._wait()
        except Exception as error:  # a platform has to answer for everything that happens in a job
            self._say("Error", f"{type(error).__name__}: {error}")
            self.codes = dict.fromkeys(self.tasks, 1)
        self._finish()

    def _home(self, task: str) -> Path:
        """Code and inputs where the container expects them."""
        home = self.directory / task
        algorithm = self.body["algorithm"]
        code = home / "user-job-dir" / algorithm["code_dir"].rstrip("/").rpartition("/")[2]
        self._download(algorithm["code_dir"], code)
        for channel in algorithm.get("inputs", ()):
            self._download(channel["remote"]["obs"]["obs_url"], home / "inputs" / f"{channel['name']}_0")
        for channel in algorithm.get("outputs", ()):
            (self.directory / "outputs" / channel["name"]).mkdir(parents=True, exist_ok=True)
        return home

    def _boot(self, number: int, home: Path) -> None:
        algorithm, cards = self.body["algorithm"], self._cards()
        code = home / "user-job-dir" / algorithm["code_dir"].rstrip("/").rpartition("/")[2]
        own = algorithm.get("command", "")  # a custom image's; the boot file is not sent then
        boot = code / algorithm.get("boot_file", "command").removeprefix(algorithm["code_dir"])
        words = [f"--{each['name']}={home / 'inputs' / each['name']}_0" for each in algorithm.get("inputs", ())]
        words += [
            f"--{each['name']}={self.directory / 'outputs' / each['name']}" for each in algorithm.get("outputs", ())
        ]
        words += [f"--{each['name']}={each['value']}" for each in algorithm.get("parameters", ())]
        common = {
            **clean_environment(),
            "MA_NUM_HOSTS": str(self.nodes),
            "MA_NUM_GPUS": str(cards),
            "VC_TASK_INDEX": str(number),
            "VC_WORKER_NUM": str(self.nodes),
            "VC_WORKER_HOSTS": ",".join(["127.0.0.1"] * self.nodes),
            "MA_VJ_NAME": f"ma-job-{self.id}",
            "MA_JOB_DIR": str(home / "user-job-dir"),
            "RANK_SIZE": str(cards * self.nodes),
            "JOB_ID": self.id,
            "MASTER_PORT": str(_free_ports(1)[0]),  # containers have a network of their own, these share one
            **algorithm.get("environments", {}),
        }
        python = image_python(algorithm.get("engine", {}).get("engine_version") or "", home / "python")
        common |= {"PATH": f"{python.parent}:{os.environ['PATH']}", "PIP_CONFIG_FILE": os.devnull}
        for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
            common.pop(name, None)
        script = 'if [ -f "$1/ma-pre-start.sh" ]; then . "$1/ma-pre-start.sh"; fi; shift; exec "$@"'
        with self.log(self.tasks[number]).open("ab") as log:
            for card in range(cards):
                ranks = {"RANK_ID": str(number * cards + card), "DEVICE_ID": str(card), "PYTHONUNBUFFERED": "1"}
                started = ["bash", "-c", f'{own} "$@"', "command"] if own else [str(python), str(boot)]
                command = ["bash", "-c", script, "boot", str(boot.parent), *started, *words]
                self._processes.append(
                    subprocess.Popen(
                        command,
                        env={**common, **ranks},
                        cwd=code,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )

    def _wait(self) -> None:
        cards = self._cards()
        while len(self.codes) < self.nodes:
            for number, task in enumerate(self.tasks):
                codes = [process.poll() for process in self._processes[number * cards : (number + 1) * cards]]
                if task not in self.codes and None not in codes:
                    self.codes[task] = next((code for code in codes if code), 0)
                if any(codes) or self._stopping.is_set():  # it may have been stopped before its processes began
                    self._kill(signal.SIGTERM)  # the others would wait for it for ever
            time.sleep(0.05)

    def _finish(self) -> None:
        try:
            for channel in self.body["algorithm"].get("outputs", ()):
                self._upload(self.directory / "outputs" / channel["name"], channel["remote"]["obs"]["obs_url"])
            where = self.body["spec"].get("log_export_path", {}).get("obs_url")
            for task in self.tasks if where else ():
                if self.log(task).exists():
                    self._put(self.log(task), where + self.log(task).name)
        except Exception as error:
            self._say("Error", f"upload: {error}")
        self.ended = time.time()
        failed = any(self.codes.values())
        self.phase = "Terminated" if self._stopping.is_set() else "Failed" if failed else "Completed"

    def _cards(self) -> int:
        found = _CARDS.search(self.body["spec"]["resource"].get("flavor_id") or "")
        return int(found[1] or 1) if found else 1

    def _say(self, level: str, message: str) -> None:
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        self.events.insert(0, {"level": level, "message": message, "time": now, "source": "training-platform"})

    def _kill(self, number: int) -> None:
        for process in self._processes:
            if process.poll() is None:
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    pass

    def _download(self, where: str, target: Path) -> None:
        bucket, _, prefix = where.strip("/").partition("/")
        client = self.s3.client()
        found = client.listObjects(bucket, prefix=f"{prefix}/").body.contents
        assert found, f"nothing at {where}"
        for item in found:
            path = target / item.key.removeprefix(f"{prefix}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            assert client.getObject(bucket, item.key, downloadPath=str(path)).status < 300

    def _upload(self, source: Path, where: str) -> None:
        for path in sorted(source.rglob("*")):
            if path.is_file():
                self._put(path, where + path.relative_to(source).as_posix())

    def _put(self, path: Path, where: str) -> None:
        bucket, _, key = where.strip("/").partition("/")
        assert self.s3.client().putFile(bucket, key, str(path)).status < 300
