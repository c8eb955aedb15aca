"""List a store in pages, so that files are transferred while the rest is still being listed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from paceline.storage.store_errors import TransientError
from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.base import Store
from paceline.storage.transfer.retry import Backoff, retry_call

_PAGE_SIZE = 1000
"""What S3 and OBS return with one response."""


def list_pages(store: Store, backoff: Backoff) -> Iterator[list[StoredFile]]:
    """Every file of the store once; a listing that fails midway is started again and continued.

    A local listing is a single page: it is fast, and the caller can then start with the largest files.
    """
    listing = _Listing(store, None if store.is_local else _PAGE_SIZE)
    while not listing.finished:
        if page := retry_call(backoff, listing.next_page):
            yield page


class _Listing:
    def __init__(self, store: Store, page_size: int | None) -> None:
        self._store, self._page_size = store, page_size
        self._seen: set[str] = set()
        self._files: Iterator[StoredFile] | None = None
        self.finished = False

    def next_page(self) -> list[StoredFile]:
        """The files of the next page that were not returned before; after an error the next call starts again."""
        try:
            self._files = self._files or self._store.list_files()
            found = list(islice(self._files, self._page_size))
        except TransientError:
            self._files = None
            raise
        self.finished = self._page_size is None or len(found) < self._page_size
        new = [file for file in found if file.key not in self._seen]
        self._seen.update(file.key for file in new)
        return new
