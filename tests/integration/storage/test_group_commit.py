"""Group commit: every caller waits until its own files are on the disk, and gets errors of the shared sync."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path

import pytest

import paceline.storage.local_io.batch_writer as crowd
from paceline.storage.local_io.batch_writer import AdaptiveLock
from paceline.storage.local_io.group_commit import GroupCommit, can_sync_filesystem, sync_filesystem
from paceline.storage.store_errors import StorageError
from paceline.storage.stored_file import FileContent
from paceline.storage.stores.local import FileStore
from paceline.storage.transfer.transfer import transfer
from support.storage.trees import content

together = pytest.mark.skipif(not can_sync_filesystem(), reason="this system syncs file by file")


class Disk:
    """A sync that can be blocked, and fails on request."""

    def __init__(self) -> None:
        self.began, self.go_on = threading.Semaphore(0), threading.Semaphore(0)
        self.syncs = 0
        self.broken = False

    def sync(self) -> None:
        self.began.release()
        assert self.go_on.acquire(timeout=600)
        self.syncs += 1
        if self.broken:
            raise OSError(errno.EIO, "broken disk")


def test_callers_during_a_sync_share_the_next_one() -> None:
    disk = Disk()
    shared = GroupCommit(disk.sync)
    first = threading.Thread(target=shared.wait_until_synced, args=(shared.ticket(),))
    first.start()
    assert disk.began.acquire(timeout=600)
    late = [threading.Thread(target=shared.wait_until_synced, args=(shared.ticket(),)) for _ in range(5)]
    for thread in late:
        thread.start()
    for _ in range(2):
        disk.go_on.release()
    for thread in (first, *late):
        thread.join(600)
        assert not thread.is_alive()
    assert disk.syncs == 2


def test_data_written_before_a_sync_needs_no_other_sync() -> None:
    disk = Disk()
    shared = GroupCommit(disk.sync)
    tickets = [shared.ticket() for _ in range(3)]
    disk.go_on.release()
    for ticket in tickets:
        shared.wait_until_synced(ticket)
    assert disk.syncs == 1


def test_all_callers_of_a_failed_sync_get_its_error() -> None:
    disk = Disk()
    disk.broken = True
    shared = GroupCommit(disk.sync)
    ticket = shared.ticket()
    disk.go_on.release()
    for _ in range(2):
        with pytest.raises(OSError, match="broken disk"):
            shared.wait_until_synced(ticket)
    assert disk.syncs == 1


@together
def test_files_are_visible_only_after_the_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def look(directory: str) -> None:
        seen.append([path for path in content(tmp_path) if path.endswith("/a")])
        sync_filesystem(directory)

    monkeypatch.setattr(crowd, "sync_filesystem", look)
    landed = FileStore(tmp_path).write_many([FileContent(f"{n}/a", b"x", "0" * 32) for n in range(5)])
    assert [each.key for each in landed] == [f"{n}/a" for n in range(5)]
    assert seen == [[]]
    assert content(tmp_path) == {f"{n}/a": b"x" for n in range(5)}


@together
def test_files_before_a_failed_one_are_written_and_yielded(tmp_path: Path) -> None:
    (tmp_path / "3" / "a").mkdir(parents=True)  # a file cannot take a directory's name
    told: list[str] = []
    with pytest.raises(StorageError, match="3/a"):
        for item in FileStore(tmp_path).write_many([FileContent(f"{n}/a", b"x", "0" * 32) for n in range(6)]):
            told.append(item.key)
    assert told == ["0/a", "1/a", "2/a"]
    assert content(tmp_path) == {f"{n}/a": b"x" for n in range(3)}, "nothing half-written is left"


def test_slow_disks_are_written_by_all_threads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, inside, both = AdaptiveLock(), threading.Barrier(2), []

    def write() -> None:
        with turns.held(1):
            inside.wait(timeout=600)
            both.append(True)

    clock = iter(range(100))
    monkeypatch.setattr(crowd, "monotonic", lambda: float(next(clock)))
    with turns.held(1):
        pass  # took a second by that clock
    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert both == [True, True]


def test_fast_disks_are_written_by_one_thread_at_a_time() -> None:
    turns, most, now = AdaptiveLock(), 0, 0

    def write() -> None:
        nonlocal most, now
        for _ in range(50):
            with turns.held(1000):
                now += 1
                time.sleep(0)  # lets others in, if nothing keeps them out
                most = max(most, now)
                now -= 1

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert most == 1


@together
def test_files_are_synced_one_by_one_when_the_file_system_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(directory: str) -> None:
        sync_filesystem(directory)
        raise OSError(errno.EIO, "somebody's write failed")

    monkeypatch.setattr(crowd, "sync_filesystem", broken)
    for number in range(400):
        (tmp_path / "from").mkdir(exist_ok=True)
        (tmp_path / "from" / str(number)).write_text(str(number))
    report = transfer(tmp_path / "from", tmp_path / "to")
    assert report.failures == [] and report.moved == 400
    assert content(tmp_path / "to") == content(tmp_path / "from")
