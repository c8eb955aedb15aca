"""Detect that source and target are the same location under two names (links, mounts, host aliases, s3:// and obs://).

Pruning such a source would delete the only copy. Names do not show it, so a probe file is written at the source and
looked for at the target.
"""

from __future__ import annotations

import secrets

from paceline.storage.checksum import md5
from paceline.storage.stores.base import Store


class SameLocationCheck:
    """Called for every file; writes one probe per pair of directories."""

    def __init__(self, source: Store, target: Store) -> None:
        self._source, self._target = source, target
        self._known: dict[tuple[str, str], bool] = {}

    def is_same_file(self, source_key: str, target_key: str) -> bool:
        (source_directory, name), (target_directory, target_name) = _split(source_key), _split(target_key)
        if name != target_name:
            return False  # another name is another file, also in the same directory
        pair = (source_directory, target_directory)
        if pair not in self._known:
            self._known[pair] = self._is_same_directory(source_directory, target_directory)
        return self._known[pair]

    def _is_same_directory(self, source_directory: str, target_directory: str) -> bool:
        # After kill -9 the probe remains; by its suffix it counts as unfinished and is never transferred.
        probe = f".paceline-probe-{secrets.token_hex(8)}.tmp"
        self._source.write(source_directory + probe, b"", md5(b""))
        try:
            return self._target.stat(target_directory + probe) is not None
        finally:
            self._source.remove(source_directory + probe)


def _split(key: str) -> tuple[str, str]:
    directory, slash, name = key.rpartition("/")
    return directory + slash, name
