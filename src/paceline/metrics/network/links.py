"""Links, transports and packet sizes; bandwidth is always sum(bytes) / sum(time).

A link's class and reference: metrics/network/slow_links.py. Beside them:

    speed       = design speed of the transport where it is known, else the 95th percentile of its busy links
    utilisation = bandwidth / speed
    steps       = steps in which its sender recorded links: totals / steps are per step
    busy        = carries at least a tenth of what the busiest link of its transport does; others show latency, not bandwidth
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline.metrics.network.slow_links import LINK_COLUMNS, with_link_steps
from paceline.metrics.table import RunTables, Source, Table, query

MOST_LINKS = 150_000
"""Above this (a dense all-to-all of 400 ranks) only the busiest links are drawn singly; host pairs stay complete."""

Nominal = Mapping[str, float]
"""Design speed of transports, GB/s."""


LINK_TOTALS = f"""
    WITH totals AS (
        SELECT "group", src, dst, scope, transport, {LINK_COLUMNS}, sum(expected) AS expected,
               sum(bytes) >= 0.1 * max(sum(bytes)) OVER (PARTITION BY transport, scope) AS busy
        FROM link_steps WHERE {{chosen}} GROUP BY "group", src, dst, scope, transport
    ),
    senders AS (
        SELECT "group", src, scope, count(DISTINCT coalesce(step, -1)) AS steps
        FROM link_steps WHERE {{chosen}} GROUP BY "group", src, scope
    ),
    speeds AS (
        SELECT transport, quantile_cont(bandwidth, 0.95) FILTER (busy) AS top, {{nominal}} AS nominal,
               coalesce(nominal, top) AS speed
        FROM totals GROUP BY transport
    )
    SELECT totals.*, steps, top, nominal, speed, bandwidth / speed AS utilisation
    FROM totals LEFT JOIN speeds ON totals.transport IS NOT DISTINCT FROM speeds.transport
    LEFT JOIN senders ON totals.src = senders.src AND totals.scope = senders.scope
        AND totals."group" IS NOT DISTINCT FROM senders."group"
"""
"""One row per link, over the steps chosen, from `link_steps`."""


_NOMINAL = "($nominal::DOUBLE[])[list_position($transports::VARCHAR[], transport)]"


class LinkTables:
    """The tables of a run's links in the steps chosen (SQL on `step`); they are compared with their classes once."""

    def __init__(self, run: RunTables, chosen: str, nominal: Nominal | None = None) -> None:
        run.load(["ranks", "groups", "transfers"])
        self._run = run
        store_links(run, chosen, nominal or {})

    def transports(self) -> Table:
        """Per transport: links, bytes, ms and GB/s; median, slowest and 95th percentile (`top`) of its busy links; speed."""
        return query(
            self._run,
            """
            SELECT transport, count(*) AS links, sum(bytes) AS bytes, sum(duration) / 1e6 AS time,
                   sum(bytes) / nullif(sum(duration), 0) AS bandwidth, median(bandwidth) FILTER (busy) AS median,
                   any_value(top) AS top, min(bandwidth) FILTER (busy) AS slowest,
                   any_value(speed) AS speed,
                   sum(bytes) / nullif(sum(duration), 0) / any_value(speed) AS utilisation,
                   any_value(nominal) IS NOT NULL AS is_nominal
            FROM link_totals GROUP BY transport ORDER BY sum(duration) DESC, transport
            """,
        )

    def links(self) -> Table:
        """Links between different ranks, those that take most time first: see the head of the file."""
        return query(
            self._run,
            f"""
            SELECT src, dst, transport, bytes, duration / 1e6 AS time, bandwidth, reference, ratio, peers, utilisation, busy
            FROM link_totals WHERE src <> dst AND scope = 'global' ORDER BY duration DESC, src, dst LIMIT {MOST_LINKS}
            """,
        )

    def host_links(self) -> Table:
        """The same summed by pair of hosts (hosts by name), complete at any size."""
        return query(self._run, f"SELECT * FROM ({host_links('link_totals')}) ORDER BY src, dst, transport")

    def counts(self) -> tuple[int, int]:
        """Links there are, and those that cannot be drawn: their ends are numbers inside an undeclared communicator."""
        counted = self._run.sql(
            """
            SELECT count(*) FILTER (scope = 'global'), count(*) FILTER (scope <> 'global') FROM link_totals
            WHERE src <> dst
            """
        )
        placed, unplaced = counted.fetchall()[0]
        return int(placed), int(unplaced)


