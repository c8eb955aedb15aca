"""Transfers without a server: markers last, unfinished files skipped, nothing removed without --prune."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from paceline.core.errors import UsageError
from paceline.storage.secret import Secret, redact
from paceline.storage.store_errors import StorageError, ThrottledError, TransientError
from paceline.storage.stored_file import Data, StoredFile
from paceline.storage.stores.local import FileStore
from paceline.storage.transfer.journal import Journal
from paceline.storage.transfer.retry import Backoff, ConcurrencyLimit, Retrier, TransferStopped
from paceline.storage.transfer.transfer import Prune, TransferOptions, transfer, transfer_between
from paceline.storage.transfer.transfer_plan import is_safe_key
from paceline.storage.transfer.transfer_report import TransferError, TransferFailure, TransferReport
from support.storage.trees import QUICK, content, write_tree


class Watched(FileStore):
    """A directory that records the order of writes, and rejects some."""

    def __init__(self, root: Path, refuse: str = "") -> None:
        super().__init__(root)
        self.order: list[str] = []
        self.refuse = refuse
        self._mutex = threading.Lock()

    def write(self, key: str, data: Data, md5: str) -> StoredFile:
        if self.refuse and key.endswith(self.refuse):
            raise StorageError(f"{key}: refused")
        with self._mutex:
            self.order.append(key)
        return super().write(key, data, md5)


def checkpoints(root: Path) -> Path:
    for name in (
        "rank_0/net-1_1.ckpt",
        "rank_0/meta.json",
        "rank_1/net-1_1.ckpt",
        "rank_1/meta.json",
        "latest_checkpointed_iteration.txt",
        "rank_1/net-2_1.ckpt.tmp",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def test_commit_markers_are_transferred_last_and_the_outermost_at_the_end(tmp_path: Path) -> None:
    target = Watched(tmp_path / "to")
    report = transfer_between(FileStore(checkpoints(tmp_path / "from")), target, QUICK)
    assert report.failures == [] and report.unfinished == ["rank_1/net-2_1.ckpt.tmp"]
    assert set(target.order[:2]) == {"rank_0/net-1_1.ckpt", "rank_1/net-1_1.ckpt"}
    assert set(target.order[2:4]) == {"rank_0/meta.json", "rank_1/meta.json"}
    assert target.order[4:] == ["latest_checkpointed_iteration.txt"]


def test_a_marker_is_not_written_when_a_file_below_it_failed(tmp_path: Path) -> None:
    target = Watched(tmp_path / "to", refuse="rank_1/net-1_1.ckpt")
    report = transfer_between(FileStore(checkpoints(tmp_path / "from")), target, QUICK)
    assert {failure.key for failure in report.failures} == {
        "rank_1/net-1_1.ckpt",
        "rank_1/meta.json",
        "latest_checkpointed_iteration.txt",
    }
    assert "not written" in next(str(f) for f in report.failures if f.key == "rank_1/meta.json")
    assert set(content(tmp_path / "to")) == {"rank_0/net-1_1.ckpt", "rank_0/meta.json"}


def test_a_marker_rewritten_during_the_transfer_waits_for_its_new_files(tmp_path: Path) -> None:
    source = checkpoints(tmp_path / "from")

    class Training(Watched):
        def write(self, key: str, data: Data, md5: str) -> StoredFile:
            if key == "rank_0/net-1_1.ckpt":  # a new checkpoint is saved while the old one goes up
                (source / "rank_0/net-9_9.ckpt").write_text("new")
                (source / "rank_0/meta.json").write_text("now names net-9_9")
            return super().write(key, data, md5)

    target = Training(tmp_path / "to")
    assert transfer_between(FileStore(source), target, QUICK).failures == []
    assert target.order.index("rank_0/net-9_9.ckpt") < target.order.index("rank_0/meta.json")
    assert (tmp_path / "to/rank_0/meta.json").read_text() == "now names net-9_9"


def test_local_targets_are_never_pruned(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "from")
    (tmp_path / "to/many/0").mkdir(parents=True)
    (tmp_path / "to/many/0/0.bin").write_bytes(b"ours")
    with pytest.raises(UsageError, match="does not remove files from this machine"):
        transfer(source, tmp_path / "to", TransferOptions(prune=Prune.target, limits=QUICK.limits))
    assert content(tmp_path / "to") == {"many/0/0.bin": b"ours"}  # said before anything moves


@pytest.mark.parametrize("linked", [".", "many"])
def test_a_source_that_is_the_target_under_another_name_is_not_pruned(tmp_path: Path, linked: str) -> None:
    source = write_tree(tmp_path / "from", small=2)
    place = tmp_path / "to" if linked == "." else tmp_path / "to" / linked
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(source / linked)
    before = content(source)
    report = transfer(source, tmp_path / "to", TransferOptions(prune=Prune.source, limits=QUICK.limits))
    kept = {name: data for name, data in before.items() if linked == "." or name.startswith("many/")}
    assert {failure.key for failure in report.failures} == set(kept)
    assert content(source) == kept and report.pruned == len(before) - len(kept)


@pytest.mark.parametrize(("source", "target"), [("", "to"), ("from", ""), (" ", "to")])
def test_an_empty_path_is_an_error_not_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, target: str
) -> None:
    before = content(write_tree(tmp_path / "here" / "from"))
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(UsageError, match="the path is empty"):
        transfer(source, target, QUICK)
    assert content(tmp_path / "here") == {f"from/{name}": data for name, data in before.items()}


def test_a_missing_source_is_an_error_not_an_empty_copy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or directory"):
        transfer(tmp_path / "nowhere", tmp_path / "b", QUICK)


def test_a_target_inside_the_source_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="lies inside the source"):
        transfer(write_tree(tmp_path / "a"), tmp_path / "a" / "b")


def test_a_source_that_changed_after_verifying_is_not_pruned(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "from")

    class Late(Watched):
        def stat(self, key: str) -> StoredFile | None:
            (source / "-dash").write_text("written after it was copied")
            return super().stat(key)

    options = TransferOptions(prune=Prune.source, limits=QUICK.limits)
    report = transfer_between(FileStore(source), Late(tmp_path / "to"), options)
    assert [failure.key for failure in report.failures] == ["-dash"]
    assert set(content(source)) == {"-dash"}


def test_unreadable_directories_are_reported_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    source, real = write_tree(tmp_path / "from"), os.scandir

    def scandir(path: object) -> object:
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied")
        return real(path)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "scandir", scandir)
    report = transfer_between(FileStore(source), FileStore(tmp_path / "to"), QUICK)
    assert [failure.key for failure in report.failures] == ["deep/"] and report.moved > 0


def test_two_transfers_between_the_same_locations_run_one_after_the_other(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "from", large=20, small=50)
    reports: list[TransferReport] = []

    def run() -> None:
        reports.append(transfer(source, tmp_path / "to", QUICK))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report.failures for report in reports] == [[], [], []]
    assert sorted(report.moved for report in reports)[:2] == [0, 0]
    assert content(tmp_path / "to") == content(source)


def test_a_truncated_journal_only_costs_time(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "from", large=20)
    transfer(source, tmp_path / "to", QUICK)
    journal = next((tmp_path / "cache" / "transfers").glob("*.jsonl"))
    journal.write_bytes(journal.read_bytes()[:-7] + b'\n{"part": 5}\n[]\nnonsense')
    (tmp_path / "to/large.bin").unlink()
    report = transfer(source, tmp_path / "to", QUICK)
    assert (report.failures, report.moved) == ([], 1) and content(tmp_path / "to") == content(source)


# -- back-off --------------------------------------------------------------------------------------------------------


def test_waits_grow_with_jitter_up_to_a_ceiling() -> None:
    random.seed(1)
    backoff = Backoff(first_wait=0.5, longest_wait=8)
    for attempt in range(10):
        waits = [backoff.wait(attempt, False) for _ in range(200)]
        ceiling = min(8, 0.5 * 2**attempt)
        assert 0 <= min(waits) < 0.2 * ceiling and 0.8 * ceiling < max(waits) <= ceiling
    assert min(backoff.wait(0, True) for _ in range(200)) >= 0.5  # throttled: never at once


def test_throttling_halves_concurrent_requests_and_recovers() -> None:
    gate = ConcurrencyLimit(16)
    for _ in range(3):
        gate.on_throttled()
    assert gate._limit == 2
    for _ in range(200):
        gate.on_success()
    assert gate._limit == 16


def test_giving_up_and_being_stopped() -> None:
    calls = []

    def fail() -> None:
        calls.append(1)
        raise ThrottledError("busy")

    with pytest.raises(TransientError):
        Retrier(Backoff(first_wait=0.001, longest_wait=0.002, patience=0.05), ConcurrencyLimit(1), threading.Event())(
            fail
        )
    assert len(calls) > 2
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(TransferStopped):
        Retrier(Backoff(), ConcurrencyLimit(1), stopped)(fail)


# -- words -----------------------------------------------------------------------------------------------------------


def test_secrets_are_not_printed_pickled_or_quoted_in_errors() -> None:
    import pickle

    secret = Secret("s3cr3t/with+signs")
    assert "s3cr3t" not in f"{secret} {secret!r} {[secret]}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert "s3cr3t" not in redact("key s3cr3t/with+signs, s3cr3t%2Fwith%2Bsigns")
    assert "s3cr3t" not in str(StorageError("server said s3cr3t/with+signs"))
    report = TransferReport("a", "b", failures=[TransferFailure("k", "s3cr3t/with+signs")])
    assert "s3cr3t" not in str(TransferError(report))


@pytest.mark.parametrize("key", ["..", "../x", "a/../b", "/x", "a//b", "", "a/./b", "a\0b", "a/"])
def test_unsafe_names(key: str) -> None:
    assert not is_safe_key(key)


def test_data_in_memory_stays_within_the_budget() -> None:
    from paceline.storage.transfer.transfer_pool import _MemoryBudget

    memory, lock, held, most = _MemoryBudget(100), threading.Lock(), [0], [0]

    def piece() -> None:
        memory.acquire(30)
        with lock:
            held[0] += 30
            most[0] = max(most[0], held[0])
        with lock:
            held[0] -= 30
        memory.release(30)

    threads = [threading.Thread(target=piece) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held == [0] and 30 <= most[0] <= 90
    memory.acquire(1000)  # larger than everything: passes alone
    memory.release(1000)


def test_an_unwritable_cache_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "file"))
    with pytest.raises(StorageError) as caught:
        transfer(write_tree(tmp_path / "a"), tmp_path / "b", QUICK)
    assert "PACELINE_CACHE" in (caught.value.hint or "")


class Encrypted(FileStore):
    """Pretends to be a bucket whose ETags look like an MD5 but are not (encryption)."""

    is_local, verify_reads = False, True
    readings = 0

    def read(self, item: StoredFile, start: int, length: int, into: memoryview | None = None) -> Data:
        self.readings += 1
        return super().read(item, start, length)

    def digest(self, item: StoredFile, part: int | None) -> str | None:
        return "0" * 32 if part is None else None

    def uploaded_part_size(self, item: StoredFile) -> int | None:
        return item.size

    def etag_is_checksum(self, item: StoredFile) -> bool:
        return False


def test_where_etags_are_no_checksums_a_second_read_has_to_agree(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "from", large=20)
    store = Encrypted(source)
    report = transfer_between(store, FileStore(tmp_path / "to"), QUICK)
    assert report.failures == [] and content(tmp_path / "to") == content(source)
    assert store.readings == 2 * (3 + len(content(source)) - 1)  # the large one has three parts


def test_a_full_disk_of_the_journal_fails_no_transfer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = write_tree(tmp_path / "from", large=9, small=100)
    opened = Journal.__init__

    def on_a_full_disk(self: Journal, source: str, target: str) -> None:
        opened(self, source, target)
        os.dup2(os.open("/dev/full", os.O_RDWR), self._file)

    monkeypatch.setattr(Journal, "__init__", on_a_full_disk)
    report = transfer(source, tmp_path / "to", QUICK)
    assert report.failures == [] and content(tmp_path / "to") == content(source)
    assert len([each for each in caplog.messages if "No space left" in each]) == 1


def test_a_partial_file_is_an_error_not_a_copy(tmp_path: Path) -> None:
    (tmp_path / "net.ckpt.tmp").write_text("half")
    with pytest.raises(UsageError, match="looks like a partial file"):
        transfer(tmp_path / "net.ckpt.tmp", tmp_path / "to", QUICK)
