"""All tables of a run as Parquet or CSV files, with an index (paceline.json) by which Paceline reads them again."""

from __future__ import annotations

from pathlib import Path

import duckdb
import msgspec

from paceline.core.errors import UsageError
from paceline.core.i18n import text
from paceline.core.message import Message, Sentence
from paceline.core.text_encoding import CONTROLS, FORMULA, HIDDEN, is_utf8, printable
from paceline.output.json_text import indented_json
from paceline.output.new_directory import new_directory
from paceline.output.rank_filter import rank_condition, table_condition
from paceline.output.writer import ExportOptions
from paceline.run.evidence.gap import EvidenceGap
from paceline.run.read_warning import ReadWarning
from paceline.run.run import TABLE_NAMES, Run

SCHEMA = "paceline.tables/1"


class FileWarning(msgspec.Struct, frozen=True):
    """What a reader noticed in a file."""

    rank: int | None
    file: str | None
    message: str
    line: int | None
    kind: str
    core: bool
    said: Message | None = None
    """The message as its key and values; null where somebody else's reader wrote it."""


class FileGap(msgspec.Struct, frozen=True):
    """What the files of some ranks lacked or contradicted, and the tables do not show."""

    kind: str
    ranks: tuple[int, ...]
    message: str
    file: str | None
    core: bool
    said: Message | None = None


class TableIndex(msgspec.Struct, frozen=True, kw_only=True, tag=SCHEMA, tag_field="schema"):
    """paceline.json beside exported tables."""

    tables: dict[str, int]
    """Rows of each table."""
    warnings: tuple[FileWarning, ...]
    gaps: tuple[FileGap, ...]


def export_tables(run: Run, target: Path, kind: str, *, ranks: str | None = None) -> dict[str, int]:
    """Write every table that has rows into a new directory; returns table → rows."""
    chosen = rank_condition(run, ranks)
    if not is_utf8(str(target)):
        raise UsageError(f"{printable(target)}: tables cannot be written below a name that is not UTF-8")
    with new_directory(target) as scratch:
        run.load(TABLE_NAMES)
        written = {}
        for name in TABLE_NAMES:
            rows = run.connection.view(name).filter(table_condition(chosen, run.connection.view(name).columns))
            count = int(rows.count("*").fetchall()[0][0])
            if not count:
                continue
            path = str(scratch / f"{name}.{kind}")
            if kind == "parquet":
                rows.write_parquet(path, compression="zstd")
            else:
                _without_formulas(rows).write_csv(path)
            written[name] = count
        # Warnings of the readers are in no table, and still hold for what was read.
        index = TableIndex(
            tables=written,
            warnings=tuple(_file_warning(each) for each in run.file_warnings),
            gaps=tuple(_file_gap(each) for each in run.file_gaps),
        )
        (scratch / "paceline.json").write_text(indented_json(index), encoding="utf-8")
    return written


def _without_formulas(rows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Texts as `spreadsheet_cell` makes them, by DuckDB: tables may have millions of rows."""
    shown = []
    for name, kind in zip(rows.columns, rows.types, strict=True):
        safe = f"regexp_replace(\"{name}\", '{CONTROLS}', '{HIDDEN}', 'g')"
        quote = f"if(regexp_matches(\"{name}\", '{FORMULA}'), chr(39), '')"
        shown.append(f'{quote} || {safe} AS "{name}"' if str(kind) == "VARCHAR" else f'"{name}"')
    return rows.project(", ".join(shown))


def _file_warning(warning: ReadWarning) -> FileWarning:
    file = printable(warning.file) if warning.file else None
    said, message = _said(warning.said), printable(warning.message)
    return FileWarning(warning.rank, file, message, warning.line, warning.kind, warning.core, said)


def _file_gap(gap: EvidenceGap) -> FileGap:
    file = printable(gap.file) if gap.file else None
    return FileGap(gap.kind, gap.ranks, printable(gap.message), file, gap.core, _said(gap.said))


def _said(sentence: Sentence) -> Message | None:
    return sentence if isinstance(sentence, Message) else None


class TableWriter:
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def default_name(self, source: str) -> str:
        return f"{source}-{self.kind}"

    def write(self, run: Run, target: Path, options: ExportOptions) -> str:
        written = export_tables(run, target, self.kind, ranks=options.ranks)
        listed = ", ".join(f"{name} {rows:,}" for name, rows in written.items())
        return text("output.written.tables", options.language, target=target, tables=listed)


PARQUET, CSV = TableWriter("parquet"), TableWriter("csv")
