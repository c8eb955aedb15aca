"""Which files of a remote tree are fetched: those that some reader opens, decided by the patterns of all formats."""

from __future__ import annotations

from paceline.formats.registry import formats


def needed_for_diagnosis(key: str) -> bool:
    """Every file that a reader may open."""
    return any(format.needs(key) for format in formats())


def needed_for_communication(key: str) -> bool:
    """The files that hold steps and communication."""
    chosen = (files for format in formats() for files in format.communication_files)
    return any(files.matches(key) for files in chosen) and needed_for_diagnosis(key)
