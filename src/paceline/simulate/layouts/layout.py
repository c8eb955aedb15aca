"""What a layout is: it gets one recording after the other, and writes the files some profiler would have written."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from paceline.simulate.cluster import Cluster
from paceline.simulate.recording import Recording


class Layout(Protocol):
    """One on-disk format. Nothing of a rank is kept after `write`, so memory stays flat."""

    def __init__(self, out: Path, cluster: Cluster) -> None: ...

    def write(self, recording: Recording) -> Path:
        """Writes a rank; returns its most telling file (the one that gets cut when data is truncated)."""
        ...

    def finish(self) -> None:
        """Writes what belongs to the whole cluster."""
        ...


def detailed(recording: Recording) -> bool:
    """Whether this rank gets the heavy files."""
    limit = recording.cluster.spec.detail_ranks
    return limit is None or recording.rank < limit
