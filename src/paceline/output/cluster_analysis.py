"""A run as msprof-analyze's `cluster_analysis_output`, the four files that MindStudio Insight opens.

    cluster_step_trace_time.csv         µs per step and rank; stage rows are the maximum of their ranks
    cluster_communication.json          ranks of the group → step → operator@group → rank → times and bandwidths
    cluster_communication_matrix.json   ranks of the group → step → operator@group → "src-dst" → one link
    communication_group.json            the groups

Ranks are global, timestamps are on each rank's own clock (Insight shows them beside the ranks' own traces), and sums
stand beside their parts as "Total Op Info@group". What the run does not know is left out, not written as 0. Rows are
sorted by DuckDB, which spills to disk, and written as they come: memory does not grow with the run.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from paceline.core.collective_names import group_hash
from paceline.core.errors import UsageError
from paceline.core.i18n import text
from paceline.output.new_directory import new_directory
from paceline.output.writer import ExportOptions
from paceline.run.run import Run

TRANSPORTS = ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")
LARGE_PACKET_BYTES = {"HCCS": 32 << 20, "PCIE": 32 << 20, "SIO": 32 << 20, "RDMA": 1 << 19}
"""From this size on a packet counts as large, as CANN's parser has it."""
_SPELLED = {
    "all_reduce": "allReduce",
    "all_gather": "allGather",
    "reduce_scatter": "reduceScatter",
    "all_to_all": "alltoAll",
    "send_receive": "batchSendRecv",
}
_TOTAL = "Total Op Info"
_CHUNK = 20_000

_STEP_COLUMNS = {
    "Computing": "computing",
    "Communication(Not Overlapped)": "exposed",
    "Overlapped": "coalesce(overlapped, communication - exposed)",
    "Communication": "coalesce(communication, exposed + overlapped)",
    "Free": "coalesce(free, duration - computing - exposed)",
    "Stage": "duration - coalesce(bubble, 0)",
    "Bubble": "bubble",
    "Communication(Not Overlapped and Exclude Receive)": "exposed - coalesce(bubble, 0)",
    "Preparing": "preparing",
}

_KEYED = """
    -- The name of an operator inside a step: HCCL's own, or one in its style that carries the sequence number.
    CASE WHEN name LIKE 'hcom\\_%' ESCAPE '\\' OR "group" IS NULL OR sequence IS NULL THEN name
         ELSE 'hcom_' || {spelled} || '__' || right(label, 3) || '_' || sequence || '_1' END
"""

_COLLECTIVES = f"""
    WITH
    named AS (
        SELECT *, {_KEYED.format(spelled="spelled_op(op)")} AS entry
        FROM collectives JOIN exported_groups ON coalesce("group", '@' || name) = tie
        WHERE duration IS NOT NULL
    ),
    numbered AS (
        SELECT *, row_number() OVER (PARTITION BY tie, step, entry, rank ORDER BY start, duration) AS copy FROM named
    ),
    moved AS (
        SELECT rank, coalesce(step, -1) AS at_step, coalesce("group", '@' || name) AS tie, name,
               coalesce(sequence, -1) AS number, list((transport, packet_bytes, count, duration)) AS packets
        FROM packets GROUP BY ALL
    )
    SELECT members, 'step' || coalesce(step::VARCHAR, ''), label,
           entry || if(copy > 1, '#' || copy, '') AS entry, numbered.rank,
           start + coalesce(clock_offset, 0) AS recorded, duration, transit, wait, sync, idle, bytes, packets
    FROM numbered
    LEFT JOIN ranks USING (rank)
    LEFT JOIN moved ON moved.rank = numbered.rank AND moved.tie = numbered.tie AND moved.name = numbered.name
        AND moved.at_step = coalesce(numbered.step, -1) AND moved.number = coalesce(numbered.sequence, -1)
    -- By length first: 2 before 10. Ranks may count the same operator differently, so not by sequence.
    ORDER BY members, step, label, length(numbered.entry), numbered.entry, copy, numbered.rank
"""

