"""Links, transports and packet sizes; bandwidth is always sum(bytes) / sum(time)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paceline.analysis.table import Source, Table, query

MOST_LINKS = 150_000
"""Above this (a dense all-to-all of 400 ranks) only the busiest links are drawn singly; host pairs stay complete."""


def transports(run: Source, chosen: str) -> Table:
    """Per transport: links, bytes, ms and GB/s; `usual` and `top` are the median and 95th percentile of its links.

    Links that carry under a tenth of the busiest are slow by nature (latency, not bandwidth) and judge nobody.
    """
    return query(
        run,
        f"""
        WITH {_WHOLE.format(chosen=chosen)}
        SELECT transport, count(*) AS links, sum(bytes) AS bytes, sum(duration) / 1e6 AS time,
               sum(bytes) / nullif(sum(duration), 0) AS bandwidth, median(bandwidth) FILTER (busy) AS usual,
               quantile_cont(bandwidth, 0.95) FILTER (busy) AS top, min(bandwidth) FILTER (busy) AS slowest
        FROM whole GROUP BY transport ORDER BY sum(duration) DESC, transport
        """,
    )


def links(run: Source, chosen: str) -> Table:
    """Links between different ranks: src, dst, transport, bytes, ms; the busiest first."""
    return query(
        run,
        f"""
        WITH {_WHOLE.format(chosen=chosen)}
        SELECT src, dst, transport, bytes, duration / 1e6 AS time FROM whole
        WHERE src <> dst AND scope = 'global' ORDER BY duration DESC, src, dst LIMIT {MOST_LINKS}
        """,
    )


def link_matrix(run: Source, chosen: str, nominal: Mapping[str, float] | None = None) -> Table:
    """Links by transport and size of their messages: bytes, ms, GB/s, and the share of the nominal speed they reach.

        class       = messages of [4^k, 4^(k+1)) bytes, `power` = 4^k; nan where only sums of many messages were recorded
        bandwidth   = sum(bytes) / sum(duration)
        utilisation = bandwidth / nominal speed of the transport          (nan where `nominal` does not tell it)
        of_class    = bandwidth / median bandwidth of the links of its transport and class

    Links of one class are comparable: small messages are slow by nature, whatever the link.
    """
    table = query(
        run,
        f"""
        WITH
        sized AS (
            SELECT *, if(sequence IS NULL, NULL, 4 ** floor(log2(greatest(bytes, 1)) / 2)) AS power FROM transfers
            WHERE {chosen} AND src <> dst AND scope = 'global' AND duration > 0
        ),
        summed AS (
            SELECT src, dst, transport, power, count(*) AS messages, sum(bytes)::DOUBLE AS bytes,
                   sum(duration) / 1e6 AS time, sum(bytes) / sum(duration) AS bandwidth
            FROM sized GROUP BY ALL
        )
        SELECT *, bandwidth / nullif(median(bandwidth) OVER (PARTITION BY transport, power), 0) AS of_class
        FROM summed ORDER BY transport, power, src, dst
        """,
    )
    speeds = nominal or {}
    known = np.array([speeds.get(name or "", np.nan) for name in table.texts.get("transport", ())], dtype=np.float64)
    return Table({**table.numbers, "utilisation": table.numbers["bandwidth"] / known}, table.texts)


def host_links(run: Source, chosen: str) -> Table:
    """The same summed by pair of hosts (hosts by name), complete at any size."""
    return query(
        run,
        f"""
        WITH {_WHOLE.format(chosen=chosen)}
        SELECT sender.host AS src, receiver.host AS dst, transport, count(*) AS links, sum(bytes) AS bytes,
               sum(duration) / 1e6 AS time
        FROM whole JOIN ranks AS sender ON src = sender.rank JOIN ranks AS receiver ON dst = receiver.rank
        WHERE src <> dst AND scope = 'global' AND sender.host IS NOT NULL AND receiver.host IS NOT NULL
        GROUP BY ALL ORDER BY ALL
        """,
    )


def link_counts(run: Source, chosen: str) -> tuple[int, int]:
    """Links there are, and those that cannot be drawn: their ends are numbers inside an undeclared communicator."""
    counted = run.sql(
        f"""
        WITH {_WHOLE.format(chosen=chosen)}
        SELECT count(*) FILTER (scope = 'global'), count(*) FILTER (scope <> 'global') FROM whole WHERE src <> dst
        """
    )
    placed, unplaced = counted.fetchall()[0]
    return int(placed), int(unplaced)


def packet_sizes(run: Source, chosen: str) -> Table:
    """Per transport and power of two: packets of [2^k, 2^(k+1)) bytes, their bytes and ms."""
    return query(
        run,
        f"""
        SELECT transport, floor(log2(packet_bytes)) AS power, sum(count) AS count, sum(packet_bytes * count) AS bytes,
               sum(duration) / 1e6 AS time, min(packet_bytes) AS smallest, max(packet_bytes) AS largest
        FROM packets WHERE {chosen} AND packet_bytes > 0 GROUP BY ALL ORDER BY transport, power
        """,
    )


_WHOLE = """
        summed AS (
            SELECT "group", src, dst, scope, transport, sum(bytes) AS bytes, sum(duration) AS duration,
                   sum(bytes) / nullif(sum(duration), 0) AS bandwidth
            FROM links WHERE {chosen} GROUP BY ALL
        ),
        whole AS (SELECT *, bytes >= 0.1 * max(bytes) OVER (PARTITION BY transport, scope) AS busy FROM summed)"""
