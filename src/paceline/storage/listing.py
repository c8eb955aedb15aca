"""A store's listing in pages, so that files move while the rest is still being listed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from paceline.storage.retry import Backoff, patiently
from paceline.storage.store import Item, Store, TransientError

_PAGE = 1000
"""What S3 and OBS tell with one answer."""


def pages(store: Store, backoff: Backoff) -> Iterator[list[Item]]:
    """Everything in the store, each key once; a listing that broke off is begun anew and gone on with.

    A local one is a single page: it is quick, and whoever sees all of it can begin with the largest files.
    """
    listing = _Listing(store, None if store.local else _PAGE)
    while not listing.ended:
        if page := patiently(backoff, listing.next):
            yield page


class _Listing:
    def __init__(self, store: Store, most: int | None) -> None:
        self._store, self._most = store, most
        self._told: set[str] = set()
        self._items: Iterator[Item] | None = None
        self.ended = False

    def next(self) -> list[Item]:
        """What was not told before of the next page; when it fails, the next call lists from the beginning."""
        try:
            self._items = self._items or self._store.items()
            found = list(islice(self._items, self._most))
        except TransientError:
            self._items = None
            raise
        self.ended = self._most is None or len(found) < self._most
        fresh = [item for item in found if item.key not in self._told]
        self._told.update(item.key for item in fresh)
        return fresh