_TRANSFERS = f"""
    WITH named AS (
        SELECT *, {_KEYED.format(spelled="regexp_extract(name, '[A-Za-z]+')")} AS entry
        FROM transfers JOIN exported_groups ON coalesce("group", '@' || name) = tie
        WHERE scope = 'global' AND bytes IS NOT NULL AND duration IS NOT NULL
    )
    SELECT members, 'step' || coalesce(step::VARCHAR, ''), label, entry, src || '-' || dst,
           arg_max(transport, bytes), sum(bytes)::BIGINT, sum(duration)::BIGINT
    FROM named GROUP BY members, step, label, entry, src, dst
    ORDER BY members, step, label, entry, src, dst
"""

_GROUPS = """
    WITH
    used AS (
        SELECT coalesce("group", '@' || name) AS tie, rank, op IN ('send', 'receive', 'send_receive') AS paired
        FROM collectives
        UNION ALL
        SELECT coalesce("group", '@' || name), rank, regexp_matches(name, 'send|rec', 'i') FROM transfers
    ),
    known AS (SELECT "group" AS tie, any_value(kind) AS kind, list(DISTINCT rank) AS ranks FROM groups GROUP BY "group")
    SELECT tie, any_value(kind), list_sort(list_distinct(list(DISTINCT used.rank) || coalesce(any_value(ranks), []))),
           bool_or(paired), bool_or(NOT paired)
    FROM used LEFT JOIN known USING (tie) GROUP BY tie ORDER BY tie
"""


@dataclass(frozen=True)
class ExportedGroup:
    """A communicator under the name the files give it."""

    tie: str
    """As the tables spell it; "@" + operator where they know no group."""
    label: str
    kind: str
    ranks: tuple[int, ...]
    paired: bool
    collective: bool


def export_cluster_analysis(run: Run, target: Path) -> dict[str, int]:
    """Write the four files into a new directory; returns file → entries."""
    run.load(["ranks", "groups", "steps", "collectives", "packets", "transfers"])
    groups = _read_groups(run)
    _register(run, groups)
    with new_directory(target) as scratch:
        written = {
            "cluster_step_trace_time.csv": _write_steps(run, scratch / "cluster_step_trace_time.csv"),
            "cluster_communication.json": _write_nested(
                scratch / "cluster_communication.json", _operations(_rows(run, _COLLECTIVES))
            ),
            "cluster_communication_matrix.json": _write_nested(
                scratch / "cluster_communication_matrix.json", _links(_rows(run, _TRANSFERS))
            ),
        }
        if not any(written.values()):
            raise UsageError(f"{run.source}: neither steps nor communication to export")
        _write_groups(groups, scratch / "communication_group.json")
    run.connection.execute("DROP TABLE exported_groups")
    return written | {"communication_group.json": len(groups)}


def unplaced_links(run: Run) -> int:
    """Links that are left out, because the ranks at their ends are known inside their communicator only."""
    return int(run.sql("SELECT count(*) FROM links WHERE scope <> 'global'").fetchall()[0][0])


def _read_groups(run: Run) -> list[ExportedGroup]:
    rows = run.connection.execute(_GROUPS).fetchall()
    return [
        ExportedGroup(tie, _label(tie), kind or "other", tuple(ranks), bool(paired), bool(collective))
        for tie, kind, ranks, paired, collective in rows
    ]


def _label(tie: str) -> str:
    """HCCL writes the hash of a communicator's id behind "@"."""
    return "" if tie.startswith("@") else tie if tie.isdecimal() else group_hash(tie)


def _register(run: Run, groups: list[ExportedGroup]) -> None:
    """The groups as a table the queries can join."""
    connection = run.connection
    connection.execute("CREATE OR REPLACE TEMP TABLE exported_groups (tie VARCHAR, label VARCHAR, members VARCHAR)")
    if groups:
        columns = {
            "tie": np.array([group.tie for group in groups]),
            "label": np.array([group.label for group in groups]),
            "members": np.array([str(group.ranks) for group in groups]),
        }
        connection.register("staged_groups", columns)
        connection.execute("INSERT INTO exported_groups SELECT tie, label, members FROM staged_groups")
        connection.unregister("staged_groups")
    cases = " ".join(f"WHEN '{op}' THEN '{spelled}'" for op, spelled in _SPELLED.items())
    connection.execute(f"CREATE OR REPLACE TEMP MACRO spelled_op(op) AS CASE op {cases} ELSE op END")


