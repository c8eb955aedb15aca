"""Make a smaller copy of a profile with the same diagnosis: only the files that readers open."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from paceline.core.errors import UsageError
from paceline.core.scratch_directory import scratch_directory
from paceline.formats.file_selection import needed_for_communication, needed_for_diagnosis
from paceline.storage.fetch_source import fetch_source
from paceline.storage.file_selection import FileFilter, everything
from paceline.storage.stores.open_store import open_store
from paceline.storage.transfer.transfer import TransferOptions, check_not_nested, transfer
from paceline.storage.transfer.transfer_report import TransferReport
from paceline.storage.url import is_remote, parse_url

_MARKER = "paceline.json"


class Keep(str, Enum):
    """Which files of a profile are kept."""

    diagnosis = "diagnosis"
    """Files that readers open."""
    hccl = "hccl"
    """Steps and communication only."""
    all = "all"
    """Every file."""

    @property
    def file_filter(self) -> FileFilter:
        filters: dict[str, FileFilter] = {
            "diagnosis": needed_for_diagnosis,
            "hccl": needed_for_communication,
            "all": everything,
        }
        return filters[self.value]


@dataclass(frozen=True)
class SlimResult:
    """What slimming did; sizes in bytes."""

    report: TransferReport
    before: int
    after: int

    @property
    def saved(self) -> float:
        """Share of the source's bytes that was left out."""
        return 1 - self.after / self.before if self.before else 0.0


def slim(
    source: str | Path,
    target: str | Path,
    keep: Keep = Keep.diagnosis,
    *,
    encode: bool = False,
    options: TransferOptions | None = None,
) -> SlimResult:
    """Copy only the files that are needed; with `encode`, write the tables as Parquet (zstd) instead."""
    check_not_nested(parse_url(source), parse_url(target))
    options = replace(
        options or TransferOptions(), file_filter=keep.file_filter if encode else _file_filter(source, keep)
    )
    before = _size(source)
    report = _reencode(source, target, options) if encode else transfer(source, target, options)
    if not report.present and not report.failures:
        raise _nothing_to_keep(source)
    return SlimResult(report, before, report.moved_bytes + report.same_bytes)


def _file_filter(source: str | Path, keep: Keep) -> FileFilter:
    """Filter by name; for a local source, whose files can be read, also without redundant files."""
    if keep is not Keep.diagnosis or is_remote(source) or not fetch_source(source, keep.file_filter).is_dir():
        return keep.file_filter
    from paceline.collect.duplicates import redundant_files  # imports the readers

    redundant = redundant_files(fetch_source(source, keep.file_filter))
    return lambda key: needed_for_diagnosis(key) and key not in redundant


def _size(source: str | Path) -> int:
    store = open_store(source)
    try:
        return sum(item.size for item in store.list_files())
    finally:
        store.close()


def _reencode(source: str | Path, target: str | Path, options: TransferOptions) -> TransferReport:
    """Read the source, export its tables as Parquet, which readers open directly, and transfer them to the target."""
    from paceline.output.table_files import export_tables
    from paceline.run.run import Run

    with scratch_directory() as scratch:
        local = fetch_source(source, options.file_filter, progress=options.progress)
        kept = _linked_selection(local, scratch / "kept", options.file_filter)
        with Run(kept, store=scratch / "store") as run:
            export_tables(run, scratch / "tables", "parquet")
            lost = [str(warning) for warning in run.file_warnings if warning.lost]
        if lost:
            raise UsageError(
                f"{source}: {len(lost)} files could not be read and would be lost by --encode: {lost[0]}",
                hint="run slim without --encode, which keeps them unchanged",
            )
        _add_content_hash(scratch / "tables")
        _check_target(scratch / "tables", target)
        report = transfer(scratch / "tables", target, replace(options, file_filter=everything))
        report.source = parse_url(source).text
        return report


def _add_content_hash(tables: Path) -> None:
    """Write a hash of all tables into the marker, so that tables of another recording at the target are recognised."""
    content = hashlib.sha256()
    for path in sorted(tables.glob("*.parquet")):
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                content.update(chunk)
    marker = json.loads((tables / _MARKER).read_text(encoding="utf-8"))
    updated = json.dumps({**marker, "content": content.hexdigest()}, indent=2, ensure_ascii=False)
    (tables / _MARKER).write_text(updated + "\n", encoding="utf-8")


def _check_target(tables: Path, target: str | Path) -> None:
    """Tables of two recordings in one directory would be read as one recording, also after a transfer was killed."""
    store = open_store(target)
    try:
        existing = store.stat(_MARKER)
        if existing is None or bytes(store.read(existing, 0, existing.size)) == (tables / _MARKER).read_bytes():
            return
    finally:
        store.close()
    raise UsageError(f"{target}: already contains the tables of another recording", hint="choose a new target")


def _linked_selection(local: Path, links: Path, file_filter: FileFilter) -> Path:
    """The source itself, or a tree of links to the selected files if the filter leaves some out."""
    if not local.is_dir():
        return local
    files = [path for path in sorted(local.rglob("*")) if path.is_file()]
    wanted = [path for path in files if file_filter(path.relative_to(local).as_posix())]
    if len(wanted) == len(files):
        return local
    for path in wanted:
        link = links / path.relative_to(local)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.absolute())
    if not wanted:
        raise _nothing_to_keep(local)
    return links


def _nothing_to_keep(source: str | Path) -> UsageError:
    return UsageError(f"{source}: no file to keep", hint="check that it is a profile; --keep all keeps every file")
