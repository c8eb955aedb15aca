"""cluster_communication_matrix.json: what every operator moved over every link."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from paceline.output.cluster_analysis.operator_keys import KEYED, TOTAL, entry_key, rounded_ratio

TRANSFERS = f"""
    WITH named AS (
        SELECT *, {KEYED.format(spelled="regexp_extract(name, '[A-Za-z]+')")} AS entry
        FROM transfers JOIN exported_groups ON coalesce("group", '@' || name) = tie
        WHERE scope = 'global' AND bytes IS NOT NULL AND duration IS NOT NULL
    )
    SELECT members, 'step' || coalesce(step::VARCHAR, ''), label, entry, src || '-' || dst,
           arg_max(transport, bytes), sum(bytes)::BIGINT, sum(duration)::BIGINT
    FROM named GROUP BY members, step, label, entry, src, dst
    ORDER BY members, step, label, entry, src, dst
"""


def link_entries(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[tuple[str, ...], str]]:
    """(ranks, step, operator, "src-dst") → JSON, with each group's totals behind its operators."""
    for (members, step, label), group in groupby(rows, key=lambda row: row[:3]):
        totals: dict[str, tuple[str, int, int]] = {}
        for _, _, _, entry, ends, transport, size, duration in group:
            _, size_before, time_before = totals.get(ends, (transport, 0, 0))
            totals[ends] = (transport, size_before + size, time_before + duration)
            yield (members, step, entry_key(entry, label), ends), _link_json(transport, size, duration)
        for ends, (transport, size, duration) in totals.items():
            yield (members, step, entry_key(TOTAL, label), ends), _link_json(transport, size, duration)


def _link_json(transport: str, size: int, duration: int) -> str:
    return (
        f'{{"Transport Type": {json.dumps(transport)}, "Transit Time(ms)": {duration / 1e6}, '
        f'"Transit Size(MB)": {size / 1e6}, "Op Name": "", "Bandwidth(GB/s)": {rounded_ratio(size, duration)}}}'
    )
