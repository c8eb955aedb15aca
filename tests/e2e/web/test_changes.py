"""A run that changes or vanishes while somebody looks at it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from paceline import simulate
from paceline.run.tables.store import default_store_directory
from support.web.servers import Serve, Server

SPEC = simulate.ClusterSpec(hosts=1, devices=4, dp=2, tp=2, pp=1, steps=3, layers=2, micro_batches=2)


@pytest.fixture
def looking(serve: Serve, tmp_path: Path) -> tuple[Server, str, Path]:
    simulate.simulate(tmp_path / "runs" / "one", SPEC, [], "ascend-text")
    server: Server = serve(tmp_path / "runs")
    return server, server.ready("one"), tmp_path / "runs" / "one"


def until(server: Server, run: str, **wanted: object) -> dict[str, object]:
    for _ in range(3000):
        answer = server.client.get(f"/runs/{run}").json()
        if all(answer.get(name) == value for name, value in wanted.items()):
            return dict(answer)
        time.sleep(0.1)
    raise AssertionError(answer)


def test_changed_files_are_said_and_read_again_on_request(looking: tuple[Server, str, Path]) -> None:
    server, run, path = looking
    assert server.get(f"/runs/{run}")["stale"] is False
    shutil.rmtree(next(path.glob("*_10003_*")))
    until(server, run, stale=True)
    assert len(server.rows(run, "step-trace")) == 4, "what was read is still shown"
    server.client.post(f"/runs/{run}/open", params={"again": "true"})
    server.until(run)
    until(server, run, stale=False)
    assert len(server.rows(run, "step-trace")) == 3


def test_a_run_that_vanished_is_gone_and_the_server_goes_on(looking: tuple[Server, str, Path]) -> None:
    server, run, path = looking
    simulate.simulate(path.parent / "two", SPEC, [], "ascend-text")
    shutil.rmtree(path)
    answer = server.client.get(f"/runs/{run}/tables/step-trace")
    assert answer.status_code == 410 and "no longer there" in answer.json()["error"]
    assert server.client.get(f"/runs/{run}").status_code == 410
    assert server.client.post(f"/runs/{run}/open", params={"again": "true"}).status_code == 410
    for _ in range(3000):
        names = [one["name"] for one in server.get("/runs")["runs"]]
        if names == ["two"]:
            break
        time.sleep(0.1)
    assert names == ["two"]
    assert server.ready("two")


def test_the_cache_that_vanished_under_an_open_run_is_an_error_not_a_crash(
    looking: tuple[Server, str, Path], shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, run, path = looking
    monkeypatch.setenv("PACELINE_CACHE", str(shared / "web-cache"))
    shutil.rmtree(default_store_directory(path))
    assert len(server.rows(run, "step-trace")) == 4
    for _ in range(3000):
        state = server.client.post(f"/runs/{run}/timeline/open").json()
        if state["phase"] in ("ready", "failed"):
            break
        time.sleep(0.05)
    assert server.client.get(f"/runs/{run}").status_code == 200
    server.client.post(f"/runs/{run}/open", params={"again": "true"})
    server.until(run)
    assert len(server.rows(run, "step-trace")) == 4
