"""Many small files reach the disk together: nobody waits for less than their own, and nobody misses a failure."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

import paceline.storage.file as file
from paceline.storage.file import FileStore
from paceline.storage.shared_sync import SharedSync, can_sync_whole, sync_whole
from paceline.storage.transfer import transfer
from storage.trees import content

together = pytest.mark.skipif(not can_sync_whole(), reason="this system syncs file by file")


class Disk:
    """A sync that can be held up, and fails on request."""

    def __init__(self) -> None:
        self.began, self.go_on = threading.Semaphore(0), threading.Semaphore(0)
        self.syncs = 0
        self.broken = False

    def sync(self) -> None:
        self.began.release()
        assert self.go_on.acquire(timeout=30)
        self.syncs += 1
        if self.broken:
            raise OSError(errno.EIO, "broken disk")


def test_who_comes_during_a_sync_shares_the_next_one() -> None:
    disk = Disk()
    shared = SharedSync(disk.sync)
    first = threading.Thread(target=shared.reach, args=(shared.ticket(),))
    first.start()
    assert disk.began.acquire(timeout=30)
    late = [threading.Thread(target=shared.reach, args=(shared.ticket(),)) for _ in range(5)]
    for thread in late:
        thread.start()
    for _ in range(2):
        disk.go_on.release()
    for thread in (first, *late):
        thread.join(30)
        assert not thread.is_alive()
    assert disk.syncs == 2


def test_what_was_written_before_a_sync_needs_no_other() -> None:
    disk = Disk()
    shared = SharedSync(disk.sync)
    tickets = [shared.ticket() for _ in range(3)]
    disk.go_on.release()
    for ticket in tickets:
        shared.reach(ticket)
    assert disk.syncs == 1


def test_all_who_shared_a_failed_sync_hear_of_it() -> None:
    disk = Disk()
    disk.broken = True
    shared = SharedSync(disk.sync)
    ticket = shared.ticket()
    disk.go_on.release()
    for _ in range(2):
        with pytest.raises(OSError, match="broken disk"):
            shared.reach(ticket)
    assert disk.syncs == 1


@together
def test_staged_files_are_visible_only_after_the_sync(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    land = [store.stage(f"{n}/a", b"x", "0" * 32) for n in range(3)]
    assert not [path for path in content(tmp_path) if path.endswith("/a")]
    assert [each().key for each in land] == ["0/a", "1/a", "2/a"]
    assert content(tmp_path) == {f"{n}/a": b"x" for n in range(3)}


@together
def test_files_are_synced_one_by_one_when_the_whole_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(directory: str) -> None:
        sync_whole(directory)
        raise OSError(errno.EIO, "somebody's write failed")

    monkeypatch.setattr(file, "sync_whole", broken)
    for number in range(400):
        (tmp_path / "from").mkdir(exist_ok=True)
        (tmp_path / "from" / str(number)).write_text(str(number))
    report = transfer(tmp_path / "from", tmp_path / "to")
    assert report.failures == [] and report.moved == 400
    assert content(tmp_path / "to") == content(tmp_path / "from")
