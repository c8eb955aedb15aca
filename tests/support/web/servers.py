"""A running `paceline serve`, as tests talk to it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

PATIENCE = 600.0
"""Seconds; httpx's five are too few on a busy machine."""
get, post = partial(httpx.get, timeout=PATIENCE), partial(httpx.post, timeout=PATIENCE)


@dataclass
class Server:
    """A running `paceline serve`."""

    url: str
    process: subprocess.Popen[bytes]
    token: str | None
    base: Path
    client: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = httpx.Client(base_url=f"{self.url}/api/v1", timeout=PATIENCE)

    def get(self, path: str, **query: Any) -> Any:
        answer = self.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json() if answer.headers["content-type"] == "application/json" else answer

    def ids(self) -> dict[str, str]:
        """Name → id of all runs, once the directory has been looked through."""
        while (found := self.get("/runs", limit=500))["scanning"]:
            time.sleep(0.1)
        return {run["name"]: run["id"] for run in found["runs"]}

    def ready(self, name: str) -> str:
        """The id of a run, read and examined."""
        run = self.ids()[name]
        self.client.post(f"/runs/{run}/open")
        return self.until(run)

    def until(self, run: str, phase: str = "ready") -> str:
        for _ in range(6000):
            state = self.get(f"/runs/{run}")["state"]
            if state["phase"] == phase:
                return run
            assert state["phase"] != "failed", state
            time.sleep(0.1)
        raise AssertionError(f"{run} never became {phase}")

    def rows(self, run: str, table: str, **query: Any) -> list[dict[str, Any]]:
        page = self.get(f"/runs/{run}/tables/{table}", **query)
        names = [column["name"] for column in page["columns"]]
        return [dict(zip(names, row, strict=True)) for row in page["rows"]]

    def timeline(self, name: str) -> str:
        run = self.ready(name)
        for _ in range(6000):
            state = self.client.post(f"/runs/{run}/timeline/open").json()
            if state["phase"] == "ready":
                return run
            assert state["phase"] != "failed", state
            time.sleep(0.1)
        raise AssertionError("the timeline never became ready")

    def stop(self) -> None:
        self.client.close()
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


Serve = Callable[..., Server]
