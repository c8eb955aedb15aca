"""Reader of Ascend SQLite results: ascend_pytorch_profiler_*.db, ascend_mindspore_profiler_*.db, msmonitor_*.db, msprof_*.db.

Databases are recognised by their tables; the name only gives the rank. Sums of CANN (analysis.db,
communication_analyzer.db) belong to the database in the same directory. They are also read alone: for large clusters
the vendor's documentation advises to collect only those.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from paceline.core.errors import FormatError
from paceline.core.message import Sentence, message, said_at
from paceline.formats.ascend_db import FORMAT
from paceline.formats.ascend_db.communication import read_collectives, read_links
from paceline.formats.ascend_db.database import Database, is_sqlite, open_database
from paceline.formats.ascend_db.steps import read_steps
from paceline.formats.ascend_db.tables import (
    read_counters,
    read_events,
    read_host_calls,
    read_identity,
    read_kernels,
    read_memory,
)
from paceline.formats.base import RankRecording, RecordingSection
from paceline.formats.rank_claims import contradiction, strangers_by_directory
from paceline.storage.file_tree import File, Tree, parent_of

_OURS = re.compile(
    r"(?:ascend_(?:pytorch|mindspore)_profiler|msmonitor|msprof)(?:_.*)?\.db$|(?:communication_)?analy\w+\.db$"
)
_RANK_IN_NAME = re.compile(r"(?:ascend_(?:pytorch|mindspore)_profiler|msmonitor_\d+_\d+)_(\d+)\.db$")
_MONITOR = re.compile(r"(?P<job>msmonitor_\d+)_(?P<time>\d+)_\d+\.db$")
_PROFILE = re.compile(r"^(?P<worker>.+)_(?P<time>\d{14,17})_ascend_(?:pt|ms)$")
_PROF = re.compile(r"^PROF_\d+_(?P<time>\d{14,17})_\w+$")
_INFO = re.compile(r"profiler_info_(\d+)\.json$")
_CONTENT = message("claim_table", name="RANK_DEVICE_MAP")
_SUMS = {"StepTraceTime", "CommAnalyzerTime", "CommAnalyzerBandwidth", "CommAnalyzerMatrix"}
_COMPARED = (
    "META_DATA",
    "RANK_DEVICE_MAP",
    "HOST_INFO",
    "NPU_INFO",
    "STEP_TIME",
    "TASK",
    "COMPUTE_TASK_INFO",
    "COMMUNICATION_OP",
    "COMMUNICATION_TASK_INFO",
)
"""Tables that a rank has if its peers do. OVERLAP_ANALYSIS is none: viewers add it to what they open."""
_SHARE = 1 / 8
"""Of a database that one section reads."""
_RECORDED = {"TASK", "COMMUNICATION_OP", "CANN_API", "PYTORCH_API", "STEP_TIME", "MSTX_EVENTS"}


@dataclass(frozen=True)
class _DatabaseRecording:
    """One recording: its database, the sums of CANN, and what was found when they were opened."""

    main: File | None
    sums: File | None
    rank: int | None
    tables: frozenset[str]
    host_and_device: tuple[str, int]
    """Order in which recordings without a rank are numbered."""
    rank_assumed: bool = False
    claims: Mapping[Sentence, int | None] = field(default_factory=dict)
    """What says which rank it is of: the name, what it holds, files beside it."""
    contents: frozenset[str] = frozenset()

    @property
    def file(self) -> File:
        found = self.main or self.sums
        assert found is not None
        return found


@dataclass(frozen=True)
class AscendDbReader:
    name: str = FORMAT.name

    def find(self, tree: Tree) -> Iterator[RankRecording]:
        found: list[_DatabaseRecording] = []
        for directory, files in tree.directories.items():
            if directory.rpartition("/")[2] == "sqlite":
                continue  # PROF_*/{host,device_N}/sqlite: dozens of raw tables, already merged into the result
            candidates = [file for name, file in files.items() if name.endswith(".db")]
            for broken, reason in _pair_databases(tree, directory, candidates, found):
                note = said_at(broken.relative, message("reason_skipped", reason=reason))
                yield RankRecording(self.name, _rank_in_name(broken), broken.relative, (), notes=(note,))
        numbered = list(_with_ranks(_by_content(_without_merged(found))))
        strangers = strangers_by_directory(
            [_root(one.file) for one, _ in numbered], [None if one.rank_assumed else one.rank for one, _ in numbered]
        )
        for place, (recording, notes) in enumerate(numbered):
            claims = {**recording.claims, message("claim_directory"): strangers.get(place)}
            yield self._recording(tree, replace(recording, claims=claims), notes)

    def _recording(self, tree: Tree, recording: _DatabaseRecording, notes: tuple[Sentence, ...]) -> RankRecording:
        recorded, job = _time_and_job(recording.file)
        assert recording.rank is not None
        conflict = None if recording.rank_assumed else contradiction(recording.claims, recording.rank)
        return RankRecording(
            format=self.name,
            rank=recording.rank,
            root=_root(recording.file),
            sections=tuple(_sections(recording)),
            recorded=recorded,
            job=job,
            notes=notes + tuple(_unmerged(tree, recording)),
            rank_assumed=recording.rank_assumed,
            conflicts=(conflict,) if conflict else (),
            contents=recording.contents,
        )


READER = AscendDbReader()


# -- finding ---------------------------------------------------------------------------------------------------------


def _pair_databases(
    tree: Tree, directory: str, files: list[File], found: list[_DatabaseRecording]
) -> Iterator[tuple[File, Exception]]:
    """Add each database with its sums to `found`; yields databases that cannot be read, with the reason."""
    mains: list[_DatabaseRecording] = []
    sums: list[tuple[File, frozenset[str]]] = []
    for file in files:
        try:
            if not is_sqlite(file.path):
                raise FormatError(message("sqlite_not"), file=file.path)
            with open_database(file.path) as database:
                tables = frozenset(database.columns)
                if tables & _RECORDED and "STRING_IDS" in tables:
                    mains.append(_opened(file, tables, database))
                elif tables & _SUMS:
                    sums.append((file, tables))
        except (FormatError, OSError) as error:
            if _OURS.search(file.name):
                yield file, error
    own_sums = sums[0][0] if len(mains) == 1 and sums else None
    info = _info_rank(tree, directory)
    for main in mains:
        claims = {**main.claims, "profiler_info": info if len(mains) == 1 else None}
        tables = main.tables | (sums[0][1] if own_sums else frozenset())
        found.append(replace(main, sums=own_sums, tables=tables, claims=claims, rank=_first(*claims.values())))
    if not mains and sums:
        found.append(_DatabaseRecording(None, sums[0][0], info, sums[0][1], ("", 0)))


def _opened(file: File, tables: frozenset[str], database: Database) -> _DatabaseRecording:
    """A database of a rank, without the sums beside it."""
    claims: dict[Sentence, int | None] = {message("claim_name"): _rank_in_name(file), _CONTENT: _mapped_rank(database)}
    return _DatabaseRecording(
        file, None, None, tables, _host_and_device(database), claims=claims, contents=_contents(database)
    )


def _contents(database: Database) -> frozenset[str]:
    """Tables that hold something, and who belongs together, which is in one of them."""
    held = {name for name in _COMPARED if name in database.columns and database.rows(f"SELECT 1 FROM {name} LIMIT 1")}
    groups = database.has("META_DATA", "name") and database.rows(
        "SELECT 1 FROM META_DATA WHERE name = 'parallel_group_info' LIMIT 1"
    )
    return frozenset({f"table {name}" for name in held} | ({"table META_DATA, parallel groups"} if groups else set()))


def _first(*ranks: int | None) -> int | None:
    return next((rank for rank in ranks if rank is not None), None)


def _by_content(found: list[_DatabaseRecording]) -> list[_DatabaseRecording]:
    """With the rank that each database holds, which moves with its measured times, unless that makes two ranks one."""
    held = [_first(one.claims.get(_CONTENT), one.rank) for one in found]
    sharing = Counter({(rank, one.rank) for rank, one in zip(held, found, strict=True)})
    named_alike = Counter(rank for rank, _ in sharing)
    return [
        one if rank is None or named_alike[rank] > 1 else replace(one, rank=rank)
        for rank, one in zip(held, found, strict=True)
    ]


def _rank_in_name(file: File) -> int | None:
    found = _RANK_IN_NAME.search(file.name)
    return int(found[1]) if found else None


def _mapped_rank(database: Database) -> int | None:
    if not database.has("RANK_DEVICE_MAP", "rankId"):
        return None
    rows = database.rows(
        f"SELECT {database.integer('RANK_DEVICE_MAP.rankId')} AS rank FROM RANK_DEVICE_MAP WHERE rank >= 0 LIMIT 2"
    )
    return int(rows[0][0]) if len(rows) == 1 else None


def _host_and_device(database: Database) -> tuple[str, int]:
    host = database.rows("SELECT hostUid FROM HOST_INFO LIMIT 1") if database.has("HOST_INFO", "hostUid") else []
    device = (
        database.rows(f"SELECT {database.integer('NPU_INFO.id')} FROM NPU_INFO LIMIT 1")
        if database.has("NPU_INFO", "id")
        else []
    )
    return str(host[0][0]) if host else "", int(device[0][0] or 0) if device else 0


def _info_rank(tree: Tree, directory: str) -> int | None:
    """The number in profiler_info_{rank}.json, in the directory or the two above (…_ascend_pt/PROF_*/msprof_*.db)."""
    for above in (directory, parent_of(directory), parent_of(parent_of(directory))):
        ranks = {int(found[1]) for name in tree.directories.get(above, {}) if (found := _INFO.match(name))}
        if ranks:
            return ranks.pop() if len(ranks) == 1 else None
    return None


def _without_merged(found: list[_DatabaseRecording]) -> list[_DatabaseRecording]:
    """Leave out PROF_*/msprof_*.db if the profile has the framework's database, which is made from it."""
    finished = {parent_of(one.file.directory) for one in found if one.file.name.startswith("ascend_")}
    return [
        one
        for one in found
        if not (_PROF.match(one.file.directory.rpartition("/")[2]) and parent_of(one.file.directory) in finished)
    ]


