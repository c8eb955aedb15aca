"""Collectives: who arrived last, who waited how long; by class, one by one, by rank.

Arrival is the start on the cluster clock. Where no start is known, all members are taken to leave together, so the member
with the shortest stay came last: arrival = -duration. Of one collective (an *instance*, joined by group, op and sequence):

    waited       = last arrival - own arrival                       summed over the members: what the last one cost
    early        = min(duration, last arrival - own arrival)        waiting inside the call
    blocked_time = last arrival - the arrival before it             what all members could have saved; of the last member
    spread       = last arrival - first arrival

Send and receive have one partner each and no common arrival; they have no instance.

    waiting      = wait as the device recorded it; where a rank recorded none at all, its early time
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline.metrics.table import Source, Table, query

CLOCKS_AGREE_NS = 5_000_000
"""Aligned clocks are at least this exact, also where a slow link staggers the ends they are aligned by."""

GROUP_KINDS = """
    SELECT "group", any_value(kind) AS kind, count(DISTINCT rank) AS size FROM groups GROUP BY "group"
"""

COLLECTIVE_INSTANCES = f"""
    WITH arrived AS (
        SELECT *, coalesce(start, -duration) AS arrival FROM collectives
        WHERE op NOT IN ('send', 'receive') AND "group" IS NOT NULL AND sequence IS NOT NULL
    )
    SELECT "group", op, sequence, any_value(kind) AS kind, arg_min(name, rank) AS name, min(step) AS step,
           count(*) AS members, min(arrival) AS first_arrival, max(arrival) AS last_arrival,
           -- Of ranks that arrived in the same nanosecond, the lowest.
           arg_max(rank, arrival::HUGEINT * 2147483648 - rank) AS last_rank, max(arrival, 2)[2] AS arrival_before_last,
           (count(*)::HUGEINT * max(arrival) - sum(arrival))::BIGINT AS waited, max(duration) AS longest,
           min(duration) AS shortest, sum(bytes)::BIGINT AS bytes, sum(transit)::BIGINT AS transit
    FROM arrived LEFT JOIN group_kinds USING ("group")
    GROUP BY "group", op, sequence
    HAVING count(*) > 1 AND max(arrival) <= min(arrival + coalesce(duration, 0)) + {CLOCKS_AGREE_NS}
"""
"""One row per collective that several ranks recorded; ns.

No rank leaves before the last member arrives. Where the times say so, clocks are not aligned or the group is wrong: then
arrivals mean nothing, and no waiting is worked out from them.
"""

RANK_COLLECTIVES = """
    WITH summed AS (
        SELECT rank, one.step, one.op, group_kinds.kind, count(*) AS calls, sum(duration)::BIGINT AS duration,
               count(wait) AS waits,
               sum(wait)::BIGINT AS wait, sum(one.transit)::BIGINT AS transit, sum(one.bytes)::BIGINT AS bytes,
               sum(least(duration, last_arrival - coalesce(start, -duration))) FILTER (members IS NOT NULL)::BIGINT AS early,
               sum(last_arrival - coalesce(start, -duration))::BIGINT AS waited,
               count(members) AS instances, count(*) FILTER (rank = last_rank) AS last,
               sum(1.0 / members)::DOUBLE AS expected,
               sum(last_arrival - arrival_before_last) FILTER (rank = last_rank)::BIGINT AS blocked_time
        FROM collectives AS one
        LEFT JOIN collective_instances USING ("group", op, sequence)
        LEFT JOIN group_kinds ON one."group" = group_kinds."group"
        GROUP BY ALL
    )
    SELECT * EXCLUDE (waits), if(sum(wait) OVER own > 0, wait, early) AS waiting,
           if(sum(wait) OVER own > 0, waits, instances) AS split_calls
    FROM summed WINDOW own AS (PARTITION BY rank)
"""
"""One row per rank × step × operator × kind of group; ns, sums over the calls; `split_calls`: those whose waiting is known."""

WHOLE = 0.9
"""A step of which the recording splits a smaller share of the calls than this, of what it splits in the rank's best step, was
cut: by the parser's limit, or by the end of the recording."""

DERIVED: Mapping[str, str] = {
    "group_kinds": GROUP_KINDS,
    "collective_instances": COLLECTIVE_INSTANCES,
    "rank_collectives": RANK_COLLECTIVES,
}
"""In the order in which they build on each other."""


