"""Where a source and a store lie for whoever reads: paths that all workers share, or URLs they fetch from and write to."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import PacelineError
from paceline.storage.store import Item


@dataclass(frozen=True)
class Source:
    root: Path
    """Where readers look for it: the data itself, or (with a URL) first looks at it, see run/glance.py."""
    url: str | None = None
    items: tuple[Item, ...] = ()
    """What lies below the URL."""

    def narrowed(self, tails: Iterable[str]) -> Source:
        """The same with only those files, and what lies below those directories."""
        if self.url is None:
            return self
        wanted = set(tails)
        kept = (item for item in self.items if item.key in wanted or any(up in wanted for up in _above(item.key)))
        return Source(self.root, self.url, tuple(kept))

    def fetched(self, scratch: Path) -> Path:
        """A root whose files can be read whole on this machine."""
        if self.url is None:
            if not self.root.exists():
                raise PacelineError(
                    f"{self.root}: not on worker {os.uname().nodename}",
                    hint="workers read paths that all machines share, or s3://, obs://, ssh://",
                )
            return self.root
        from paceline.storage.opening import open_store
        from paceline.storage.transfer import Options, transfer_between

        scratch.mkdir(parents=True, exist_ok=True)
        report = transfer_between(
            open_store(self.url), open_store(scratch), Options(), listed=self.items, lasting=False
        )
        report.raise_failures()
        return scratch


@dataclass(frozen=True)
class Target:
    """Where a store's Parquet files go."""

    data: Path
    """The directory on the machine that asked."""
    url: str | None = None
    token: str | None = None
    """Name of a file there by which a worker knows that it sees the same directory."""

    def staging(self, scratch: Path) -> Path:
        """The directory to write to."""
        if self.url is not None:
            scratch.mkdir(parents=True, exist_ok=True)
            return scratch
        if self.token is not None and not (self.data / self.token).exists():
            raise PacelineError(
                f"{self.data}: not the same directory on worker {os.uname().nodename}",
                hint="give --store a directory that all machines share, or s3://…, obs://…",
            )
        return self.data

    def deliver(self, scratch: Path) -> None:
        if self.url is None:
            return
        from paceline.storage.opening import open_store
        from paceline.storage.transfer import Options, transfer_between

        transfer_between(open_store(scratch), open_store(self.url), Options(), lasting=False).raise_failures()


def bring_home(url: str, directory: Path, names: Container[str]) -> frozenset[str]:
    """Those of these files that lie below a URL, in a directory of ours; returns the names of all that lie there."""
    from paceline.storage.opening import open_store
    from paceline.storage.transfer import Options, transfer_between

    with closing(open_store(url)) as store:
        items = list(store.items())
    wanted = [item for item in items if item.key in names]
    if wanted:
        transfer_between(open_store(url), open_store(directory), Options(), listed=wanted).raise_failures()
    return frozenset(item.key for item in items)


def bring_file(url: str, name: str, directory: Path) -> bool:
    """One file that lies below a URL, in a directory of ours; False when it is not there."""
    from paceline.storage.opening import open_store
    from paceline.storage.transfer import Options, transfer_between

    with closing(open_store(url)) as store:
        item = store.stat(name)
    if item is not None:
        transfer_between(open_store(url), open_store(directory), Options(), listed=[item]).raise_failures()
    return item is not None


def send(content: bytes, url: str, name: str) -> None:
    """A small file to a URL: verified, visible in one step."""
    from paceline.storage.opening import open_store
    from paceline.storage.retry import Backoff, patiently

    with closing(open_store(url)) as store:
        patiently(
            Backoff(), lambda: store.write(name, content, hashlib.md5(content, usedforsecurity=False).hexdigest())
        )


def holds(url: str, name: str, content: bytes) -> bool:
    """Whether a file there is exactly this."""
    from paceline.storage.opening import open_store

    with closing(open_store(url)) as store:
        item = store.stat(name)
        return item is not None and item.size == len(content) and bytes(store.read(item, 0, item.size)) == content


def remove_all(url: str, names: Iterable[str]) -> None:
    from paceline.storage.opening import open_store

    with closing(open_store(url)) as store:
        for name in names:
            store.remove(name)


def _above(key: str) -> Iterable[str]:
    while "/" in key:
        key = key.rpartition("/")[0]
        yield key
