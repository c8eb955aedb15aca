"""Launch a job on several hosts: `paceline launch --node-rank N` on each, over ssh; host keys are verified.

The remote side stops its ranks when its standard input ends: on our request, if we are killed, or if the network fails.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.core.errors import PacelineError, UsageError
from paceline.storage.stores.ssh_connection import SshConnection, SshLogin
from paceline.storage.url import StorageUrl, parse_url
from paceline.training.launcher.launch_plan import RUN_ID, LaunchPlan, ShownRanks, new_run_id
from paceline.training.launcher.signal_queue import SignalQueue

_FORWARDED = ("PACELINE_", "MS_", "HCCL_", "ASCEND_", "GLOO_", "NCCL_", "OMP_", "AWS_ENDPOINT", "OBS_ENDPOINT")
"""Prefixes of variables that are forwarded; never credentials, which every host must have itself."""


def launch_over_ssh(plan: LaunchPlan, report: Callable[[str], None]) -> int:
    hosts = [parse_url(f"ssh://{name}/") for name in plan.hosts]
    if len({host.host for host in hosts}) < len(hosts) and not all(host.port for host in hosts):
        raise UsageError("a host is listed twice", hint="use --ranks for the number of ranks per host")
    plan = replace(plan, env={RUN_ID: os.environ.get(RUN_ID) or new_run_id(), **plan.env})
    remotes = [_Remote(plan, number, host, report) for number, host in enumerate(hosts)]
    with SignalQueue() as signals, ThreadPoolExecutor(len(remotes)) as pool:
        running = {pool.submit(remote.run): remote for remote in remotes}
        return _watch(running, signals, report)


def _watch(running: dict[Future[int], _Remote], signals: SignalQueue, report: Callable[[str], None]) -> int:
    result = 0
    waiting = set(running)
    while waiting:
        done, waiting = wait(waiting, timeout=0.1)
        for future in done:
            code = _code(future, running[future], report)
            if code and not result:
                result = code
                _stop(running, waiting)
        number = signals.take()
        if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) and not result:
            result = 128 + number
            report(f"paceline: {signal.Signals(number).name}; stopping {len(waiting)} hosts")
            _stop(running, waiting)
    return result


def _code(future: Future[int], remote: _Remote, report: Callable[[str], None]) -> int:
    try:
        return future.result()
    except PacelineError as error:
        report(f"paceline: {remote.name}: {error}" + (f" ({error.hint})" if error.hint else ""))
        return 1


def _stop(running: dict[Future[int], _Remote], waiting: set[Future[int]]) -> None:
    for future in waiting:
        running[future].stop()


class _Remote:
    def __init__(self, plan: LaunchPlan, number: int, host: StorageUrl, report: Callable[[str], None]) -> None:
        self.name = host.host
        self._plan, self._number, self._report = plan, number, report
        self._connection = SshConnection(host, SshLogin())
        self._stopped = threading.Event()

    def run(self) -> int:
        return self._connection.run_async(self._work)

    def stop(self) -> None:
        self._stopped.set()

    async def _work(self, connection: Any, _: Any) -> int:
        import asyncio

        process = await connection.create_process(self._command(), encoding="utf-8", errors="replace")
        copies = [
            asyncio.ensure_future(self._copy(process.stdout, self._out)),
            asyncio.ensure_future(self._copy(process.stderr, self._report)),
        ]
        ended = asyncio.ensure_future(process.wait_closed())
        closed = False
        while not ended.done():
            if self._stopped.is_set() and not closed:
                process.stdin.write_eof()
                closed = True
            await asyncio.wait([ended], timeout=0.1)
        await asyncio.gather(*copies)
        return 255 if process.exit_status is None else int(process.exit_status)

    async def _copy(self, stream: Any, to: Callable[[str], None]) -> None:
        while line := await stream.readline():
            to(f"[{self.name}] {line.rstrip()}")

    def _out(self, line: str) -> None:
        if self._plan.show is ShownRanks.first and self._number:
            return  # rank 0 runs on the first host
        print(line, flush=True)

    def _command(self) -> str:
        plan = self._plan
        words = [
            sys.executable,
            "-m",
            "paceline",
            "launch",
            "--until-input-ends",
            "--ranks",
            str(plan.ranks or 1),
            "--nodes",
            str(len(plan.hosts)),
            "--node-rank",
            str(self._number),
            "--master-addr",
            self._master(),
            "--framework",
            plan.framework.value,
            "--log-dir",
            str(plan.log_dir),
            "--show",
            plan.show.value,
            "--grace",
            str(plan.grace),
        ]
        if plan.nodes and plan.nodes.master_port:
            words += ["--master-port", str(plan.nodes.master_port)]
        if plan.rank_table:
            words += ["--rank-table", str(plan.rank_table)]
        kept = {name: value for name, value in os.environ.items() if name.startswith(_FORWARDED)}
        environment = [f"{name}={value}" for name, value in {**kept, **plan.env}.items()]
        return shlex.join(["cd", str(Path.cwd())]) + " && exec env " + shlex.join([*environment, *words, *plan.command])

    def _master(self) -> str:
        nodes = self._plan.nodes
        return (nodes.master_address if nodes else None) or parse_url(f"ssh://{self._plan.hosts[0]}/").host
