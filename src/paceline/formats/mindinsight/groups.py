"""Communicators of a MindInsight job: pipeline stages, and which ranks the numbers in links are.

Links have numbers inside a communicator, and no file lists the communicators. But names of `*_cluster_analyse_*` files
have the number of stages and ranks, and a rank that copies inside itself records the link "k-k" with its number k. If

    k = rank % (ranks / stages)

holds on every rank of the job, and the numbers in every stage reach ranks / stages - 1, then the communicator is the
stage, called stage{n}. If a job also communicates in smaller groups, the rule fails on some rank and links are not
translated. With two stages the partner of send and receive is known as well: the same position in the other stage.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.formats.hccl.execution import RankCommunicators
from paceline.formats.hccl.task_trace import NO_PEER
from paceline.formats.mindinsight.steps import stage_of

_HEAD = 64 << 10
_RAW_LINK = re.compile(rb'""(\d{1,9})-(\d{1,9})""')
_TRACE_LINK = re.compile(rb'"src rank"\s*:\s*(\d{1,10})\s*,\s*"dst rank"\s*:\s*(\d{1,10})')


@dataclass(frozen=True)
class PipelineShape:
    """Stages and ranks of a job, from a file name or profiler_info."""

    stages: int
    ranks: int

    @property
    def stage_size(self) -> int:
        return self.ranks // self.stages


@dataclass(frozen=True)
class RecordedLinkEnds:
    """Numbers in the links at the head of one rank's HCCL file."""

    own: frozenset[int]
    highest: int


def most_common_pipeline(pipelines: Iterable[PipelineShape | None]) -> PipelineShape | None:
    """The shape that most ranks of a job recorded."""
    counted = Counter(each for each in pipelines if each is not None and each.stages > 0 < each.ranks)
    return counted.most_common(1)[0][0] if counted else None


def read_link_ends(raw: Path | None, trace: Path | None) -> RecordedLinkEnds | None:
    """Read the head of one HCCL file of a rank; None if there is no file, or no link in it."""
    path, pattern = (trace, _TRACE_LINK) if trace else (raw, _RAW_LINK)
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return None  # the section that reads it reports the error
    pairs = [(int(src), int(dst)) for src, dst in pattern.findall(head)]
    ends = [end for pair in pairs for end in pair if end != NO_PEER]
    own = {min(pair) for pair in pairs if pair[0] == pair[1] or NO_PEER in pair} - {NO_PEER}
    return RecordedLinkEnds(frozenset(own), max(ends)) if ends else None


def communicators_of_ranks(
    pipeline: PipelineShape | None, ends: Mapping[int, RecordedLinkEnds | None]
) -> dict[int, RankCommunicators]:
    """rank → its communicators, for all ranks of one job."""
    if pipeline is None or not _communicators_are_stages(pipeline, ends):
        return {rank: RankCommunicators(rank) for rank in ends}
    return {rank: _communicators(rank, pipeline) for rank in ends}


def _communicators_are_stages(pipeline: PipelineShape, ends: Mapping[int, RecordedLinkEnds | None]) -> bool:
    size = pipeline.stage_size
    highest: dict[int | None, int] = defaultdict(int)
    for rank, seen in ends.items():
        stage = stage_of(rank, stages=pipeline.stages, ranks=pipeline.ranks)
        if stage is None or (seen and seen.own != {rank % size}):
            return False
        highest[stage] = max(highest[stage], seen.highest if seen else 0)
    return size > 1 and all(value == size - 1 for value in highest.values())


def _communicators(rank: int, pipeline: PipelineShape) -> RankCommunicators:
    size = pipeline.stage_size
    peer = (rank + size) % pipeline.ranks if pipeline.stages == 2 else None
    return RankCommunicators(rank, rank % size, f"stage{rank // size}", peer)