def _with_ranks(found: list[_DatabaseRecording]) -> Iterator[tuple[_DatabaseRecording, tuple[Sentence, ...]]]:
    """Assign the lowest free numbers to recordings without a rank, in order of host and device."""
    used = {one.rank for one in found if one.rank is not None}
    unknown = sorted(
        (one for one in found if one.rank is None), key=lambda one: (one.host_and_device, one.file.relative)
    )
    free = (number for number in range(len(found)) if number not in used)
    for one in found:
        if one.rank is not None:
            yield one, ()
    for one, rank in zip(unknown, free, strict=False):
        note = said_at(one.file.relative, message("rank_assumed", n=rank))
        yield replace(one, rank=rank, rank_assumed=True), (note,)


# -- sections --------------------------------------------------------------------------------------------------------


def _root(file: File) -> str:
    """The profile directory, or the file itself if several ranks share a directory."""
    if file.name.startswith("msmonitor"):
        return file.relative
    output = file.directory.rpartition("/")[2] == "ASCEND_PROFILER_OUTPUT"
    return parent_of(file.directory) if output else file.directory


def _time_and_job(file: File) -> tuple[str, str]:
    """Time of the recording, and the job whose cycles belong together."""
    if found := _MONITOR.search(file.name):
        return found["time"], f"{file.directory}/{found['job']}"
    directory, recorded = file.directory, ""
    while directory:
        name = directory.rpartition("/")[2]
        if found := _PROFILE.match(name):
            return found["time"], f"{parent_of(directory)}/{found['worker']}"
        if found := _PROF.match(name):
            recorded = found["time"]
        directory = parent_of(directory)
    return recorded, ""


