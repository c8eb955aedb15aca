"""Where workers read a source and write a store: paths that all machines share, or URLs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from paceline.core.errors import PacelineError
from paceline.storage.stored_file import StoredFile


@dataclass(frozen=True)
class ReadSource:
    """A source as workers read it."""

    root: Path
    """The data itself or, with a URL, samples of its files (run/remote_scan.py)."""
    url: str | None = None
    items: tuple[StoredFile, ...] = ()
    """The files below the URL."""

    def restricted_to(self, paths: Iterable[str]) -> ReadSource:
        """The same source with only these files, and the files below these directories."""
        if self.url is None:
            return self
        wanted = set(paths)
        kept = (item for item in self.items if item.key in wanted or any(up in wanted for up in _parents(item.key)))
        return ReadSource(self.root, self.url, tuple(kept))

    def fetch(self, scratch: Path) -> Path:
        """The directory of the complete files on this machine; those of a URL are downloaded to `scratch`."""
        if self.url is None:
            if not self.root.exists():
                raise PacelineError(
                    f"{self.root}: not found on worker {os.uname().nodename}",
                    hint="use a path that all machines share, or s3://, obs://, ssh://",
                )
            return self.root
        from paceline.storage.stores.open_store import open_store
        from paceline.storage.transfer.transfer import TransferOptions, transfer_between

        scratch.mkdir(parents=True, exist_ok=True)
        report = transfer_between(
            open_store(self.url), open_store(scratch), TransferOptions(), listed=self.items, keep_journal=False
        )
        report.raise_failures()
        return scratch


@dataclass(frozen=True)
class StoreTarget:
    """Where workers put the Parquet files of a store."""

    data: Path
    """The store's directory on the machine that runs the command."""
    url: str | None = None
    token: str | None = None
    """Name of a file in `data` that a worker finds only if it sees the same directory."""

    def staging_directory(self, scratch: Path) -> Path:
        """The directory to write files to before `upload`."""
        if self.url is not None:
            scratch.mkdir(parents=True, exist_ok=True)
            return scratch
        if self.token is not None and not (self.data / self.token).exists():
            raise PacelineError(
                f"{self.data}: is not the same directory on worker {os.uname().nodename}",
                hint="set --store to a directory that all machines share, or to s3://…, obs://…",
            )
        return self.data

    def upload(self, scratch: Path) -> None:
        """Move written files to the target, if they are not there already."""
        if self.url is None:
            return
        from paceline.storage.stores.open_store import open_store
        from paceline.storage.transfer.transfer import TransferOptions, transfer_between

        transfer_between(
            open_store(scratch), open_store(self.url), TransferOptions(), keep_journal=False
        ).raise_failures()


def download_files(url: str, directory: Path, names: Container[str]) -> frozenset[str]:
    """Download those of these files that exist below a URL; returns the names of all files there."""
    from paceline.storage.stores.open_store import open_store
    from paceline.storage.transfer.transfer import TransferOptions, transfer_between

    with closing(open_store(url)) as store:
        items = list(store.list_files())
    wanted = [item for item in items if item.key in names]
    if wanted:
        transfer_between(open_store(url), open_store(directory), TransferOptions(), listed=wanted).raise_failures()
    return frozenset(item.key for item in items)


def download_file(url: str, name: str, directory: Path) -> bool:
    """Download one file from below a URL; False if it does not exist."""
    from paceline.storage.stores.open_store import open_store
    from paceline.storage.transfer.transfer import TransferOptions, transfer_between

    with closing(open_store(url)) as store:
        item = store.stat(name)
    if item is not None:
        transfer_between(open_store(url), open_store(directory), TransferOptions(), listed=[item]).raise_failures()
    return item is not None


def upload_bytes(content: bytes, url: str, name: str) -> None:
    """Upload a small file: verified, and visible only when complete."""
    from paceline.storage.stores.open_store import open_store
    from paceline.storage.transfer.retry import Backoff, retry_call

    with closing(open_store(url)) as store:
        retry_call(
            Backoff(), lambda: store.write(name, content, hashlib.md5(content, usedforsecurity=False).hexdigest())
        )


def has_content(url: str, name: str, content: bytes) -> bool:
    """Whether a remote file has exactly this content."""
    from paceline.storage.stores.open_store import open_store

    with closing(open_store(url)) as store:
        item = store.stat(name)
        return item is not None and item.size == len(content) and bytes(store.read(item, 0, item.size)) == content


def remove_files(url: str, names: Iterable[str]) -> None:
    from paceline.storage.stores.open_store import open_store

    with closing(open_store(url)) as store:
        for name in names:
            store.remove(name)


def _parents(key: str) -> Iterable[str]:
    while "/" in key:
        key = key.rpartition("/")[0]
        yield key
