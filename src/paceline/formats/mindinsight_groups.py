"""How the ranks of a MindInsight job talk to each other: pipeline stages, and what numbers in links mean.

Links carry numbers inside a communicator, and no file names the communicators. But `*_cluster_analyse_*` files name
the number of stages and ranks, and a rank that copies inside itself writes the link "k-k" with its own number k. If

    k = rank % (ranks / stages)

holds on every rank of the job, and in every stage the numbers reach ranks / stages - 1, the communicator is the
stage, and it is called stage{n}. A job that also talks inside smaller groups breaks the rule on some rank and is left
untranslated. With just two stages the other side of send and receive is known as well: the same place in the other
stage.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.formats.hccl_execution import Neighbours
from paceline.formats.hccl_trace import NO_PEER
from paceline.formats.mindinsight_steps import stage_of

_HEAD = 64 << 10
_RAW_LINK = re.compile(rb'""(\d{1,9})-(\d{1,9})""')
_TRACE_LINK = re.compile(rb'"src rank"\s*:\s*(\d{1,10})\s*,\s*"dst rank"\s*:\s*(\d{1,10})')


@dataclass(frozen=True)
class Pipeline:
    """Stages and ranks of a job, as a file name or profiler_info told."""

    stages: int
    ranks: int

    @property
    def stage_size(self) -> int:
        return self.ranks // self.stages


@dataclass(frozen=True)
class LinkEnds:
    """Numbers seen in the head of one rank's HCCL file."""

    own: frozenset[int]
    highest: int


def agreed(pipelines: Iterable[Pipeline | None]) -> Pipeline | None:
    """What most ranks of a job say."""
    counted = Counter(each for each in pipelines if each is not None and each.stages > 0 < each.ranks)
    return counted.most_common(1)[0][0] if counted else None


def read_link_ends(raw: Path | None, trace: Path | None) -> LinkEnds | None:
    """Look into the head of one file of a rank; None when there is none, or no link in it."""
    path, pattern = (trace, _TRACE_LINK) if trace else (raw, _RAW_LINK)
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return None  # the section that reads it says so
    pairs = [(int(src), int(dst)) for src, dst in pattern.findall(head)]
    ends = [end for pair in pairs for end in pair if end != NO_PEER]
    own = {min(pair) for pair in pairs if pair[0] == pair[1] or NO_PEER in pair} - {NO_PEER}
    return LinkEnds(frozenset(own), max(ends)) if ends else None


def neighbours(pipeline: Pipeline | None, ends: Mapping[int, LinkEnds | None]) -> dict[int, Neighbours]:
    """What is known about each rank of one job (rank → what its HCCL file shows)."""
    if pipeline is None or not _inside_stages(pipeline, ends):
        return {rank: Neighbours(rank) for rank in ends}
    return {rank: _neighbours(rank, pipeline) for rank in ends}


def _inside_stages(pipeline: Pipeline, ends: Mapping[int, LinkEnds | None]) -> bool:
    size = pipeline.stage_size
    highest: dict[int | None, int] = defaultdict(int)
    for rank, seen in ends.items():
        stage = stage_of(rank, stages=pipeline.stages, ranks=pipeline.ranks)
        if stage is None or (seen and seen.own != {rank % size}):
            return False
        highest[stage] = max(highest[stage], seen.highest if seen else 0)
    return size > 1 and all(value == size - 1 for value in highest.values())


def _neighbours(rank: int, pipeline: Pipeline) -> Neighbours:
    size = pipeline.stage_size
    peer = (rank + size) % pipeline.ranks if pipeline.stages == 2 else None
    return Neighbours(rank, rank % size, f"stage{rank // size}", peer)
