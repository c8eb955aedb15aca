"""Host names and paths out of a report, so that it can be shared: node17 becomes host-3 everywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from paceline.report.data import ReportData


def masked(report: ReportData) -> ReportData:
    """The same report with every host named by its place; the source keeps no directory."""
    mask = HostMask(report.hosts)
    return replace(
        report,
        diagnoses={language: mask.json_object(diagnosis) for language, diagnosis in report.diagnoses.items()},
        source="",
        hosts=[mask.text(host) for host in report.hosts],
        tables={name: table.map_texts(mask.text) for name, table in report.tables.items()},
        warnings=[mask.text(warning) for warning in report.warnings],
    )


class HostMask:
    """Replaces known host names wherever they stand as a word; `_` and `-` end a word as file names do."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._names = {host: f"host-{place}" for place, host in enumerate(hosts, 1)}
        # A host called "7" says nothing about anyone, but replacing it would corrupt every number.
        named = sorted((re.escape(host) for host in hosts if not host.isdigit()), key=len, reverse=True)
        self._pattern = re.compile(rf"(?<![0-9A-Za-z])(?:{'|'.join(named)})(?![0-9A-Za-z])") if named else None

    def text(self, text: str) -> str:
        if text in self._names:
            return self._names[text]
        return self._pattern.sub(lambda found: self._names[found.group()], text) if self._pattern else text

    def json_object(self, value: Mapping[str, object]) -> dict[str, object]:
        return {key: "" if key == "source" else self._json(item) for key, item in value.items()}

    def _json(self, value: object) -> object:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self.json_object(value)
        if isinstance(value, Sequence):
            return [self._json(item) for item in value]
        return value
