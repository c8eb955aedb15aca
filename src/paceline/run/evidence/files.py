"""Gaps that the files of the selected recordings show, before or without reading their tables."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from paceline.core.message import Message
from paceline.formats.base import RankRecording, RecordingSection
from paceline.run.evidence.file_ends import cut_off
from paceline.run.evidence.gap import EvidenceGap, is_core
from paceline.run.evidence.peers import (
    conflicting_identities,
    copied_files,
    files_of_ranks,
    guessed_identities,
    missing_files,
)
from paceline.run.evidence.siblings import sibling_gaps
from paceline.storage.file_tree import File, Tree


class FileGaps:
    """Computed once per run; files of a remote source are looked into only where they are read."""

    def __init__(self, tree: Tree, recordings: tuple[RankRecording, ...], *, local: bool) -> None:
        self._tree, self._recordings, self._local = tree, recordings, local
        self._ends: dict[File, Message | None] = {}

    @cached_property
    def found(self) -> tuple[EvidenceGap, ...]:
        complete = [recording for recording in self._recordings if not recording.ring]
        gaps = [
            EvidenceGap(each.kind, each.ranks, each.said or each.message, each.file, each.core)
            for recording in self._recordings
            for each in recording.earlier_gaps
        ]
        gaps += [*guessed_identities(self._recordings), *conflicting_identities(self._recordings)]
        gaps += missing_files(files_of_ranks(complete))
        gaps += sibling_gaps(self._tree, complete, local=self._local)
        return (*gaps, *copied_files(files_of_ranks(self._recordings))) if self._local else tuple(gaps)

    def cut_off_in(self, sections: Iterable[tuple[int | None, RecordingSection]]) -> list[EvidenceGap]:
        """Files of these sections that end early."""
        if not self._local:
            return []
        return [
            EvidenceGap("cut", (rank,), what, file.relative, is_core(section.tables))
            for rank, section in sections
            if rank is not None
            for file in section.files
            if (what := self._end_of(file))
        ]

    def _end_of(self, file: File) -> Message | None:
        if file not in self._ends:
            try:
                self._ends[file] = cut_off(file.path, file.size)
            except OSError:
                self._ends[file] = None  # its reader reports it
        return self._ends[file]
