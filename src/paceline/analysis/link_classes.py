"""Links slower than their class: same transport, same kind of message, groups of the same size, about as many bytes.

    rate      = bytes / ns of a link in all steps
    reference = median rate of the fast half of the class: a fault makes links slower, never faster
    noise     = 1.4826 · MAD of the fast half / reference
    slow      = rate < min(slow, 1 - 6 · noise) · reference, and so in most steps

When a large part of a class is slow, the class is mixed, not broken. All of it is one query: a cluster has millions of links.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.analysis.table import Source

_TRAFFIC = """
    FROM transfers LEFT JOIN sizes USING ("group")
    WHERE src <> dst AND transport <> 'LOCAL' AND scope = 'global' AND duration > 0
"""

_SLOW = f"""
    WITH
    sizes AS (SELECT "group", count(*) AS size FROM groups GROUP BY "group"),
    by_step AS (
        SELECT src, dst, transport, coalesce(name, '') AS name, coalesce(size, 0) AS size, "group", step,
               sum(bytes)::DOUBLE AS bytes, sum(duration)::DOUBLE AS time
        {_TRAFFIC} GROUP BY ALL
    ),
    kinds AS (
        SELECT *, if(name LIKE '%-total', name, split_part(name, '_', 1) || round(log2(greatest(1, bytes)))::INT) AS kind
        FROM by_step
    ),
    links AS (
        SELECT transport, kind, size, src, dst, min("group") AS "group", sum(bytes) AS bytes, sum(time) AS time,
               list(bytes / time) AS rates, sum(bytes) / sum(time) AS rate
        FROM kinds GROUP BY transport, kind, size, src, dst
    ),
    usual AS (SELECT transport, kind, size, median(bytes) AS usual FROM links GROUP BY ALL),
    alike AS (
        SELECT *, row_number() OVER (class ORDER BY rate) AS place, count(*) OVER class AS links
        FROM links JOIN usual USING (transport, kind, size)
        WHERE bytes BETWEEN usual / 4 AND usual * 4 AND bytes >= $few
        WINDOW class AS (PARTITION BY transport, kind, size)
    ),
    fast AS (
        SELECT *, median(rate) OVER (PARTITION BY transport, kind, size) AS reference FROM alike
        WHERE place > links // 2 AND links >= 3
    ),
    classes AS (
        SELECT transport, kind, size, any_value(reference) AS reference,
               1.4826 * median(abs(rate - reference)) / any_value(reference) AS noise
        FROM fast GROUP BY ALL
    ),
    slow AS (
        SELECT alike.*, reference, least($slow, 1 - 6 * noise) * reference AS least,
               len(list_filter(rates, lambda one: one < least)) / len(rates) AS often
        FROM alike JOIN classes USING (transport, kind, size) WHERE rate < least
    )
    SELECT src, dst, transport, "group", bytes, rate, reference FROM slow WHERE often >= $often
    QUALIFY count(*) OVER (PARTITION BY transport, kind, size) <= greatest(1, links // 3)
    ORDER BY transport, kind, size, src, dst
"""


@dataclass(frozen=True)
class SlowLink:
    src: int
    dst: int
    transport: str
    group: str | None
    bytes: float
    rate: float
    """Bytes / ns = GB/s."""
    reference: float


def has_links(run: Source) -> bool:
    """Whether the recording tells which rank sent to which."""
    some = f'WITH sizes AS (SELECT "group", 0 AS size FROM groups) SELECT 1 {_TRAFFIC} LIMIT 1'
    return bool(run.sql(some).fetchall())


def slow_by_class(run: Source, *, slow: float, few: float, often: float) -> list[SlowLink]:
    """Every link that is slow in one of its classes; `few` bytes say nothing, `often` is the share of steps."""
    query = _SLOW.replace("$few", repr(float(few))).replace("$slow", repr(slow)).replace("$often", repr(often))
    return [SlowLink(*row) for row in run.sql(query).fetchall()]
