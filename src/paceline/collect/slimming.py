"""A smaller copy of a profile that gives the same diagnosis: what readers open, nothing else."""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from paceline.errors import UsageError
from paceline.storage.localize import localize
from paceline.storage.location import is_remote, parse
from paceline.storage.opening import open_store
from paceline.storage.report import Report
from paceline.storage.selection import RULES, Rule, for_diagnosis
from paceline.storage.transfer import Options, refuse_nesting, transfer

_MARKER = "paceline.json"


class Keep(str, Enum):
    """How much of a profile is kept."""

    diagnosis = "diagnosis"
    """Everything any reader opens."""
    hccl = "hccl"
    """Steps and communication only."""
    all = "all"
    """Every file."""

    @property
    def rule(self) -> Rule:
        return RULES[self.value]


@dataclass(frozen=True)
class Slimmed:
    """What slimming did; sizes in bytes."""

    report: Report
    before: int
    after: int

    @property
    def saved(self) -> float:
        """Share of the source's bytes that was left behind."""
        return 1 - self.after / self.before if self.before else 0.0


def slim(
    source: str | Path,
    target: str | Path,
    keep: Keep = Keep.diagnosis,
    *,
    encode: bool = False,
    options: Options | None = None,
) -> Slimmed:
    """Copy only what is needed from anywhere to anywhere; `encode` writes the tables as Parquet (zstd) instead."""
    refuse_nesting(parse(source), parse(target))
    options = replace(options or Options(), rule=keep.rule if encode else _rule(source, keep))
    before = _size(source)
    report = _encoded(source, target, options) if encode else transfer(source, target, options)
    if not report.present and not report.failures:
        raise _nothing(source)
    return Slimmed(report, before, report.moved_bytes + report.same_bytes)


def _rule(source: str | Path, keep: Keep) -> Rule:
    """By name; where the source is here and can be looked into, also without what tells nothing more."""
    if keep is not Keep.diagnosis or is_remote(source) or not localize(source).is_dir():
        return keep.rule
    from paceline.collect.duplicates import duplicates  # which loads the readers

    surplus = duplicates(localize(source))
    return lambda key: for_diagnosis(key) and key not in surplus


def _size(source: str | Path) -> int:
    store = open_store(source)
    try:
        return sum(item.size for item in store.items())
    finally:
        store.close()


def _encoded(source: str | Path, target: str | Path, options: Options) -> Report:
    """Through the readers into paceline's own export, which readers open directly; then to wherever it shall go."""
    from paceline.run.export import export_tables
    from paceline.run.run import Run

    with tempfile.TemporaryDirectory(prefix="paceline-slim-") as scratch:
        local = localize(source, options.rule, progress=options.progress)
        kept = _kept(local, Path(scratch) / "kept", options.rule)
        with Run(kept, store=Path(scratch) / "store") as run:
            export_tables(run, Path(scratch) / "tables", "parquet")
            lost = [str(warning) for warning in run.noticed_in_files if warning.lost]
        if lost:
            raise UsageError(
                f"{source}: {len(lost)} files could not be read, re-encoding would lose them: {lost[0]}",
                hint="slim without --encode keeps them as they are",
            )
        _seal(Path(scratch) / "tables")
        _refuse_mixing(Path(scratch) / "tables", target)
        report = transfer(Path(scratch) / "tables", target, replace(options, rule=RULES["all"]))
        report.source = parse(source).url
        return report


def _seal(tables: Path) -> None:
    """The marker says which content it speaks for, so that another recording's is told from ours half-way."""
    content = hashlib.sha256()
    for path in sorted(tables.glob("*.parquet")):
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                content.update(chunk)
    marker = json.loads((tables / _MARKER).read_text(encoding="utf-8"))
    sealed = json.dumps({**marker, "content": content.hexdigest()}, indent=2, ensure_ascii=False)
    (tables / _MARKER).write_text(sealed + "\n", encoding="utf-8")


def _refuse_mixing(tables: Path, target: str | Path) -> None:
    """Tables of two recordings in one place would be read as one, also after being killed in between."""
    store = open_store(target)
    try:
        there = store.stat(_MARKER)
        if there is None or bytes(store.read(there, 0, there.size)) == (tables / _MARKER).read_bytes():
            return
    finally:
        store.close()
    raise UsageError(f"{target}: holds the tables of another recording", hint="give a new place")


def _kept(local: Path, links: Path, rule: Rule) -> Path:
    """The source itself, or where the rule leaves something out, a tree of links to what it keeps."""
    if not local.is_dir():
        return local
    files = [path for path in sorted(local.rglob("*")) if path.is_file()]
    wanted = [path for path in files if rule(path.relative_to(local).as_posix())]
    if len(wanted) == len(files):
        return local
    for path in wanted:
        link = links / path.relative_to(local)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.absolute())
    if not wanted:
        raise _nothing(local)
    return links


def _nothing(source: str | Path) -> UsageError:
    return UsageError(f"{source}: nothing to keep", hint="is it a profile? --keep all keeps everything")
