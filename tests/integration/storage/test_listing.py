"""Paged listings: files are transferred while the rest is listed; a failed listing is continued, with each key once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from paceline.storage.store_errors import DeniedError, StorageError, TransientError
from paceline.storage.stored_file import FileContent, StoredFile
from paceline.storage.stores.local import FileStore
from paceline.storage.transfer.paged_listing import list_pages
from paceline.storage.transfer.retry import Backoff
from paceline.storage.transfer.transfer import transfer_between
from support.storage.trees import QUICK, content

SOON = Backoff(first_wait=0.001, longest_wait=0.002, patience=30)


class Slow(FileStore):
    """Pretends to be remote; `at` is called before the file of that number is listed."""

    is_local = False

    def __init__(self, root: Path, files: int) -> None:
        super().__init__(root)
        root.mkdir(parents=True)
        for number in range(files):
            (root / f"{number:05}").write_bytes(b"%d" % number)
        self.listings = 0

    def list_files(self, *, recursive: bool = True) -> Iterator[StoredFile]:
        self.listings += 1
        for number, item in enumerate(super().list_files(recursive=recursive)):
            self.at(number)
            yield item

    def at(self, number: int) -> None: ...


def test_files_are_transferred_while_the_listing_goes_on(tmp_path: Path) -> None:
    first = threading.Event()

    class Waiting(Slow):
        def at(self, number: int) -> None:
            # The second page is listed only after a file of the first was transferred.
            assert number != 1000 or first.wait(600), "nothing moved before the listing ended"

    class Told(FileStore):
        def write_many(self, files: Sequence[FileContent]) -> Iterator[StoredFile]:
            first.set()
            return super().write_many(files)

    report = transfer_between(Waiting(tmp_path / "from", 1010), Told(tmp_path / "to"), QUICK)
    assert (report.moved, report.failures) == (1010, [])
    assert content(tmp_path / "to") == content(tmp_path / "from")


def test_a_listing_that_fails_midway_yields_each_key_once(tmp_path: Path) -> None:
    class Breaking(Slow):
        def at(self, number: int) -> None:
            if (self.listings, number) in {(1, 700), (2, 1500), (3, 2000)}:
                raise TransientError("cut off")

    store = Breaking(tmp_path / "from", 2100)
    keys = [item.key for page in list_pages(store, SOON) for item in page]
    assert keys == [f"{number:05}" for number in range(2100)]
    assert store.listings == 4


def test_a_listing_that_keeps_failing_raises_and_keeps_transferred_files(tmp_path: Path) -> None:
    class Denying(Slow):
        def at(self, number: int) -> None:
            if number == 1005:
                raise DeniedError("no more")

    source = Denying(tmp_path / "from", 1010)
    with pytest.raises(StorageError, match="no more"):
        transfer_between(source, FileStore(tmp_path / "to"), QUICK)
    there = content(tmp_path / "to")
    assert there.items() <= content(tmp_path / "from").items()
    again = transfer_between(FileStore(tmp_path / "from"), FileStore(tmp_path / "to"), QUICK)
    assert again.failures == [] and content(tmp_path / "to") == content(tmp_path / "from")


def test_a_local_listing_is_one_page(tmp_path: Path) -> None:
    for number in range(1200):
        (tmp_path / str(number)).write_bytes(b"")
    (tmp_path / "home").rmdir()
    assert [len(page) for page in list_pages(FileStore(tmp_path), SOON)] == [1200]
