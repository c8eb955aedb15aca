"""Uploads during training: a slow, unreachable or refusing store does not delay training, and nothing is lost."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paceline.checkpoint.resume.resume_point import find_resume_point
from paceline.storage.transfer.transfer import transfer
from support.storage.faults import Drop, Hold, Proxy, Request, Status
from support.storage.servers import S3Server
from support.training.outage import STEPS, Outage
from support.training.running import Training, assert_whole, fetched, is_gone, stored, wait_for

OUTAGE = "test_a_store_that_is_down_for_a_minute_gets_everything_and_it_is_logged"
SAVE = {"type": "CheckpointMonitor", "prefix": "gpt", "save_checkpoint_steps": 1, "keep_checkpoint_max": 2}
SEND = {"type": "ObsMonitor", "upload_sequence": 1}


@pytest.fixture(scope="module", autouse=True)
def outage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outage | None]:
    """Starts with the first test of this file, so that its minute passes while the others run."""
    if not any(item.name == OUTAGE for item in request.session.items):
        yield None
        return
    begun = Outage(tmp_path_factory.mktemp("outage"))
    yield begun
    begun.close()


def home_again(url: str, target: Path) -> tuple[Path, int]:
    """Download the resume point at a URL."""
    point = find_resume_point(url)
    transfer(url, target).raise_failures()
    assert point.global_step is not None
    return target / point.files[0][0], point.global_step


def told(root: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((root / "log" / "rank_0" / "obs-monitor.json").read_text())
    except FileNotFoundError:
        return {}
    return found


def test_training_does_not_wait_for_a_slow_store(faulty: str, proxy: Proxy, tmp_path: Path) -> None:
    """No write ends before the last step: training gets there, uploads are combined into few, and the last is complete."""
    proxy.fault = lambda request: Hold() if request.method == "PUT" else None
    url = f"s3://{faulty}/run"
    training = Training(tmp_path / "run", url=url, steps=60, hold=60, monitors=[SAVE, SEND])
    training.until(lambda: training.step == 60 and proxy.held.is_set())
    proxy.release.set()
    (tmp_path / "run" / "go").write_text("")
    assert training.wait() == 0, training.output
    checkpoints = proxy.count(lambda request: request.method == "PUT" and ".ckpt" in request.path)
    assert 1 <= checkpoints < 40
    path, step = home_again(url, tmp_path / "back")
    assert step == 60
    assert_whole(path, 60)
    assert {"checkpoint/rank_0/meta.json", "log/rank_0/info.log", "log/rank_0/obs-monitor.json"} <= set(stored(url))
    assert not any(key.startswith(".upload") for key in stored(url))
    assert not (tmp_path / "run" / ".upload").exists()


@pytest.mark.parametrize("fault", [Drop(), Status(503), Status(403, "AccessDenied")], ids=["down", "busy", "refusing"])
def test_an_unreachable_store_is_reported_and_gets_everything_later(
    faulty: str, proxy: Proxy, tmp_path: Path, fault: object
) -> None:
    proxy.fault = lambda _: fault
    url = f"s3://{faulty}/run"
    training = Training(
        tmp_path / "run", url=url, steps=30, seconds=0.002, hold=29, patience=0.5, monitors=[SAVE, SEND]
    )
    training.until(lambda: told(tmp_path / "run").get("failures", 0) >= 2)
    training.until(lambda: training.step == 29)  # training did not stop
    proxy.fault = lambda _: None
    training.until(lambda: told(tmp_path / "run").get("bytes", 0) > 0)
    (tmp_path / "run" / "go").write_text("")
    assert training.wait() == 0, training.output
    logged = [line for line in training.output.splitlines() if f"upload to {url} failed" in line]
    assert logged and "training continues, files are kept locally" in logged[0]
    assert all(before != after for before, after in pairwise(logged)), "only what changed is logged again"
    assert "recovered" in training.output and "Traceback" not in training.output
    path, step = home_again(url, tmp_path / "back")
    assert step == 30
    assert_whole(path, 30)


def test_old_remote_checkpoints_are_pruned_only_after_new_ones_are_uploaded(
    faulty: str, proxy: Proxy, tmp_path: Path
) -> None:
    """Each step waits until its checkpoint is in the store: uploads that fall behind are combined and leave out some."""
    url = f"s3://{faulty}/run"
    monitors = [SAVE, {**SEND, "keep_last": True}]
    training = Training(tmp_path / "run", url=url, steps=8, hold_every_step=True, monitors=monitors)
    for step in range(1, 9):
        name = f"gpt_rank_0-{(step + 3) // 4}_{(step + 3) % 4 + 1}.ckpt"
        training.until(lambda name=name: any(name in request.path for request in proxy.seen if request.method == "PUT"))
        (tmp_path / "run" / f"go-{step}").touch()
    assert training.wait() == 0, training.output
    kept = [key for key in stored(url) if key.endswith(".ckpt")]
    assert len(kept) <= 3 and "checkpoint/rank_0/gpt_rank_0-2_4.ckpt" in kept
    orders = [request for request in proxy.seen if request.method in ("PUT", "DELETE") and ".ckpt" in request.path]
    assert any(request.method == "DELETE" for request in orders)
    alive: list[str] = []
    for request in orders:
        name = request.path.partition("?")[0]
        if request.method == "PUT" and name not in alive:
            alive.append(name)
        elif request.method == "DELETE":
            assert len(alive) > 2 and name in alive[:-2]
            alive.remove(name)


def test_kill_9_during_an_upload_leaves_a_complete_resume_point_and_no_upload_worker(
    faulty: str, proxy: Proxy, tmp_path: Path
) -> None:
    """Killed while the second checkpoint is being uploaded: the first is still the resume point."""
    url = f"s3://{faulty}/run"
    monitors = [{**SAVE, "save_checkpoint_steps": 1}, SEND]
    holding = threading.Event()

    def fault(request: Request) -> None:
        if holding.is_set() and request.is_part:
            proxy.held.set()
            time.sleep(0.5)

    proxy.fault = fault
    training = Training(tmp_path / "run", url=url, steps=100_000, bytes=12 << 20, seconds=0.5, monitors=monitors)
    training.until(lambda: "checkpoint/rank_0/meta.json" in stored(url))
    holding.set()
    training.until(proxy.held.is_set)
    workers = [
        int(path.name)
        for path in Path("/proc").iterdir()
        if path.name.isdecimal() and b"paceline.training.session.upload_worker" in _command(path)
    ]
    assert workers
    training.kill()
    wait_for(lambda: all(is_gone(pid) for pid in workers if _started_by(pid, training)))
    path, step = home_again(url, tmp_path / "back")
    assert step >= 1
    assert_whole(path, step)
    proxy.fault = lambda _: None
    again = Training(tmp_path / "run", url=url, steps=step + 2, resume=step, bytes=12 << 20, monitors=monitors)
    assert again.wait() == 0, again.output
    path, last = home_again(url, tmp_path / "back")
    assert last == step + 2
    assert_whole(path, last)


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def _started_by(pid: int, training: Training) -> bool:
    """Other tests run upload workers too; ours has our cache in its environment."""
    try:
        return str(training.root.parent).encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("open") / "server", anonymous=True)
    server.start()
    yield server
    server.stop(hard=True)


def test_credentials_that_expire_are_read_again(open_server: S3Server, tmp_path: Path) -> None:
    proxy = Proxy(open_server.endpoint)
    proxy.withheld = frozenset({"authorization", "x-amz-security-token"})
    valid = ["first"]
    proxy.fault = lambda request: None if request.token == valid[0] else Status(403, "ExpiredToken")
    keys = tmp_path / "access.json"

    def issue(token: str) -> None:
        fields = {
            "access_key": "AKIDTEMPORARY",
            "secret_access_key": "temporary-secret",
            "security_token": token,
            "obs_endpoint": proxy.endpoint,
        }
        fresh = keys.with_name("fresh")
        fresh.write_text(json.dumps({"access_config": fields}))
        fresh.chmod(0o600)
        fresh.replace(keys)

    issue("first")
    bucket = open_server.bucket()
    url = f"obs://{bucket}/run"
    training = Training(
        tmp_path / "run",
        {"PACELINE_ACCESS": str(keys)},
        url=url,
        steps=40,
        seconds=0.002,
        hold=39,
        patience=1.0,
        monitors=[SAVE, SEND],
    )
    training.until(lambda: told(tmp_path / "run").get("bytes", 0) > 0)
    valid[0] = "second"  # from now on the first is refused
    training.until(lambda: training.step == 39)
    before = told(tmp_path / "run").get("failures", 0)
    issue("second")
    (tmp_path / "run" / "go").write_text("")
    assert training.wait() == 0, training.output
    assert before == 0 or "ExpiredToken" in training.output or "expired" in training.output
    assert "temporary-secret" not in training.output
    proxy.fault = lambda _: None
    import os

    os.environ["PACELINE_ACCESS"] = str(keys)
    try:
        assert find_resume_point(url).global_step == 40
    finally:
        del os.environ["PACELINE_ACCESS"]
        proxy.close()


def test_mindformers_v2_is_uploaded_with_its_tracker_last(faulty: str, proxy: Proxy, tmp_path: Path) -> None:
    url = f"s3://{faulty}/run"
    save = {**SAVE, "use_legacy_format": False, "save_checkpoint_steps": 5}
    pair = [
        Training(tmp_path / "run", url=url, steps=10, seconds=0.02, monitors=[save, SEND], ranks=[rank, 2, rank, 2])
        for rank in (0, 1)
    ]
    for each in pair:
        assert each.wait() == 0, each.output
    point = find_resume_point(url)
    assert (point.layout, point.global_step, sorted(point.files)) == ("iteration", 10, [0, 1])
    written = [
        request.path.partition("?")[0].partition("/checkpoint/")[2]
        for request in proxy.seen
        if request.method == "PUT" and "/checkpoint/" in request.path
    ]
    last = max(place for place, key in enumerate(written) if key.startswith("iteration_00000010/rank_"))
    assert "latest_checkpointed_iteration.txt" in written[last:], (written, [each.output for each in pair])


def test_a_store_that_is_down_for_a_minute_gets_everything_and_it_is_logged(
    outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outage.end() == 0, outage.output
    assert outage.went_on  # in steps of 0.3 s; it stands at the last but ten
    assert outage.failed_while_down >= 1
    logged = [line for line in outage.output.splitlines() if f"upload to {outage.url} failed" in line]
    assert logged and "training continues, files are kept locally and uploaded when it is possible again" in logged[0]
    assert f"outputs uploaded to {outage.url}" in outage.output and "Traceback" not in outage.output
    lines = (outage.root / "log/rank_0/loss.csv").read_text().splitlines()[1:]
    assert [int(line.split(",")[0]) for line in lines] == list(range(1, STEPS + 1))
    for name, value in outage.server.environment().items():
        monkeypatch.setenv(name, value)
    assert find_resume_point(outage.url).global_step == STEPS
    local = {path.relative_to(outage.root).as_posix(): path for path in outage.root.rglob("*") if path.is_file()}
    still_written = {"log/rank_0/info.log", "log/rank_0/obs-monitor.json"}
    assert {key: size for key, size in stored(outage.url).items() if key in local.keys() - still_written} == {
        key: path.stat().st_size for key, path in local.items() if key not in still_written
    }
    newest = f"checkpoint/rank_0/gpt2_rank_0-{STEPS // 40}_40.ckpt"
    assert fetched(outage.url, newest) == local[newest].read_bytes()
