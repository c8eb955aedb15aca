"""What cannot be true of a table's rows, as rules: every row that breaks one is warned about.

A rule is a condition in SQL that no honest recording meets, and the sentence to say. TOLERANCE allows for rounding.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import duckdb

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
    says: str


def _exceeds(part: str, whole: str) -> str:
    return f"{whole} >= 0 AND {part} > {1 + TOLERANCE} * {whole} + {ROUNDING_NS}"


RULES = (
    Rule("steps", "duration < 0", "steps end before they start"),
    Rule("steps", _exceeds("data_wait", "duration"), "steps wait for input for longer than they last"),
    Rule("steps", _exceeds("computing", "duration"), "steps compute for longer than they last"),
    Rule("steps", _exceeds("exposed", "duration"), "steps communicate, exposed, for longer than they last"),
    Rule("steps", _exceeds("free", "duration"), "steps are idle for longer than they last"),
    Rule("steps", _exceeds("overlapped", "communication"), "steps hide more communication than they have"),
    Rule("steps", _exceeds("overlapped", "computing"), "steps hide communication behind less computing"),
    Rule("collectives", "duration < 0", "collectives end before they start"),
    Rule("collectives", _exceeds("wait", "duration"), "collectives wait for longer than they last"),
    Rule("collectives", _exceeds("sync", "duration"), "collectives wait for longer than they last before they begin"),
    Rule("collectives", "bytes < 0", "collectives move fewer bytes than none"),
    Rule("transfers", "duration < 0 OR bytes < 0", "transfers have a negative duration or size"),
    Rule("kernels", "duration < 0", "kernels end before they start"),
    Rule("ranks_memory", "capacity > 0 AND peak > capacity", "ranks use more memory than their device has"),
    Rule("ranks_memory", "peak < 0 OR capacity < 0 OR static > peak", "ranks have an impossible peak of memory"),
    Rule("flops", "utilisation > 1 OR utilisation < 0", "rows of floating-point work have an impossible utilisation"),
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
            ReadWarning(None, None, f"{number:,} {rule.says}: the recording contradicts itself")
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
    message = f"{number:,} all-reduces have different payloads on their members: they are not one collective"
    return [ReadWarning(None, None, message)]
