"""The data of the report page as public JSON, schema "paceline.report/1"."""

from __future__ import annotations

from datetime import datetime, timezone

import msgspec

from paceline.core.i18n import Language
from paceline.core.version import __version__
from paceline.diagnosis.finding import Diagnosis
from paceline.output.json_columns import JsonTable, pack_table
from paceline.output.report_data import ReportData

SCHEMA = "paceline.report/1"


class Report(msgspec.Struct, frozen=True, kw_only=True, tag=SCHEMA, tag_field="schema"):
    """What the report page is made of."""

    version: str
    """Of Paceline."""
    written: str
    """ISO 8601, UTC."""
    language: Language
    """The page opens in this one."""
    source: str
    formats: tuple[str, ...]
    layout: dict[str, int]
    """Sizes of the parallel groups: {"dp": 4, "tp": 2, "pp": 2}."""
    hosts: tuple[str, ...]
    nominal: dict[str, float]
    """Design speed of each transport, GB/s."""
    warnings: tuple[str, ...]
    warnings_zh: tuple[str, ...]
    """The same in Chinese."""
    more_warnings: int
    """Warnings that are left out here."""
    all_links: int
    unplaced_links: int
    """Links whose ranks are known inside their group only."""
    diagnoses: dict[Language, Diagnosis]
    """The same findings in every language; empty where nothing could be diagnosed."""
    tables: dict[str, JsonTable]


def report_document(data: ReportData, language: Language) -> Report:
    return Report(
        version=__version__,
        written=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        language=language,
        source=data.source,
        formats=tuple(data.formats),
        layout=dict(data.layout),
        hosts=tuple(data.hosts),
        nominal=dict(data.nominal),
        warnings=tuple(data.warnings["en"]),
        warnings_zh=tuple(data.warnings["zh"]),
        more_warnings=data.more_warnings,
        all_links=data.all_links,
        unplaced_links=data.unplaced_links,
        diagnoses=dict(data.diagnoses),
        tables={name: pack_table(table) for name, table in data.tables.items()},
    )