def with_derived(*names: str) -> str:
    """`WITH …` up to these tables, for a source that does not hold them."""
    last = max(list(DERIVED).index(name) for name in names)
    return "WITH " + ", ".join(f"{name} AS ({select})" for name, select in list(DERIVED.items())[: last + 1])


def rank_communication(chosen: str, otherwise: str = "false") -> str:
    """SELECT over `rank_collectives`: each rank's communication, per step, in the steps chosen (SQL on `step`).

    time, waiting, transit, blocked_time    ms per step
    calls, bytes                            per step
    waiting_share                           waiting / time, in the steps that know waiting
    bandwidth                               sum(bytes) / sum(transit), GB/s
    last                                    share of its collectives in which it arrived last
    split_steps                             the steps that all this is of, where they are others than those chosen

    Of some steps a recording may know when collectives began and ended, but neither transfer nor waiting, or only until a limit
    cut it: each number is the mean over the steps that know it whole. Where a rank knows none of the steps chosen whole,
    its numbers are of those among `otherwise` that it knows anything of.
    """
    return f"""
        WITH stepped AS (
            SELECT *, coalesce({chosen}, false) AS is_chosen, coalesce({otherwise}, false) AS is_other,
                   bool_or(waiting IS NOT NULL) OVER same_step AS is_split,
                   sum(split_calls) OVER same_step / sum(calls) OVER same_step AS share
            FROM rank_collectives WINDOW same_step AS (PARTITION BY rank, step)
        ),
        judged AS (
            SELECT *, is_split AND share < {WHOLE} * max(share) OVER (PARTITION BY rank) AS was_cut FROM stepped
        ),
        known AS (
            SELECT *, bool_or(is_chosen AND is_split AND NOT was_cut) OVER own AS any_whole,
                   NOT any_whole AND bool_or(is_other AND is_split) OVER own AS of_others
            FROM judged WINDOW own AS (PARTITION BY rank)
        ),
        counted AS (
            SELECT * REPLACE (was_cut AND any_whole AS was_cut) FROM known
            WHERE if(of_others, is_other AND is_split, is_chosen)
        ),
        summed AS (
            SELECT rank, sum(calls) AS calls, sum(duration) / 1e6 AS time,
                   sum(waiting) FILTER (NOT was_cut) / 1e6 AS waiting, sum(transit) FILTER (NOT was_cut) / 1e6 AS transit,
                   sum(bytes) FILTER (NOT was_cut) AS bytes, sum(bytes) / nullif(sum(transit), 0) AS bandwidth,
                   sum(last) / nullif(sum(instances), 0) AS last, sum(blocked_time) / 1e6 AS blocked_time,
                   sum(duration) FILTER (is_split AND NOT was_cut) / 1e6 AS split_time,
                   count(DISTINCT coalesce(step, 0)) AS steps,
                   count(DISTINCT coalesce(step, 0)) FILTER (waiting IS NOT NULL AND NOT was_cut) AS waiting_steps,
                   count(DISTINCT coalesce(step, 0)) FILTER (transit IS NOT NULL AND NOT was_cut) AS transit_steps,
                   count(DISTINCT coalesce(step, 0)) FILTER (bytes IS NOT NULL AND NOT was_cut) AS bytes_steps,
                   if(any_value(of_others), string_agg(DISTINCT step::VARCHAR, ', ' ORDER BY step::VARCHAR), NULL)
                     AS split_steps
            FROM counted GROUP BY rank
        )
        SELECT rank, calls / steps AS calls, time / steps AS time, waiting / waiting_steps AS waiting,
               transit / transit_steps AS transit, waiting / nullif(split_time, 0) AS waiting_share,
               bytes / bytes_steps AS bytes, bandwidth, last, blocked_time / steps AS blocked_time, split_steps
        FROM summed
    """


COLLECTIVES_COMPARED = """
    SELECT * EXCLUDE (longest, shortest, waited, transit), (last_arrival - first_arrival) / 1e6 AS spread,
           waited / 1e6 AS waited, longest / 1e6 AS longest, shortest / 1e6 AS shortest,
           bytes / nullif(transit, 0) AS bandwidth
    FROM collective_instances
"""
"""Each collective that several ranks recorded, ms: how far apart they arrived, who came last, what the others waited in all."""

