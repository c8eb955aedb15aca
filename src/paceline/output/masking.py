"""Host names and paths out of a report, so that it can be shared: node17 becomes host-3 everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from paceline.diagnosis.finding import Diagnosis
from paceline.output.report_data import ReportData

_KEPT = frozenset({"id", "severity", "see", "key", "unit", "transport"})
"""Fields that hold one of our own words, even where a host has the same name."""


def mask_hosts(data: ReportData) -> ReportData:
    """The same report with hosts numbered instead of named; the source keeps no directory."""
    mask = HostMask(data.hosts)
    return replace(
        data,
        diagnoses={language: mask.diagnosis(diagnosis) for language, diagnosis in data.diagnoses.items()},
        source="",
        hosts=[mask.text(host) for host in data.hosts],
        tables={name: table.map_texts(mask.text) for name, table in data.tables.items()},
        warnings={each: [mask.text(warning) for warning in found] for each, found in data.warnings.items()},
    )


class HostMask:
    """Replaces known host names wherever they stand as a word; `_` and `-` end a word as file names do."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._names = {host: f"host-{number}" for number, host in enumerate(hosts, 1)}
        # A host called "7" says nothing about anyone, but replacing it would corrupt every number.
        named = sorted((re.escape(host) for host in hosts if not host.isdigit()), key=len, reverse=True)
        self._pattern = re.compile(rf"(?<![0-9A-Za-z])(?:{'|'.join(named)})(?![0-9A-Za-z])") if named else None

    def text(self, text: str) -> str:
        if text in self._names:
            return self._names[text]
        return self._pattern.sub(lambda found: self._names[found.group()], text) if self._pattern else text

    def diagnosis(self, diagnosis: Diagnosis) -> Diagnosis:
        run = msgspec.structs.replace(diagnosis.run, source="")
        masked: Diagnosis = _map_texts(msgspec.structs.replace(diagnosis, run=run), self.text)
        return masked


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A struct of the same type with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_map_texts(item, change) for item in value)
    if isinstance(value, msgspec.Struct):
        fields = {
            name: _map_texts(getattr(value, name), change) for name in value.__struct_fields__ if name not in _KEPT
        }
        return msgspec.structs.replace(value, **fields)
    return value
