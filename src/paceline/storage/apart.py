"""Whether two places are really two: a copy that is its source under another name must not be pruned.

Links, mounts, a host that is this one, s3:// and obs:// of one bucket: names tell nothing, so something is written at
the source and looked for at the target.
"""

from __future__ import annotations

import secrets

from paceline.storage.checksum import md5
from paceline.storage.store import Store


class Apart:
    """Asked for each file; looks once for each pair of directories."""

    def __init__(self, source: Store, target: Store) -> None:
        self._source, self._target = source, target
        self._known: dict[tuple[str, str], bool] = {}

    def __call__(self, key: str, copy: str) -> bool:
        (here, name), (there, other) = _split(key), _split(copy)
        if name != other:
            return True  # another name is another file, in one directory too
        if (here, there) not in self._known:
            self._known[here, there] = self._look(here, there)
        return self._known[here, there]

    def _look(self, here: str, there: str) -> bool:
        # Left behind by kill -9 it is never moved: it looks unfinished.
        probe = f".paceline-probe-{secrets.token_hex(8)}.tmp"
        self._source.write(here + probe, b"", md5(b""))
        try:
            return self._target.stat(there + probe) is None
        finally:
            self._source.remove(here + probe)


def _split(key: str) -> tuple[str, str]:
    directory, slash, name = key.rpartition("/")
    return directory + slash, name
