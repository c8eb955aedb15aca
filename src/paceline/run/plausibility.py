"""What cannot be true of a table's rows, as rules: every row that breaks one is warned about.

A rule is a condition in SQL that no honest recording meets, and the sentence to say. TOLERANCE allows for rounding.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import duckdb

from paceline.core.message import Message, message
from paceline.run.read_warning import ReadWarning

TOLERANCE = 0.02
"""Parts may exceed the whole by this share…"""
ROUNDING_NS = 1_000
"""…and by this much: some formats round times to microseconds."""
PAYLOAD_FORMATS = ("kineto", "nsys")
"""Formats whose `bytes` is the payload of a collective, which all members of an all-reduce share."""


@dataclass(frozen=True)
class Rule:
    """`broken` is true of rows that cannot be; `says` follows their number."""

    table: str
    broken: str
    says: Message


def _exceeds(part: str, whole: str) -> str:
    return f"{whole} >= 0 AND {part} > {1 + TOLERANCE} * {whole} + {ROUNDING_NS}"


RULES = (
    Rule("steps", "duration < 0", message("imp_steps_end")),
    Rule("steps", _exceeds("data_wait", "duration"), message("imp_steps_input")),
    Rule("steps", _exceeds("computing", "duration"), message("imp_steps_compute")),
    Rule("steps", _exceeds("exposed", "duration"), message("imp_steps_exposed")),
    Rule("steps", _exceeds("free", "duration"), message("imp_steps_free")),
    Rule("steps", _exceeds("overlapped", "communication"), message("imp_steps_hide")),
    Rule("steps", _exceeds("overlapped", "computing"), message("imp_steps_behind")),
    Rule("collectives", "duration < 0", message("imp_coll_end")),
    Rule("collectives", _exceeds("wait", "duration"), message("imp_coll_wait")),
    Rule("collectives", _exceeds("sync", "duration"), message("imp_coll_sync")),
    Rule("collectives", "bytes < 0", message("imp_coll_bytes")),
    Rule("transfers", "duration < 0 OR bytes < 0", message("imp_transfers")),
    Rule("kernels", "duration < 0", message("imp_kernels")),
    Rule("ranks_memory", "capacity > 0 AND peak > capacity", message("imp_memory")),
    Rule("ranks_memory", "peak < 0 OR capacity < 0 OR static > peak", message("imp_peak")),
    Rule("flops", "utilisation > 1 OR utilisation < 0", message("imp_flops")),
)

_PAYLOADS = """
    SELECT count(*) FROM (
        SELECT 1 FROM raw.collectives JOIN recordings USING (rank)
        WHERE op = 'all_reduce' AND "group" IS NOT NULL AND sequence IS NOT NULL AND bytes IS NOT NULL
          AND recordings.format IN (SELECT unnest(?))
        GROUP BY step, "group", sequence
        HAVING count(DISTINCT rank) = count(*) AND count(*) > 1 AND min(bytes) <> max(bytes)
    )
"""


def impossible_rows(connection: duckdb.DuckDBPyConnection, loaded: Collection[str]) -> list[ReadWarning]:
    """A warning for each rule that rows of the loaded tables break."""
    found = []
    for table in dict.fromkeys(rule.table for rule in RULES if rule.table in loaded):
        rules = [rule for rule in RULES if rule.table == table]
        counts = ", ".join(f"count(*) FILTER ({rule.broken})" for rule in rules)
        [numbers] = connection.execute(f"SELECT {counts} FROM raw.{table}").fetchall()
        found += [
            ReadWarning(None, None, message("impossible", n=number, what=rule.says))
            for rule, number in zip(rules, numbers, strict=True)
            if number
        ]
    return found + _unequal_payloads(connection)


def _unequal_payloads(connection: duckdb.DuckDBPyConnection) -> list[ReadWarning]:
    formats = {format for (format,) in connection.execute("SELECT DISTINCT format FROM recordings").fetchall()}
    if formats.isdisjoint(PAYLOAD_FORMATS):
        return []
    [(number,)] = connection.execute(_PAYLOADS, [list(PAYLOAD_FORMATS)]).fetchall()
    if not number:
        return []
    return [ReadWarning(None, None, message("payloads", n=number))]
