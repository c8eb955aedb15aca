"""Communication groups under the names the files give them: communication_group.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.collective_names import group_hash
from paceline.run.run import Run

_SPELLED = {
    "all_reduce": "allReduce",
    "all_gather": "allGather",
    "reduce_scatter": "reduceScatter",
    "all_to_all": "alltoAll",
    "send_receive": "batchSendRecv",
}

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


def read_groups(run: Run) -> list[ExportedGroup]:
    rows = run.connection.execute(_GROUPS).fetchall()
    return [
        ExportedGroup(tie, _label(tie), kind or "other", tuple(ranks), bool(paired), bool(collective))
        for tie, kind, ranks, paired, collective in rows
    ]


def _label(tie: str) -> str:
    """HCCL writes the hash of a communicator's id behind "@"."""
    return "" if tie.startswith("@") else tie if tie.isdecimal() else group_hash(tie)


def register_groups(run: Run, groups: list[ExportedGroup]) -> None:
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


def write_groups(groups: list[ExportedGroup], path: Path) -> None:
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
