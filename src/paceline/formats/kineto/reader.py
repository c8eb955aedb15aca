"""Reader of torch traces (Kineto, `torch.profiler`): one JSON file per rank and recording, plain or gzip.

Traces are recognised by content. The rank is the recorded one, otherwise the number in the file name, otherwise the
next free one; of several traces of a rank the newest (`recorded`) is used. Traces of other jobs are left out (one_job.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from paceline.core.message import message
from paceline.formats.base import RankRecording, RecordingSection
from paceline.formats.kineto import FORMAT
from paceline.formats.kineto.communication_kernels import CommunicationKernels, communication_kernels
from paceline.formats.kineto.groups import ambiguous_names, read_identity
from paceline.formats.kineto.metadata import TraceHead, is_kineto, read_trace_head
from paceline.formats.kineto.one_job import of_one_job
from paceline.formats.kineto.tables import TABLES, read_events, read_trace
from paceline.storage.file_tree import File, Tree


@dataclass(frozen=True)
class KinetoReader:
    name: str = FORMAT.name

    def find(self, tree: Tree) -> Iterator[RankRecording]:
        found = [
            (file, read_trace_head(file))
            for file in tree.files
            if FORMAT.files.matches(file.relative) and is_kineto(file)
        ]
        found = of_one_job(found)
        kernels = communication_kernels()
        ambiguous = ambiguous_names(head for _, head in found)
        found = [(file, replace(head, ambiguous_groups=ambiguous)) for file, head in found]
        recordings = [_recording(self.name, file, head, kernels) for file, head in _numbered(found)]
        yield from _with_missing_ranks(recordings, found)


READER = KinetoReader()


def _recording(name: str, file: File, head: TraceHead, kernels: CommunicationKernels) -> RankRecording:
    sections = (
        RecordingSection("identity", frozenset({"ranks", "groups"}), (file,), partial(read_identity, head)),
        RecordingSection("trace", TABLES, (file,), partial(read_trace, file.path, head, kernels)),
        # A section of its own: the timeline is half of all rows, and a diagnosis does not need it.
        RecordingSection("events", frozenset({"events", "flows"}), (file,), partial(read_events, file.path, head)),
    )
    return RankRecording(
        name,
        head.rank,
        file.relative,
        sections,
        recorded=head.recorded,
        notes=head.notes,
        rank_assumed=head.rank_assumed,
    )


def _numbered(found: list[tuple[File, TraceHead]]) -> Iterator[tuple[File, TraceHead]]:
    """Assign ranks to traces that do not record theirs, in the order of their names."""
    taken = {head.rank for _, head in found}
    free = 0
    for file, head in found:
        if head.rank is None:
            while free in taken:
                free += 1
            taken.add(free)
            note = message("rank_assumed_file", file=file.relative, n=free)
            head = replace(head, rank=free, rank_assumed=True, notes=(*head.notes, note))
        yield file, head


def _with_missing_ranks(recordings: list[RankRecording], found: list[tuple[File, TraceHead]]) -> list[RankRecording]:
    """Add a note to the lowest rank: the ranks of which no trace was found."""
    world = max((head.world for _, head in found), default=0)
    missing = sorted(set(range(world)) - {recording.rank for recording in recordings})
    if not missing:
        return recordings
    lowest = min(range(len(recordings)), key=lambda index: recordings[index].rank or 0)
    note = message("no_trace_of", world=world, n=len(missing), list=_spans(missing))
    return [
        replace(each, notes=(*each.notes, note)) if index == lowest else each for index, each in enumerate(recordings)
    ]


def _spans(numbers: list[int]) -> str:
    """
    >>> _spans([1, 2, 3, 7])
    '1–3, 7'
    """
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    texts = [f"{low}–{high}" if high > low else str(low) for low, high in spans]
    return ", ".join(texts[:8]) + (" …" if len(texts) > 8 else "")