def _unmerged(tree: Tree, recording: _DatabaseRecording) -> Iterator[Sentence]:
    """A note if there is a write-ahead log: it may hold rows that the database does not have yet."""
    for file in (recording.main, recording.sums):
        log = tree.directories[file.directory].get(f"{file.name}-wal") if file else None
        if file and log and log.size:
            yield said_at(file.relative, message("not_closed", name=log.name))


def _sections(recording: _DatabaseRecording) -> Iterator[RecordingSection]:
    main, sums, tables = recording.main, recording.sums, recording.tables
    both = tuple(file for file in (main, sums) if file)
    paths = (main.path if main else None, sums.path if sums else None)
    assert recording.rank is not None
    if tables & {"StepTraceTime", "STEP_TIME", "TASK"}:
        yield RecordingSection("steps", frozenset({"steps"}), both, partial(read_steps, *paths), _SHARE)
    if tables & {"CommAnalyzerTime", "COMMUNICATION_OP"}:
        yield RecordingSection(
            "collectives", frozenset({"collectives", "packets"}), both, partial(read_collectives, *paths), _SHARE
        )
    if tables & {"CommAnalyzerMatrix", "COMMUNICATION_TASK_INFO"}:
        yield RecordingSection("links", frozenset({"transfers"}), both, partial(read_links, *paths), _SHARE)
    if main is None:
        return
    yield RecordingSection(
        "identity", frozenset({"ranks", "groups"}), (main,), partial(read_identity, main.path, recording.rank), _SHARE
    )
    for name, made, needed, read in _MAIN_SECTIONS:
        if tables & needed:
            yield RecordingSection(name, frozenset(made), (main,), partial(read, main.path), _SHARE)


_MAIN_SECTIONS = (
    ("kernels", {"kernels"}, {"COMPUTE_TASK_INFO", "COMMUNICATION_OP"}, read_kernels),
    ("memory", {"memory", "ranks_memory"}, {"OP_MEMORY", "MEMORY_RECORD", "NPU_MEM", "NPU_MODULE_MEM"}, read_memory),
    ("host-calls", {"host_calls"}, {"CANN_API", "PYTORCH_API"}, read_host_calls),
    ("counters", {"counters"}, {"AICORE_FREQ", "HBM", "LLC", "SOC_BANDWIDTH_LEVEL"}, read_counters),
    ("events", {"events"}, {"TASK", "COMMUNICATION_OP", "CANN_API", "PYTORCH_API"}, read_events),
)