COLLECTIVE_ARRIVALS = """
    SELECT "group", op, sequence, rank, (coalesce(start, -duration) - first_arrival) / 1e6 AS late,
           (last_arrival - coalesce(start, -duration)) / 1e6 AS waited, duration / 1e6 AS duration,
           one.transit / 1e6 AS transit, wait / 1e6 AS wait, one.bytes AS bytes, one.name AS name, one.step AS step
    FROM collectives AS one JOIN collective_instances USING ("group", op, sequence)
"""
"""Each member of each collective, ms: when it arrived after the first, how long it waited for the last, how long it stayed."""


def rank_operators(chosen: str) -> str:
    """SELECT: the communication operators of each rank by name, sums over the steps chosen, ms."""
    return f"""
        SELECT rank, op, kind, name, count(*) AS calls, sum(duration) / 1e6 AS time, max(duration) / 1e6 AS longest,
               sum(wait) / 1e6 AS wait, sum(transit) / 1e6 AS transit, sum(bytes) AS bytes,
               sum(bytes) / nullif(sum(transit), 0) AS bandwidth
        FROM collectives LEFT JOIN group_kinds USING ("group") WHERE {chosen} GROUP BY rank, op, kind, name
    """


def collective_classes(run: Source, chosen: str) -> Table:
    """Operator × kind of group; times are ms per step of one rank taking part.

    waiting_share = sum(wait) / sum(duration),  bandwidth = sum(bytes) / sum(transit)
    """
    return query(
        run,
        f"""
        {with_derived("group_kinds")},
        rows AS (SELECT collectives.*, kind, size FROM collectives LEFT JOIN group_kinds USING ("group") WHERE {chosen})
        SELECT op, coalesce(kind, '') AS kind, count(DISTINCT "group") AS groups, max(size) AS size,
               count(DISTINCT rank) AS ranks, count(*) AS calls,
               count(*) / count(DISTINCT (rank, step)) AS calls_per_step,
               sum(duration) / count(DISTINCT (rank, step)) / 1e6 AS time,
               sum(wait) / count(DISTINCT (rank, step)) / 1e6 AS wait, sum(wait) / nullif(sum(duration), 0) AS waiting_share,
               sum(transit) / count(DISTINCT (rank, step)) / 1e6 AS transit,
               sum(bytes) AS bytes, avg(bytes) AS bytes_per_call, sum(bytes) / nullif(sum(transit), 0) AS bandwidth
        FROM rows GROUP BY op, kind ORDER BY sum(duration) DESC NULLS LAST, op, kind
        """,
    )


def arrivals(run: Source, chosen: str) -> Table:
    """Per rank: in how many collectives it took part and came last, what that cost the others, how long it waited itself.

    last         = collectives in which it arrived last
    expected     = how often chance alone would make it last = sum(1 / members)
    blocked_time = last arrival - the arrival before it, summed where this rank was last, ms per step
    waited       = last arrival - own arrival, summed, ms per step
    """
    return query(
        run,
        f"""
        {with_derived("rank_collectives")}
        SELECT rank, sum(instances) AS instances, sum(last) AS last, sum(last) / sum(instances) AS last_share,
               sum(expected) AS expected, sum(expected) / sum(instances) AS expected_share,
               coalesce(sum(blocked_time), 0) / count(DISTINCT coalesce(step, 0)) / 1e6 AS blocked_time,
               sum(waited) / count(DISTINCT coalesce(step, 0)) / 1e6 AS waited
        FROM rank_collectives WHERE {chosen} AND instances > 0 GROUP BY rank ORDER BY rank
        """,
    )


def waiting_shares(run: Source) -> Table:
    """Per rank and step: which share of its time inside collectives a rank waited; receives left out, they are the bubble.

    share = sum(waiting) / sum(duration)
    """
    if _all_recorded_waiting(run):  # then `waiting` is `wait`, and no arrivals are needed
        return query(
            run,
            """
            SELECT rank, step, coalesce(sum(wait), 0) / nullif(sum(duration), 0) AS share
            FROM collectives WHERE op <> 'receive' GROUP BY rank, step
            """,
        )
    return query(
        run,
        f"""
        {with_derived("rank_collectives")}
        SELECT rank, step, coalesce(sum(waiting), 0) / nullif(sum(duration), 0) AS share
        FROM rank_collectives WHERE op <> 'receive' GROUP BY rank, step
        """,
    )


def _all_recorded_waiting(run: Source) -> bool:
    found = run.sql("SELECT coalesce(sum(wait), 0) > 0 AS recorded FROM collectives GROUP BY rank").fetchall()
    return all(recorded for (recorded,) in found)
