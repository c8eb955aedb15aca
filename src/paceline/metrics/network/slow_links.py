"""Links compared with their class: same transport, same kind of message, groups of the same size, about as many bytes.

A link carries messages of one or more kinds (operator, and size by powers of two where single messages were recorded). Of one
kind it is compared with the links of its class, if these carry between a quarter and four times their median, at least
FEW_BYTES, and are at least FEWEST_LINKS:

    rate(l, k)      = bytes / ns of link l in messages of kind k
    reference(k)    = median rate of the fast half of the class: a fault makes links slower, never faster

What people see of a link is one row, over all its kinds; traffic that cannot be compared counts as it is:

    expected        = sum over kinds of bytes / reference(k), or the time taken where the kind has no reference
    bandwidth       = bytes / time
    reference       = bytes / expected
    ratio           = bandwidth / reference = expected / time

All of it is one query: a cluster has millions of links. Which of them are at fault: metrics/network/link_model.py and the
search in diagnosis/components.
"""

from __future__ import annotations

from paceline.metrics.table import Source

FEW_BYTES = 1_000_000
"""Traffic below this says nothing about bandwidth."""
FEWEST_LINKS = 2
"""As the diagnosis (metrics/network/link_model.py): a class of two compares the slower with the faster."""

_COUNTS = "src <> dst AND transport <> 'LOCAL' AND scope = 'global' AND duration > 0"

_CLASSES = """
    sizes AS (SELECT "group", count(*) AS size FROM groups GROUP BY "group"),
    by_step AS (
        SELECT src, dst, scope, transport, coalesce(name, '') AS name, coalesce(size, 0) AS size, "group", step,
               sum(bytes)::DOUBLE AS bytes, sum(duration)::DOUBLE AS time,
               sum(bytes) FILTER ({counts})::DOUBLE AS compared_bytes
        FROM transfers LEFT JOIN sizes USING ("group") GROUP BY ALL
    ),
    traffic AS (
        SELECT *,
               if(name LIKE '%-total', name,
                  split_part(name, '_', 1) || round(log2(greatest(1, compared_bytes)))::INT) AS kind
        FROM by_step
    ),
    kinds AS (
        SELECT transport, kind, size, src, dst, min("group") AS "group", sum(compared_bytes) AS bytes, sum(time) AS time,
               sum(compared_bytes) / sum(time) AS rate
        FROM traffic WHERE compared_bytes IS NOT NULL AND {chosen} GROUP BY transport, kind, size, src, dst
    ),
    medians AS (SELECT transport, kind, size, median(bytes) AS median_bytes FROM kinds GROUP BY ALL),
    alike AS (
        SELECT *, row_number() OVER (class ORDER BY rate) AS place, count(*) OVER class AS links
        FROM kinds JOIN medians USING (transport, kind, size)
        WHERE bytes BETWEEN median_bytes / 4 AND median_bytes * 4 AND bytes >= {few}
        WINDOW class AS (PARTITION BY transport, kind, size)
    ),
    fast AS (
        SELECT *, median(rate) OVER (PARTITION BY transport, kind, size) AS reference FROM alike
        WHERE place > links // 2 AND links >= {fewest}
    ),
    classes AS (
        SELECT transport, kind, size, any_value(reference) AS reference FROM fast GROUP BY ALL
    ),
    compared AS (SELECT alike.*, reference FROM alike JOIN classes USING (transport, kind, size))
"""

_LINK_STEPS = """
    link_steps AS (
        SELECT step, if(scope = 'global', NULL, traffic."group") AS "group", src, dst, scope, transport,
               sum(traffic.bytes) AS bytes, sum(traffic.time) AS duration,
               sum(coalesce(compared_bytes / reference, traffic.time)) AS expected,
               bool_or(reference IS NOT NULL) AS is_compared, max(links) AS peers
        FROM (SELECT *, compared_bytes IS NOT NULL AS counts FROM traffic) AS traffic
        LEFT JOIN (SELECT *, true AS counts FROM compared) AS compared
          USING (counts, transport, kind, size, src, dst)
        GROUP BY ALL
    )
"""

LINK_COLUMNS = """
    sum(bytes)::BIGINT AS bytes, sum(duration)::BIGINT AS duration,
    sum(bytes) / nullif(sum(duration), 0) AS bandwidth,
    if(bool_or(is_compared), sum(bytes) / nullif(sum(expected), 0), NULL) AS reference,
    if(bool_or(is_compared), sum(expected) / nullif(sum(duration), 0), NULL) AS ratio,
    max(peers) AS peers
"""
"""What is known of a link, from its rows of `link_steps`: bytes, ns, GB/s, GB/s, share, links of its class."""


def with_link_steps(chosen: str) -> str:
    """`WITH … link_steps`: every link in every step, against the class as it is in the steps chosen (SQL on `step`).

    Rows: step, group (where src and dst are numbers inside a communicator), src, dst, scope, transport, bytes, duration,
    expected (ns), is_compared, peers.
    """
    return f"WITH {_classes(chosen)}, {_LINK_STEPS}"


def _classes(chosen: str) -> str:
    return _CLASSES.format(counts=_COUNTS, chosen=chosen, few=FEW_BYTES, fewest=FEWEST_LINKS)


def shown_link(run: Source, chosen: str, src: int, dst: int, transport: str) -> tuple[float, float] | None:
    """GB/s of a link over everything it carries, and of its class; None where it has no class."""
    rows = run.sql(
        f"""
        {with_link_steps(chosen)},
        mine AS (SELECT * FROM link_steps WHERE scope = 'global' AND src = $src AND dst = $dst AND {chosen})
        SELECT transport, bandwidth, reference FROM (SELECT transport, {LINK_COLUMNS} FROM mine GROUP BY transport)
        """,
        params={"src": src, "dst": dst},
    )
    found = {name: (bandwidth, reference) for name, bandwidth, reference in rows.fetchall()}
    bandwidth, reference = found.get(transport, (None, None))
    return None if bandwidth is None or reference is None else (float(bandwidth), float(reference))
