"""MindInsight 2.3.1 (PyPI; Python 3.9) on the same recordings, asked the same questions, for benchmarks/web.py."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from peer import WORK
from web_data import DATA

PEER = "mindinsight==2.3.1"
VENV = WORK / "mindinsight-venv"
RUNS = {"mi-4": 3, "mi-1024": 1}
"""How often each is asked again: one round at 1,024 ranks takes MindInsight minutes."""

OURS: dict[str, list[tuple[str, dict[str, object]]]] = {
    "step trace": [("charts/breakdown", {}), ("tables/step-trace", {"limit": 20})],
    "communication": [("charts/communication", {}), ("tables/communication", {"limit": 20})],
    "links": [("charts/links", {}), ("tables/links", {"limit": 20})],
    "memory and FLOPs": [("charts/resources", {})],
    "advice": [("overview", {})],
}
_BODY = {"filter_condition": {"step_id": 0}, "group_condition": {"limit": 20, "offset": 0}}
THEIRS: dict[str, list[tuple[str, str, dict[str, object] | None]]] = {
    "step trace": [("POST", "cluster-step-trace-summary", {"filter_condition": {"step_id": 0}})],
    "communication": [("POST", "search-cluster-communication", {"filter_condition": {"step_id": 0}})],
    "links": [("POST", "search-cluster-link", _BODY), ("GET", "communication-data", None)],
    "memory and FLOPs": [("GET", "cluster-peak-memory", None), ("GET", "cluster-flops", None)],
    "advice": [("GET", "summary/cluster-propose", None)],
}


def against_mindinsight(client: httpx.Client, runs: dict[str, str]) -> list[str]:
    """Seconds from the question to the answer: the first time anybody asks it, and the best of the times after."""
    program = _install()
    if program is None:
        return ["MindInsight was not measured: no Python 3.9 (python3.9, pyenv, or PYTHON39)"]
    missed = []
    # A connection for each question: gunicorn closes idle ones, and may do so just when the next question leaves.
    alone = httpx.Limits(max_keepalive_connections=0)
    with _serving(program) as url, httpx.Client(base_url=url, timeout=600, limits=alone) as peer:
        _ask_peer(peer, "mi-4", "step trace")  # what it imports on its first question is nobody's answer
        for name, times in RUNS.items():
            missed += _compared(client, peer, name, runs[name], times)
    return missed


def _compared(client: httpx.Client, peer: httpx.Client, name: str, run: str, times: int) -> list[str]:
    title = f"{name}: seconds until a page has what it shows"
    print(f"\n{title:50}Paceline   again  MindInsight    again    ratio")
    ours, theirs = [], []
    for question in OURS:
        ours.append(_asked(lambda q=question: _ask_us(client, run, q), 3))
        theirs.append(_asked(lambda q=question: _ask_peer(peer, name, q), times))
        _line(question, ours[-1], theirs[-1])
    totals = [tuple(sum(column) for column in zip(*rows, strict=True)) for rows in (ours, theirs)]
    _line("all", totals[0], totals[1])
    _same_ranks(client, peer, name, run)
    if totals[1][0] < totals[0][0]:
        return [f"{name}: MindInsight answered in {totals[1][0]:.3f} s, we in {totals[0][0]:.3f} s"]
    return []


def _line(question: str, ours: tuple[float, ...], theirs: tuple[float, ...]) -> None:
    """First time, best of the later ones, and the ratio of the first times."""
    again = [f"{times[1]:.3f}" if len(times) > 1 else "" for times in (ours, theirs)]
    print(
        f"  {question:42} {ours[0]:10.3f} {again[0]:>7} {theirs[0]:12.3f} {again[1]:>8} {theirs[0] / ours[0]:8.1f} ×",
        flush=True,
    )


def _asked(ask: Callable[[], None], times: int) -> tuple[float, ...]:
    """The first time, and the best of `times - 1` later ones."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        ask()
        taken.append(time.perf_counter() - began)
    return (taken[0], min(taken[1:])) if times > 1 else (taken[0],)


def _ask_us(client: httpx.Client, run: str, question: str) -> None:
    for path, query in OURS[question]:
        client.get(f"/runs/{run}/{path}", params=query).raise_for_status()


def _ask_peer(peer: httpx.Client, name: str, question: str) -> None:
    for method, path, body in THEIRS[question]:
        peer.request(method, path, params={"train_id": f"./{name}"}, json=body).raise_for_status()


def _same_ranks(client: httpx.Client, peer: httpx.Client, name: str, run: str) -> None:
    """Both must show the same ranks, or the comparison means nothing."""
    ours = client.get(f"/runs/{run}/tables/step-trace").json()["total"]
    asked = {"params": {"train_id": f"./{name}"}}
    theirs = peer.post("cluster-step-trace-summary", json={"filter_condition": {"step_id": 0}}, **asked).json()["size"]
    links = peer.post("search-cluster-link", json=_BODY, **asked).json()["size"]
    if ours != theirs or links == 0:
        raise SystemExit(f"{name}: we show {ours} ranks, MindInsight {theirs} and {links} links")


def _install() -> Path | None:
    """Its program, installed once; None without the Python it needs."""
    program = VENV / "bin" / "mindinsight"
    if program.exists():
        return program
    pythons = sorted((Path.home() / ".pyenv" / "versions").glob("3.9*/bin/python"))
    python = os.environ.get("PYTHON39") or (str(pythons[-1]) if pythons else shutil.which("python3.9"))
    if python is None:
        return None
    subprocess.run([python, "-m", "venv", "--clear", str(VENV)], check=True)
    done = subprocess.run(
        [str(VENV / "bin" / "pip"), "install", "--quiet", PEER], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{PEER} does not install:\n{done.stderr[-2000:]}")
    return program


@contextmanager
def _serving(program: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    base, home = WORK / "mindinsight-base", WORK / "mindinsight"
    shutil.rmtree(base, ignore_errors=True)
    for name in RUNS:
        shutil.copytree(DATA / name, base / name, copy_function=os.link)
    # Its own home: it keeps logs and settings there.
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(home)}
    where = ["--port", str(port), "--workspace", str(home)]
    try:
        command = [str(program), "start", "--summary-base-dir", str(base), *where]
        started = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if started.returncode:
            raise SystemExit(f"MindInsight does not start:\n{(started.stdout + started.stderr)[-2000:]}")
        yield f"http://127.0.0.1:{port}/v1/mindinsight/profile"
    finally:
        subprocess.run([str(program), "stop", "--port", str(port)], env=environment, check=False, capture_output=True)
        _end_the_rest()
        shutil.rmtree(base, ignore_errors=True)


def _end_the_rest() -> None:
    """It runs in the background and may leave workers: whatever runs from its environment is ours to end."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + 10
        while (running := _running()) and time.monotonic() < deadline:
            for pid in running:
                try:
                    os.kill(pid, how)
                except ProcessLookupError:
                    pass  # it ended by itself
            time.sleep(0.5)


def _running() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue  # it ended while we looked
        if command.startswith(f"{VENV}/bin/".encode()):
            found.append(int(entry.name))
    return found
