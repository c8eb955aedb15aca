"""From a URL to a store. The list of stores is literal."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.errors import UsageError
from paceline.storage.access import find_access
from paceline.storage.location import Location, parse
from paceline.storage.store import Item, Store

if TYPE_CHECKING:
    from paceline.storage.ssh_connection import Login  # it loads asyncio


def open_store(where: str | Path | Location, *, logins: Mapping[str, Login] | None = None) -> Store:
    """The store rooted at a URL or path; libraries for it are loaded now, not before."""
    location = where if isinstance(where, Location) else parse(where)
    if location.scheme == "file":
        from paceline.storage.file import FileStore

        return FileStore(Path(location.path))
    if location.scheme == "ssh":
        from paceline.storage.ssh import SshStore

        _need("asyncssh")
        return SshStore(location, (logins or {}).get(location.host))
    if find_access(location.scheme, location.host).signature != "v4":
        from paceline.storage.obs import ObsStore

        _need("obs")
        return ObsStore(location)
    from paceline.storage.s3 import S3Store

    _need("obstore")
    return S3Store(location)


def open_item(where: str | Path | Location) -> tuple[Store, Item] | None:
    """A URL that names one file: the store of its directory, and the file; None when it names no file."""
    location = where if isinstance(where, Location) else parse(where)
    if not location.path.strip("/"):
        return None
    store = open_store(location.parent)
    try:
        item = store.stat(location.name)
    except BaseException:
        store.close()
        raise
    if item is None:
        store.close()
        return None
    return store, item


def _need(module: str) -> None:
    if find_spec(module) is None:
        raise UsageError(f"{module} is not installed", hint="pip install 'paceline[storage]'")
