"""Open the store of a URL."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from paceline.core.plugins import load_entry_point, other_plugins
from paceline.storage.schemes import BUILT_IN_STORES, STORES_GROUP
from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.base import Store
from paceline.storage.url import StorageUrl, parse_url


def open_store(source: str | Path | StorageUrl) -> Store:
    """The store rooted at a URL or path; its client library is imported here, not before."""
    url = source if isinstance(source, StorageUrl) else parse_url(source)
    store: Store = _store_factory(url.scheme)(url)
    return store


def open_item(source: str | Path | StorageUrl) -> tuple[Store, StoredFile] | None:
    """The store of the parent directory and the file, for a URL of one file; None when there is no such file."""
    url = source if isinstance(source, StorageUrl) else parse_url(source)
    if not url.path.strip("/"):
        return None
    store = open_store(url.parent)
    try:
        item = store.stat(url.name)
    except BaseException:
        store.close()
        raise
    if item is None:
        store.close()
        return None
    return store, item


def _store_factory(scheme: str) -> Any:
    if scheme in BUILT_IN_STORES:
        module, _, name = BUILT_IN_STORES[scheme].partition(":")
        return getattr(import_module(module), name)
    return load_entry_point(other_plugins(STORES_GROUP)[scheme])
