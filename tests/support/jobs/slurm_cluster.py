"""A real Slurm on loopback: munged, slurmctld and two slurmds with host names of their own, configured in a directory."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from pathlib import Path

from support.storage.servers import _free_ports

NODES = ("paceline-a", "paceline-b")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "unshare")


def missing() -> str:
    """Why there can be none here; empty when there can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if absent:
        return f"{', '.join(absent)} not installed (make system)"
    return "" if os.geteuid() == 0 else "slurmd and host names of its own need root"


class SlurmCluster:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        for name in ("munge", "state", "spool-a", "spool-b"):
            (directory / name).mkdir(parents=True)
        (directory / "munge").chmod(0o700)
        self.environment = {"SLURM_CONF": str(directory / "slurm.conf"), "PATH": _path()}

    def start(self) -> None:
        self._munge()
        (self.directory / "cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainCores=no\nConstrainRAMSpace=no\n"
        )
        (self.directory / "slurm.conf").write_text(self._config())
        self._daemon("slurmctld", ["slurmctld", "-D"])
        for name in NODES:
            # It only serves the node that its host is called.
            self._daemon(name, ["unshare", "-u", "sh", "-c", f"hostname {name} && exec slurmd -D -N {name}"])
        self._wait(lambda: self.ask("sinfo", "--noheader", "--format=%t %D").split() == ["idle", "2"])

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(600)

    def ask(self, *words: str) -> str:
        done = subprocess.run(
            words, env={**os.environ, **self.environment}, capture_output=True, text=True, check=False
        )
        return done.stdout

    def _munge(self) -> None:
        place = self.directory / "munge"
        key = place / "key"
        key.write_bytes(secrets.token_bytes(64))
        key.chmod(0o400)
        command = [
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={place / 'socket'}",
            f"--pid-file={place / 'pid'}",
            f"--log-file={place / 'log'}",
            f"--seed-file={place / 'seed'}",
        ]
        self._daemon("munged", command)
        self._wait(lambda: (place / "socket").exists())

    def _daemon(self, name: str, command: list[str]) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    command, env={**os.environ, **self.environment}, stdout=log, stderr=log, stdin=subprocess.DEVNULL
                )
            )

    def _config(self) -> str:
        control, *nodes = _free_ports(3)
        host = os.uname().nodename
        lines = [
            "ClusterName=paceline-tests",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={control}",
            "SlurmUser=root",
            "SlurmdUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={self.directory}/munge/socket",
            "CryptoType=crypto/munge",
            f"StateSaveLocation={self.directory}/state",
            f"SlurmdSpoolDir={self.directory}/spool-%n",
            f"SlurmctldPidFile={self.directory}/slurmctld.pid",
            f"SlurmdPidFile={self.directory}/slurmd-%n.pid",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/affinity",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "ReturnToService=2",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "KillWait=5",
            "MinJobAge=300",
            "SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0",
            *(
                f"NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN"
                for name, port in zip(NODES, nodes, strict=True)
            ),
            f"PartitionName=tests Nodes={','.join(NODES)} Default=YES OverSubscribe=FORCE:4 MaxTime=10 State=UP",
            "",
        ]
        return "\n".join(lines)

    def _wait(self, ready: object) -> None:
        until = time.monotonic() + 600
        while not ready():  # type: ignore[operator]
            logs = "\n".join(path.read_text()[-1000:] for path in self.directory.glob("*.log"))
            assert time.monotonic() < until, logs
            assert all(process.poll() is None for process in self._processes), logs
            time.sleep(0.1)


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin"
