"""The LayoutWriter protocol: writes the recordings of ranks as the files a profiler would have written."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from paceline.simulate.cluster import Cluster
from paceline.simulate.recording import Recording


class LayoutWriter(Protocol):
    """An on-disk format. Nothing of a rank is kept after `write`, so that memory does not grow with the ranks."""

    def __init__(self, out: Path, cluster: Cluster) -> None: ...

    def write(self, recording: Recording) -> Path:
        """Write a rank; returns its main file (the one that is cut to simulate truncated data)."""
        ...

    def finish(self) -> None:
        """Write the files of the whole cluster."""
        ...


def has_detail_files(recording: Recording) -> bool:
    """Whether this rank gets the large files."""
    limit = recording.cluster.spec.detail_ranks
    return limit is None or recording.rank < limit