def _rows(run: Run, query: str) -> Iterator[tuple[Any, ...]]:
    cursor = run.connection.execute(query)
    while rows := cursor.fetchmany(_CHUNK):
        yield from rows


# -- cluster_step_trace_time.csv --------------------------------------------------------------------------------------


def _write_steps(run: Run, path: Path) -> int:
    """Rank rows, then stage rows where pipeline stages are known. What is unknown stays empty."""
    names = ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(_STEP_COLUMNS.values()))
    rows = run.connection.execute(
        f"SELECT step, rank, {names} FROM steps WHERE coalesce(computing, exposed, free) IS NOT NULL ORDER BY rank, step"
    ).fetchall()
    if not rows:
        return 0
    # "Preparing" came with later versions: a file without it is a whole file.
    kept = [
        i for i, name in enumerate(_STEP_COLUMNS) if name != "Preparing" or any(row[2 + i] is not None for row in rows)
    ]
    places = _parallel_places(run)
    header = ["Step", "Type", "Index", *(list(_STEP_COLUMNS)[i] for i in kept)]
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(header + (["DP Index", "PP Index", "TP Index"] if places else []))
        for step, rank, *values in rows:
            told = [values[i] for i in kept]
            out.writerow([_blank(step), "rank", rank, *_micros(told), *places.get(rank, ())])
        for step, members, values in _stage_rows(run, rows):
            told = [values[i] for i in kept]
            out.writerow([_blank(step), "stage", str(members), *_micros(told), *(["NA"] * 3 if places else [])])
    return len(rows)


def _stage_rows(run: Run, rows: list[tuple[Any, ...]]) -> Iterator[tuple[int, tuple[int, ...], list[int | None]]]:
    """(step, ranks, maximum of each column) for every stage, when there is more than one."""
    stage = dict(run.connection.execute("SELECT rank, stage FROM ranks WHERE stage IS NOT NULL").fetchall())
    if len(set(stage.values())) < 2:
        return
    members: dict[int, set[int]] = defaultdict(set)
    found: dict[tuple[int, Any], list[list[int | None]]] = defaultdict(list)
    for step, rank, *values in rows:
        if rank in stage:
            members[stage[rank]].add(rank)
            found[stage[rank], step].append(values)
    for (number, step), lists in sorted(found.items(), key=lambda entry: (entry[0][0], entry[0][1] or 0)):
        columns = zip(*lists, strict=True)
        yield (
            step,
            tuple(sorted(members[number])),
            [max((v for v in c if v is not None), default=None) for c in columns],
        )


def _parallel_places(run: Run) -> dict[int, tuple[int, int, int]]:
    """rank → (dp, pp, tp) numbers, where the groups explain all ranks (dp · pp · tp = ranks); else nothing."""
    rows = run.connection.execute(
        """
        WITH sized AS (SELECT *, count(*) OVER (PARTITION BY "group") AS size FROM groups WHERE kind IN ('dp', 'pp', 'tp'))
        SELECT rank, kind, arg_min(index, size), min(size) FROM sized WHERE index IS NOT NULL GROUP BY rank, kind
        """
    ).fetchall()
    ranks = [row[0] for row in run.connection.execute("SELECT rank FROM ranks ORDER BY rank").fetchall()]
    sizes = {kind: max((size for _, of, _, size in rows if of == kind), default=1) for kind in ("dp", "pp", "tp")}
    if not rows or sizes["dp"] * sizes["pp"] * sizes["tp"] != len(ranks):
        return {}
    numbers = {(rank, kind): index for rank, kind, index, _ in rows}
    return {
        rank: (numbers.get((rank, "dp"), 0), numbers.get((rank, "pp"), 0), numbers.get((rank, "tp"), 0))
        for rank in ranks
    }


def _micros(values: list[int | None]) -> list[float | str]:
    return ["" if value is None else value / 1000 for value in values]


def _blank(step: int | None) -> int | str:
    return "" if step is None else step


# -- cluster_communication.json ---------------------------------------------------------------------------------------