def host_links(links: str) -> str:
    """SELECT: links (a table like `link_totals`) summed by pair of hosts and transport; bytes, ms, GB/s, shares."""
    return f"""
        WITH pairs AS (
            SELECT sender.host AS src, receiver.host AS dst, transport, count(*) AS links, sum(bytes) AS bytes,
                   sum(duration) / 1e6 AS time, sum(bytes) / nullif(sum(duration), 0) AS bandwidth,
                   if(bool_or(ratio IS NOT NULL), sum(expected) / nullif(sum(duration), 0), NULL) AS ratio,
                   any_value(speed) AS speed
            FROM {links} JOIN ranks AS sender ON src = sender.rank JOIN ranks AS receiver ON dst = receiver.rank
            WHERE src <> dst AND scope = 'global' AND sender.host IS NOT NULL AND receiver.host IS NOT NULL
            GROUP BY sender.host, receiver.host, transport
        )
        SELECT * EXCLUDE (speed), bandwidth / speed AS utilisation,
               bytes >= 0.1 * max(bytes) OVER (PARTITION BY transport) AS busy
        FROM pairs
    """


def store_links(run: RunTables, chosen: str, nominal: Nominal, *, schema: str = "temp") -> None:
    """Create the tables `link_steps` (all steps) and `link_totals` (over the steps chosen) in a schema."""
    create = f"CREATE OR REPLACE {'TEMP ' if schema == 'temp' else ''}TABLE {schema}"
    run.connection.execute(f"{create}.link_steps AS {with_link_steps(chosen)} FROM link_steps")
    totals = LINK_TOTALS.format(chosen=chosen, nominal=_NOMINAL)
    totals = totals.replace("FROM link_steps", f"FROM {schema}.link_steps")
    speeds = {"transports": list(nominal), "nominal": [float(speed) for speed in nominal.values()]}
    run.connection.execute(f"{create}.link_totals AS {totals}", speeds)


def packet_sizes(run: Source, chosen: str) -> Table:
    """Per transport and power of two: packets of [2^k, 2^(k+1)) bytes, bytes, ms, GB/s, share of the transport's time."""
    return query(
        run,
        f"""
        SELECT transport, floor(log2(packet_bytes)) AS power, sum(count) AS count, sum(packet_bytes * count) AS bytes,
               sum(duration) / 1e6 AS time, sum(packet_bytes * count) / nullif(sum(duration), 0) AS bandwidth,
               sum(duration) / nullif(sum(sum(duration)) OVER (PARTITION BY transport), 0) AS share,
               min(packet_bytes) AS smallest, max(packet_bytes) AS largest,
               sum(sum(packet_bytes * count)) OVER (PARTITION BY transport) AS total_bytes,
               sum(sum(duration)) OVER (PARTITION BY transport) / 1e6 AS total_time
        FROM packets WHERE {chosen} AND packet_bytes > 0 GROUP BY transport, power ORDER BY transport, power
        """,
    )


def packets_by_size(chosen: str) -> str:
    """SELECT: each size of packets of each transport, with its share of the transport's time; ms, GB/s."""
    return f"""
        SELECT transport, packet_bytes, sum(count) AS count, sum(packet_bytes * count) AS bytes,
               sum(duration) / 1e6 AS time, sum(duration) / sum(sum(duration)) OVER (PARTITION BY transport) AS share,
               sum(packet_bytes * count) / nullif(sum(duration), 0) AS bandwidth
        FROM packets WHERE {chosen} GROUP BY transport, packet_bytes
    """
