"""Listings in pages: files move while the rest is listed; a listing that breaks off is gone on with, each key once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from paceline.storage.file import FileStore
from paceline.storage.listing import pages
from paceline.storage.retry import Backoff
from paceline.storage.store import Content, DeniedError, Item, StorageError, TransientError
from paceline.storage.transfer import transfer_between
from storage.trees import QUICK, content

SOON = Backoff(first=0.001, most=0.002, patience=30)


class Slow(FileStore):
    """Looks remote; `at` is called before the item of that number is told."""

    local = False

    def __init__(self, root: Path, files: int) -> None:
        super().__init__(root)
        root.mkdir(parents=True)
        for number in range(files):
            (root / f"{number:05}").write_bytes(b"%d" % number)
        self.listings = 0

    def items(self, *, shallow: bool = False) -> Iterator[Item]:
        self.listings += 1
        for number, item in enumerate(super().items(shallow=shallow)):
            self.at(number)
            yield item

    def at(self, number: int) -> None: ...


def test_files_arrive_while_the_listing_still_goes_on(tmp_path: Path) -> None:
    first = threading.Event()

    class Waiting(Slow):
        def at(self, number: int) -> None:
            # The second page is told only when something of the first has arrived.
            assert number != 1000 or first.wait(60), "nothing moved before the listing ended"

    class Told(FileStore):
        def write_many(self, files: Sequence[Content]) -> Iterator[Item]:
            first.set()
            return super().write_many(files)

    report = transfer_between(Waiting(tmp_path / "from", 1010), Told(tmp_path / "to"), QUICK)
    assert (report.moved, report.failures) == (1010, [])
    assert content(tmp_path / "to") == content(tmp_path / "from")


def test_a_listing_that_breaks_off_tells_each_key_once(tmp_path: Path) -> None:
    class Breaking(Slow):
        def at(self, number: int) -> None:
            if (self.listings, number) in {(1, 700), (2, 1500), (3, 2000)}:
                raise TransientError("cut off")

    store = Breaking(tmp_path / "from", 2100)
    keys = [item.key for page in pages(store, SOON) for item in page]
    assert keys == [f"{number:05}" for number in range(2100)]
    assert store.listings == 4


def test_a_listing_that_fails_for_good_raises_and_keeps_what_arrived(tmp_path: Path) -> None:
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
    assert [len(page) for page in pages(FileStore(tmp_path), SOON)] == [1200]