@dataclass
class _Moved:
    """What went over one transport."""

    bytes: int = 0
    time: int = 0
    packets: dict[int, list[int]] = field(default_factory=dict)
    """Packet size → [count, ns]."""

    def add(self, other: _Moved) -> None:
        self.bytes += other.bytes
        self.time += other.time
        for size, (count, duration) in other.packets.items():
            entry = self.packets.setdefault(size, [0, 0])
            entry[0] += count
            entry[1] += duration


@dataclass
class _Operation:
    times: dict[str, int]
    moved: dict[str, _Moved]

    def add(self, other: _Operation) -> None:
        for name, value in other.times.items():
            self.times[name] = self.times.get(name, 0) + value
        for transport, moved in other.moved.items():
            self.moved.setdefault(transport, _Moved()).add(moved)


_TIMES = ("Elapse Time(ms)", "Transit Time(ms)", "Wait Time(ms)", "Synchronization Time(ms)", "Idle Time(ms)")


def _operations(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[tuple[str, ...], str]]:
    """(ranks, step, operator, rank) → JSON, with each group's totals behind its operators."""
    for (members, step, label), group in groupby(rows, key=lambda row: row[:3]):
        totals: dict[int, _Operation] = {}
        for _, _, _, entry, rank, start, *numbers in group:
            operation = _operation(*numbers)
            totals.setdefault(rank, _Operation({}, {})).add(operation)
            yield (members, step, _at(entry, label), str(rank)), _operation_json(operation, start, total=False)
        for rank, total in sorted(totals.items()):
            yield (members, step, _at(_TOTAL, label), str(rank)), _operation_json(total, None, total=True)


def _operation(
    duration: int,
    transit: int | None,
    wait: int | None,
    sync: int | None,
    idle: int | None,
    size: int | None,
    packets: list[tuple[str, int, int, int]] | None,
) -> _Operation:
    known = zip(_TIMES, (duration, transit, wait, sync, idle), strict=True)
    return _Operation({name: value for name, value in known if value is not None}, _moved(size, transit, packets))


def _moved(size: int | None, transit: int | None, packets: list[tuple[str, int, int, int]] | None) -> dict[str, _Moved]:
    """By transport; SDMA is the sum of what is not RDMA, as CANN has it. Nothing where no size is known."""
    if size is None and not packets:
        return {}
    moved = {transport: _Moved() for transport in TRANSPORTS}
    for transport, packet, count, duration in packets or ():
        if transport in moved:
            moved[transport].add(_Moved(packet * count, duration or 0, {packet: [count, duration or 0]}))
    if not packets and size:
        moved["SDMA"] = _Moved(size, transit or 0)
    for part in ("HCCS", "PCIE", "SIO"):
        moved["SDMA"].add(_Moved(moved[part].bytes, moved[part].time))
    return moved


def _operation_json(operation: _Operation, start: int | None, *, total: bool) -> str:
    times = [f'"Start Timestamp(us)": {start // 1000}.{start % 1000:03d}'] if start is not None else []
    times += [f'"{name}": {value / 1e6}' for name, value in operation.times.items()]
    if "Transit Time(ms)" in operation.times:
        transit = operation.times["Transit Time(ms)"]
        for name, ratio in (
            ("Wait Time(ms)", "Wait Time Ratio"),
            ("Synchronization Time(ms)", "Synchronization Time Ratio"),
        ):
            if name in operation.times:
                times.append(f'"{ratio}": {_ratio(operation.times[name], operation.times[name] + transit)}')
    links = ", ".join(
        f'"{transport}": {_moved_json(transport, moved, total)}' for transport, moved in operation.moved.items()
    )
    return f'{{"Communication Time Info": {{{", ".join(times)}}}, "Communication Bandwidth Info": {{{links}}}}}'


def _moved_json(transport: str, moved: _Moved, total: bool) -> str:
    large = f'"Large Packet Ratio": {_large_share(transport, moved)}, ' if not total else ""
    sizes = ", ".join(f'"{size / 1e6}": [{count}, {ns / 1e6}]' for size, (count, ns) in moved.packets.items())
    return (
        f'{{"Transit Size(MB)": {moved.bytes / 1e6}, "Transit Time(ms)": {moved.time / 1e6}, '
        f'"Bandwidth(GB/s)": {_ratio(moved.bytes, moved.time)}, {large}"Size Distribution": {{{sizes}}}}}'
    )


