"""Injected faults: nothing is lost, no partial file is visible, a resume transfers only what is missing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from paceline.storage.transfer.transfer import Prune, TransferOptions, transfer
from support.storage.faults import Cut, Damage, Drop, Hold, Proxy, Request, Status
from support.storage.servers import PACELINE, S3Server
from support.storage.trees import IMPATIENT, MIB, ODD_NAMES, QUICK, content, stored, visible, write_tree


def start(*words: object) -> subprocess.Popen[str]:
    # A shell starts background jobs with SIGINT ignored, and child processes inherit that.
    return subprocess.Popen(
        [str(PACELINE), *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=600)


def hold_after(proxy: Proxy, wanted: int, kind: str) -> None:
    """Let `wanted` requests of a kind pass, then block the next one."""
    passed = [0]

    def fault(request: Request) -> object:
        if getattr(request, kind):
            passed[0] += 1
            return Hold() if passed[0] > wanted else None
        return None

    proxy.fault = fault


# -- kill -9 ---------------------------------------------------------------------------------------------------------


def test_a_killed_upload_resumes_with_what_is_missing(faulty: str, proxy: Proxy, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=64)  # nine parts
    hold_after(proxy, 3, "is_part")
    victim = start("copy", source, f"s3://{faulty}/run", "--workers", 2)
    assert proxy.held.wait(600)
    kill(victim)
    proxy.fault = lambda _: None
    proxy.release.set()
    assert "large.bin" not in stored(f"s3://{faulty}/run")  # nothing half-visible
    proxy.forget()
    report = transfer(source, f"s3://{faulty}/run", QUICK)
    assert report.failures == []
    assert proxy.count(lambda request: request.is_part) <= 9 - 3 + 1  # at most one unjournaled part twice
    transfer(f"s3://{faulty}/run", tmp_path / "back", QUICK)
    assert content(tmp_path / "back") == content(source)


def test_a_killed_download_resumes_with_what_is_missing(faulty: str, proxy: Proxy, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=64)
    transfer(source, f"s3://{faulty}/run", QUICK)
    hold_after(proxy, 4, "is_read")
    victim = start("copy", f"s3://{faulty}/run", tmp_path / "back", "--workers", 2)
    assert proxy.held.wait(600)
    kill(victim)
    proxy.fault = lambda _: None
    proxy.release.set()
    assert set(visible(tmp_path / "back").items()) <= set(content(source).items())
    assert "large.bin" not in visible(tmp_path / "back")
    proxy.forget()
    report = transfer(f"s3://{faulty}/run", tmp_path / "back", QUICK)
    assert report.failures == []
    assert proxy.count(lambda request: request.is_read and "large.bin" in request.path) <= 9 - 3
    assert content(tmp_path / "back") == content(source)


def test_ctrl_c_stops_quickly_and_can_be_resumed(faulty: str, proxy: Proxy, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=96)  # thirteen parts
    hold_after(proxy, 2, "is_part")
    process = start("copy", source, f"s3://{faulty}/run", "--workers", 2)
    assert proxy.held.wait(600)
    process.send_signal(signal.SIGINT)
    proxy.fault = lambda request: (
        time.sleep(1) if request.is_part else None
    )  # a busy machine may take as long to notice
    proxy.release.set()
    _, err = process.communicate(timeout=600)
    proxy.fault = lambda _: None
    assert process.returncode == 130 and "Traceback" not in err
    sent = proxy.count(lambda request: request.is_part)
    assert sent < 13 and "large.bin" not in stored(f"s3://{faulty}/run")
    assert transfer(source, f"s3://{faulty}/run", QUICK).failures == []
    assert proxy.count(lambda request: request.is_part) == 13  # none twice


def test_a_killed_prune_loses_nothing(faulty: str, proxy: Proxy, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", small=40)
    before = content(source)
    heads = [0]

    def fault(request: Request) -> object:
        # Pruning looks up every object once more before it removes the source file.
        heads[0] += request.method == "HEAD" and "many" in request.path
        return Hold() if heads[0] > 15 else None

    proxy.fault = fault
    victim = start("copy", source, f"s3://{faulty}/run", "--prune")
    assert proxy.held.wait(600)
    kill(victim)
    proxy.fault = lambda _: None
    proxy.release.set()
    left = content(source)
    assert 0 < len(left) < len(before)
    transfer(f"s3://{faulty}/run", tmp_path / "back", QUICK)
    assert content(tmp_path / "back") | left == before == content(tmp_path / "back")
    again = transfer(source, f"s3://{faulty}/run", TransferOptions(prune=Prune.source, limits=QUICK.limits))
    assert (again.failures, again.moved, content(source)) == ([], 0, {})


def test_a_transfer_survives_a_restart_of_the_server(
    bucket: str, s3: S3Server, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
    source = write_tree(tmp_path / "source", large=48, small=20)
    hold_after(proxy, 2, "is_part")

    def restart() -> None:
        assert proxy.held.wait(600)
        s3.stop(hard=True)
        proxy.fault = lambda _: None
        proxy.release.set()  # what was held now meets a dead server
        s3.start()

    thread = threading.Thread(target=restart)
    thread.start()
    report = transfer(source, f"s3://{bucket}/run", QUICK)
    thread.join()
    assert report.failures == [] and report.retries > 0
    transfer(f"s3://{bucket}/run", tmp_path / "back", QUICK)
    assert content(tmp_path / "back") == content(source)


# -- the network -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [Status(503, "SlowDown"), Status(500, "InternalError"), Status(429), Drop()])
def test_a_burst_of_errors_is_retried(faulty: str, proxy: Proxy, tmp_path: Path, broken: object) -> None:
    source = write_tree(tmp_path / "source", large=17, small=30)
    chance = random.Random(3)
    proxy.fault = lambda _: broken if chance.random() < 0.4 else None
    up = transfer(source, f"s3://{faulty}/run", QUICK)
    down = transfer(f"s3://{faulty}/run", tmp_path / "back", QUICK)
    assert (up.failures, down.failures) == ([], []) and up.retries > 0 and down.retries > 0
    assert content(tmp_path / "back") == content(source)


def test_truncated_responses_are_detected(faulty: str, proxy: Proxy, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=17, small=20)
    transfer(source, f"s3://{faulty}/run", QUICK)
    chance = random.Random(4)
    proxy.fault = lambda request: Cut() if request.is_read and chance.random() < 0.5 else None
    report = transfer(f"s3://{faulty}/run", tmp_path / "back", QUICK)
    assert report.failures == [] and report.retries > 0
    assert content(tmp_path / "back") == content(source)


def test_damaged_bytes_never_become_files(faulty: str, proxy: Proxy, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=17)
    transfer(source, f"s3://{faulty}/run", QUICK)
    chance = random.Random(5)
    proxy.fault = lambda request: Damage() if request.is_read and chance.random() < 0.5 else None
    for _ in range(8):
        report = transfer(f"s3://{faulty}/run", tmp_path / "back", QUICK)
        assert set(visible(tmp_path / "back").items()) <= set(content(source).items())
        if not report.failures:
            break
        assert all("damaged" in failure.reason for failure in report.failures)
    proxy.fault = lambda _: None
    assert transfer(f"s3://{faulty}/run", tmp_path / "back", QUICK).failures == []
    assert content(tmp_path / "back") == content(source)


def test_one_object_that_always_fails_does_not_stop_the_others(faulty: str, proxy: Proxy, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", small=10)
    proxy.fault = lambda request: Status(500) if request.path.endswith("/3.bin") else None
    report = transfer(source, f"s3://{faulty}/run", IMPATIENT)
    assert [failure.key for failure in report.failures] == ["many/0/3.bin"]
    assert report.moved == len(ODD_NAMES) + 9
    proxy.fault = lambda _: None
    again = transfer(source, f"s3://{faulty}/run", QUICK)
    assert (again.moved, again.failures) == (1, [])


def test_a_failed_copy_exits_with_1_and_lists_failed_files(faulty: str, proxy: Proxy, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", small=5)
    proxy.fault = lambda request: Status(403, "AccessDenied") if request.path.endswith("/2.bin") else None
    process = start("copy", source, f"s3://{faulty}/run")
    out, err = process.communicate(timeout=600)
    assert process.returncode == 1
    assert "1 failed" in out and "failed:  many/0/2.bin" in err and "AccessDenied" in err and "Traceback" not in err


# -- this machine ----------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Path:
    """A file system of 24 MiB."""
    place = tmp_path / "tiny"
    place.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place]).returncode:
        pytest.skip("needs root to mount a small file system")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_is_reported_once_and_leaves_no_partial_file_visible(
    bucket: str, tmp_path: Path, tiny_disk: Path
) -> None:
    source = write_tree(tmp_path / "source", large=20, small=600)  # 12 MB of small files beside 20 MiB
    transfer(source, f"s3://{bucket}/run", QUICK)
    report = transfer(f"s3://{bucket}/run", tiny_disk / "back", QUICK)
    assert any("no space left" in failure.reason for failure in report.failures)
    assert set(visible(tiny_disk / "back").items()) <= set(content(source).items())
    subprocess.run(["mount", "-o", "remount,size=80m", tiny_disk], check=True)
    again = transfer(f"s3://{bucket}/run", tiny_disk / "back", QUICK)
    assert again.failures == [] and again.same == report.moved
    assert content(tiny_disk / "back") == content(source)


def test_a_growing_file_is_not_uploaded_incomplete(faulty: str, proxy: Proxy, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=24)
    grows = [0]

    def fault(request: Request) -> None:
        if request.is_part:  # the file grows while its parts are uploaded
            grows[0] += 1
            with (source / "large.bin").open("ab") as file:
                file.write(b"more")

    proxy.fault = fault
    report = transfer(source, f"s3://{faulty}/run", QUICK)
    assert [failure.key for failure in report.failures] == ["large.bin"]
    assert "changed while it was read" in report.failures[0].reason
    assert "large.bin" not in stored(f"s3://{faulty}/run")
    proxy.fault = lambda _: None
    assert transfer(source, f"s3://{faulty}/run", QUICK).failures == []
    assert stored(f"s3://{faulty}/run")["large.bin"].size == 24 * MIB + 12_345 + 4 * grows[0]


def test_an_object_replaced_while_it_is_read_is_read_again(
    faulty: str, s3: S3Server, proxy: Proxy, tmp_path: Path
) -> None:
    old, new = write_tree(tmp_path / "old", large=24), write_tree(tmp_path / "new", large=24, seed=2)
    transfer(old, f"s3://{faulty}/run", QUICK)
    replaced = threading.Event()

    def fault(request: Request) -> None:
        if request.is_read and "large" in request.path and not replaced.is_set():
            replaced.set()
            data = (new / "large.bin").read_bytes()
            assert s3.client().putContent(faulty, "run/large.bin", content=data.hex()[: 24 * MIB]).status == 200

    proxy.fault = fault
    report = transfer(f"s3://{faulty}/run", tmp_path / "back", QUICK)
    assert report.failures == []
    assert (tmp_path / "back/large.bin").read_bytes() == (new / "large.bin").read_bytes().hex()[: 24 * MIB].encode()


def test_a_server_without_crc32_support_gets_requests_without_it(faulty: str, proxy: Proxy, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=17)
    begun: list[Request] = []

    def refuse_the_first(request: Request) -> Status | None:
        if request.method == "POST" and request.path.endswith("?uploads"):
            begun.append(request)
            return Status(501, "NotImplemented") if len(begun) == 1 else None
        return None

    proxy.fault = refuse_the_first
    assert transfer(source, f"s3://{faulty}/run", QUICK).failures == [] and len(begun) == 2
    assert transfer(f"s3://{faulty}/run", tmp_path / "back", QUICK).failures == []
    assert content(tmp_path / "back") == content(source)