def _large_share(transport: str, moved: _Moved) -> float:
    large = LARGE_PACKET_BYTES.get(transport)
    if large is None:
        return 0
    return _ratio(
        sum(count for size, (count, _) in moved.packets.items() if size >= large),
        sum(count for count, _ in moved.packets.values()),
    )


# -- cluster_communication_matrix.json --------------------------------------------------------------------------------


def _links(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[tuple[str, ...], str]]:
    """(ranks, step, operator, "src-dst") → JSON, with each group's totals behind its operators."""
    for (members, step, label), group in groupby(rows, key=lambda row: row[:3]):
        totals: dict[str, tuple[str, int, int]] = {}
        for _, _, _, entry, ends, transport, size, duration in group:
            _, size_before, time_before = totals.get(ends, (transport, 0, 0))
            totals[ends] = (transport, size_before + size, time_before + duration)
            yield (members, step, _at(entry, label), ends), _link_json(transport, size, duration)
        for ends, (transport, size, duration) in totals.items():
            yield (members, step, _at(_TOTAL, label), ends), _link_json(transport, size, duration)


def _link_json(transport: str, size: int, duration: int) -> str:
    return (
        f'{{"Transport Type": {json.dumps(transport)}, "Transit Time(ms)": {duration / 1e6}, '
        f'"Transit Size(MB)": {size / 1e6}, "Op Name": "", "Bandwidth(GB/s)": {_ratio(size, duration)}}}'
    )


# -- communication_group.json and what the files share ----------------------------------------------------------------


def _write_groups(groups: list[ExportedGroup], path: Path) -> None:
    both = [("collective", group) for group in groups if group.collective]
    both += [("p2p", group) for group in groups if group.paired]
    document: dict[str, list[Any]] = {"collective": [], "p2p": [], "comm_group_parallel_info": []}
    for kind, group in both:
        document[kind].append(list(group.ranks))
        document["comm_group_parallel_info"].append(
            {
                "type": kind,
                "rank_set": list(group.ranks),
                "group_name": group.label or group.tie[1:],
                "group_id": "" if group.label in ("", group.tie) else group.tie,
                "pg_name": {"other": "", "world": "default_group"}.get(group.kind, group.kind),
            }
        )
    path.write_text(json.dumps(document), encoding="utf-8")


def _at(entry: str, label: str) -> str:
    return f"{entry}@{label}" if label else entry


def _ratio(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole else 0


def _write_nested(path: Path, entries: Iterable[tuple[tuple[str, ...], str]]) -> int:
    """Write path → JSON text as nested objects; entries of one parent must come one after the other."""
    count = 0
    with path.open("w", encoding="utf-8") as out:
        before: tuple[str, ...] = ()
        for keys, value in entries:
            _step_over(out, before, keys)
            out.write(value)
            before, count = keys, count + 1
        out.write("{}" if not count else "}" * len(before))
    return count


def _step_over(out: TextIO, before: tuple[str, ...], keys: tuple[str, ...]) -> None:
    """Close the objects that ended, open the new ones."""
    if not before:
        out.write("".join(f"{{{json.dumps(key)}: " for key in keys))
        return
    shared = next(i for i, (old, new) in enumerate(zip(before, keys, strict=True)) if old != new)
    out.write("}" * (len(before) - 1 - shared) + f", {json.dumps(keys[shared])}: ")
    out.write("".join(f"{{{json.dumps(key)}: " for key in keys[shared + 1 :]))


class ClusterAnalysisWriter:
    def default_name(self, source: str) -> str:
        return "cluster_analysis_output"  # the name MindStudio Insight looks for

    def write(self, run: Run, target: Path, options: ExportOptions) -> str:
        if options.ranks:
            raise UsageError("--ranks does not go with --to cluster-analysis: its groups and totals need all ranks")
        written = export_cluster_analysis(run, target)
        listed = ", ".join(f"{file} {rows:,}" for file, rows in written.items())
        lines = [text("output.written.tables", options.language, target=target, tables=listed)]
        if left_out := unplaced_links(run):
            lines.append(text("output.written.links_left_out", options.language, count=f"{left_out:,}"))
        return "\n".join(lines)


CLUSTER_ANALYSIS = ClusterAnalysisWriter()
