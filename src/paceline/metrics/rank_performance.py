"""How each rank performed: its steps, their parts, its self time, and how much that exceeds its peers' (the reference).

One object per run and choice of steps, worked out once; the diagnosis, `breakdown`, the report, the REST API and the pages
show its numbers. Definitions: metrics/steps.py (which steps count, parts), metrics/self_time.py, metrics/peers.py.

    rank_steps    one row per rank × recorded step
    rank_parts    one row per rank: the mean of each part over the steps that count
    rank_means    the same with self time, reference and excess
    host_means    one row per host: the mean over its ranks; self time, reference and excess of its median rank
    cluster_mean  one row: the mean over all ranks
    step_times    one row per step: the extremes over the ranks
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paceline.metrics.communication.collectives import waiting_shares
from paceline.metrics.communication.comm_events import PEER_TO_PEER, outside_steps
from paceline.metrics.peers import (
    Excess,
    PeerGroups,
    excess_over_peers,
    excess_undisturbed,
    peer_groups,
    program,
)
from paceline.metrics.self_time import self_time
from paceline.metrics.steps import NO_STEP, PARTS, mean_by, read_steps, recorded_whole, steady_steps, step_parts
from paceline.metrics.table import RunTables, Table
from paceline.metrics.undisturbed import records_host_only, undisturbed_time

if TYPE_CHECKING:  # only what needs a timeline imports them: `show` does without
    from paceline.metrics.timeline.rank_timeline import Timeline

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MS = 1e6
"""ns"""


@dataclass(frozen=True)
class _Events:
    """How many communication events each rank has, by step and kind."""

    rank: Ints
    step: Ints
    op: NDArray[np.object_]
    count: Ints


class RankPerformance:
    """Arrays are ranks × steps, ns; row i is `ranks[i]`, column n is `steps[n]`."""

    def __init__(self, run: RunTables, steps: tuple[int, ...] | None = None) -> None:
        run.load(["ranks", "groups", "steps", "collectives"])
        self._run = run
        self._rows = read_steps(run)
        self._chosen = steps or self._steady()

    def _steady(self) -> tuple[int, ...] | None:
        """None = every step there is."""
        numbered = self._rows.step != NO_STEP
        recorded = self._rows.step[numbered]
        steady = steady_steps(recorded, recorded_whole(self._rows)[numbered])
        return tuple(steady.tolist()) if len(steady) < len(np.unique(recorded)) else None

    @cached_property
    def timeline(self) -> Timeline:
        from paceline.metrics.timeline.rank_timeline import read_timeline

        return self._operations or read_timeline(self._run, self._chosen)

    @cached_property
    def _operations(self) -> Timeline | None:
        """Of traces that record every operation."""
        from paceline.metrics.timeline.operation_timeline import operation_timeline

        return operation_timeline(self._run, self._chosen)

    @cached_property
    def ranks(self) -> Ints:
        if self._operations is not None:
            return self._operations.events.ranks
        events = self._events.rank[self._counts(self._events.step)]
        return np.unique(np.concatenate([events, self._rows.rank[self._counts(self._rows.step)]]))

    @cached_property
    def steps(self) -> Ints:
        """The steps that count, ascending."""
        if self._operations is not None:
            return self._operations.steps
        recorded = self._rows.step[self._counts(self._rows.step) & (self._rows.step != NO_STEP)]
        return np.unique(recorded if len(recorded) else self._events.step[self._counts(self._events.step)])

    def _counts(self, steps: Ints) -> Bools:
        return np.ones(len(steps), dtype=np.bool_) if self._chosen is None else np.isin(steps, self._chosen)

    @cached_property
    def _events(self) -> _Events:
        columns = self._run.sql(
            f"""
            SELECT rank, coalesce(step, {outside_steps(self._run)}) AS step, op, count(*) AS count FROM collectives
            WHERE start IS NOT NULL AND duration IS NOT NULL GROUP BY ALL ORDER BY ALL
            """
        ).fetchnumpy()
        rank, step, count = (columns[name].astype(np.int64) for name in ("rank", "step", "count"))
        return _Events(rank, step, columns["op"], count)

    # -- peers -------------------------------------------------------------------------------------------------------

    @cached_property
    def stages(self) -> Ints:
        """Pipeline stage of each rank, as declared, else as its sends and receives show; -1 = unknown."""
        from paceline.metrics.timeline.inferred_stages import UNKNOWN, inferred_stages

        declared = dict(self._run.sql("SELECT rank, stage FROM ranks WHERE stage IS NOT NULL").fetchall())
        stages = np.array([declared.get(rank, UNKNOWN) for rank in self.ranks.tolist()], dtype=np.int64)
        talking = bool(np.isin(self._events.op.astype(str), PEER_TO_PEER).any())
        return inferred_stages(self.timeline) if talking and not (stages >= 0).any() else stages

    @cached_property
    def peer_groups(self) -> PeerGroups:
        return peer_groups(self.stages.tolist(), self._programs())

    def _programs(self) -> list[Hashable]:
        counts: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        steps: dict[int, set[int]] = defaultdict(set)
        inside = np.isin(self._events.step, self.steps)
        columns = (self._events.rank, self._events.step, self._events.op, self._events.count)
        for rank, step, op, count in zip(*(column[inside].tolist() for column in columns), strict=True):
            counts[rank][op] += count
            steps[rank].add(step)
        return [program(counts[rank], len(steps[rank])) for rank in self.ranks.tolist()]

    # -- numbers -----------------------------------------------------------------------------------------------------

    def matrix(self, values: Floats) -> Floats:
        """A column of the recorded steps as ranks × steps, nan where unknown."""
        result = np.full((len(self.ranks), len(self.steps)), np.nan)
        row, column, inside = self._places(self._rows.rank, self._rows.step)
        result[row, column] = values[inside]
        return result

    def _places(self, rank: Ints, step: Ints) -> tuple[Ints, Ints, Bools]:
        """Row and column of those that have one, and which do."""
        inside = np.isin(rank, self.ranks) & np.isin(step, self.steps)
        return np.searchsorted(self.ranks, rank[inside]), np.searchsorted(self.steps, step[inside]), inside

    @cached_property
    def _known(self) -> Bools:
        """Whether a rank recorded anything of a step."""
        known = ~np.isnan(self.matrix(np.zeros(len(self._rows.rank))))
        row, column, _ = self._places(self._events.rank, self._events.step)
        known[row, column] = True
        return known

    @cached_property
    def self_time(self) -> Floats:
        if self._operations is not None:
            return self._operations.self_time()  # tells work from waiting that no operation records
        recorded = self.matrix(self._rows.duration - self._rows.exposed)
        return self_time(recorded, self._known, self.peer_groups, lambda: self.timeline)

    @cached_property
    def excess(self) -> Excess:
        found = excess_over_peers(self.self_time, self.peer_groups)
        if not found.is_doubtful or not records_host_only(self._run):
            return found
        times = undisturbed_time(self._run, self.ranks.tolist(), self.peer_groups, self.steps.tolist())
        return replace(found, undisturbed=excess_undisturbed(times, self.peer_groups))

    # -- tables, ms --------------------------------------------------------------------------------------------------

    @cached_property
    def rank_steps(self) -> Table:
        """One row per rank × recorded step; `steady` says whether the step counts; excess only of those that do."""
        rows = self._rows
        columns = {"rank": rows.rank, "step": np.where(rows.step == NO_STEP, np.nan, rows.step)}
        columns |= {"steady": self._counts(rows.step) | (rows.step == NO_STEP)}
        columns |= {name: column / MS for name, column in self._durations.items()}
        columns |= {"self_time": self._listed(self.self_time) / MS}
        columns |= {"reference": self._listed(self.excess.reference) / MS}
        columns |= {"excess": self._listed(self.excess.relative)}
        return Table({name: column.astype(np.float64) for name, column in columns.items()}, {})

    @cached_property
    def _durations(self) -> dict[str, Floats]:
        """Of each recorded step: its duration, its parts and the bubble; ns."""
        return {"duration": self._rows.duration} | step_parts(self._rows, self._waiting_share())

    def _listed(self, values: Floats) -> Floats:
        """ranks × steps as a column of the recorded steps; steps without a number are what events call step 0."""
        result = np.full(len(self._rows.rank), np.nan)
        row, column, inside = self._places(self._rows.rank, np.maximum(self._rows.step, 0))
        result[inside] = values[row, column]
        return result

    def _waiting_share(self) -> Floats:
        """Of each recorded step; where its collectives belong to no step, of the rank."""
        found = waiting_shares(self._run).numbers
        steps = np.nan_to_num(found["step"], nan=NO_STEP)
        keys = zip(found["rank"].tolist(), steps.tolist(), strict=True)
        shares = dict(zip(keys, found["share"].tolist(), strict=True))
        rows = zip(self._rows.rank.tolist(), self._rows.step.tolist(), strict=True)
        return np.array([shares.get(row, shares.get((row[0], NO_STEP), np.nan)) for row in rows], dtype=np.float64)

    @cached_property
    def rank_parts(self) -> Table:
        """One row per rank that recorded a step that counts: duration, PARTS and bubble; needs no timeline."""
        steady = self._counts(self._rows.step) | (self._rows.step == NO_STEP)
        wanted = ("duration", *PARTS, "bubble")
        means = {name: self._durations[name][steady] / MS for name in wanted}
        ranks, means = mean_by(self._rows.rank[steady], means)
        counts = np.unique(self._rows.rank[steady], return_counts=True)[1]
        columns = {"rank": ranks, "steps": counts} | means
        return Table({name: column.astype(np.float64) for name, column in columns.items()}, {})

    @cached_property
    def rank_means(self) -> Table:
        """rank_parts with self time, reference and excess."""
        parts = self.rank_parts.numbers
        row = np.searchsorted(self.ranks, parts["rank"].astype(np.int64))
        excess = {"self_time": self.excess.median_value[row] / MS, "reference": self.excess.median_reference[row] / MS}
        return Table({**parts, **excess, "excess": self.excess.per_rank[row]}, {})

    @property
    def rank_peers(self) -> Table:
        """One row per rank: which peer group it is in, and how many of the steps that count it recorded."""
        group = np.zeros(len(self.ranks))
        for number, rows in enumerate(self.peer_groups):
            group[list(rows)] = number
        steps = (~np.isnan(self.matrix(np.zeros(len(self._rows.rank))))).sum(axis=1)
        return Table(
            {"rank": self.ranks.astype(np.float64), "peer_group": group, "steps": steps.astype(np.float64)}, {}
        )

    @cached_property
    def host_means(self) -> Table:
        """One row per host, in the order of its first rank; self time, reference and excess are those of `median_rank`."""
        hosts = dict(self._run.sql("SELECT rank, host FROM ranks").fetchall())
        means = self.rank_means.numbers
        members: dict[str, list[int]] = defaultdict(list)
        for place, rank in enumerate(means["rank"].tolist()):
            members[hosts.get(int(rank)) or ""].append(place)
        middle = [median_place(means["excess"], places) for places in members.values()]
        worst = [max(places, key=lambda place: _or_least(float(means["excess"][place]))) for places in members.values()]
        columns = {"ranks": np.array([len(places) for places in members.values()], dtype=np.float64)}
        for name in ("duration", *PARTS):
            columns[name] = np.array([means[name][places].mean() for places in members.values()], dtype=np.float64)
        columns["median_rank"], columns["worst_rank"] = means["rank"][middle], means["rank"][worst]
        columns |= {name: means[name][middle] for name in ("self_time", "reference", "excess")}
        columns["worst_excess"] = means["excess"][worst]
        return Table(columns, {"host": list(members)})

    @cached_property
    def cluster_mean(self) -> Table:
        """Duration and parts, the mean over the ranks; no row where no step was recorded."""
        means = self.rank_parts
        names = ("duration", *PARTS) if means.length else ()
        return Table({name: means.numbers[name].mean(keepdims=True) for name in names}, {})

    @cached_property
    def step_times(self) -> Table:
        """Per step that counts, over the ranks: duration and computing (covered communication included), who computed longest."""
        numbers = self.rank_steps.numbers
        chosen = (numbers["steady"] > 0) & ~np.isnan(numbers["step"])
        step, rank, duration = (numbers[name][chosen] for name in ("step", "rank", "duration"))
        computing = (numbers["compute"] + numbers["overlapped"])[chosen]
        steps = np.unique(step)
        names = [f"{what}_{which}" for what in ("step", "compute") for which in ("min", "median", "max")]
        rows: dict[str, list[float]] = {name: [] for name in (*names, "slowest")}
        for one in steps:
            here = step == one
            for name, values in (("step", duration[here]), ("compute", computing[here])):
                rows[f"{name}_min"].append(float(values.min()))
                rows[f"{name}_median"].append(float(np.median(values)))
                rows[f"{name}_max"].append(float(values.max()))
            rows["slowest"].append(float(rank[here][np.argmax(computing[here])]))
        return Table({"step": steps} | {name: np.array(column) for name, column in rows.items()}, {})


def median_place(values: Floats, places: list[int]) -> int:
    """Of these places the one with the median value (of two in the middle the larger), so that it is the number of one rank.

    >>> median_place(np.array([3.0, 9.0, 1.0, 4.0]), [0, 1, 3])
    3
    """
    order = sorted(places, key=lambda place: _or_least(float(values[place])))
    return order[len(order) // 2]


def _or_least(value: float) -> float:
    return -np.inf if np.isnan(value) else float(value)


def rank_performance(run: RunTables, steps: tuple[int, ...] | None = None) -> RankPerformance:
    """The performance of a run's ranks in all steps that count, or in the steps chosen; worked out once per open run."""
    if steps is not None:
        every = rank_performance(run)
        if tuple(every.steps.tolist()) == tuple(sorted(set(steps))):
            return every
    known = run.derived.get(("rank_performance", steps))
    if not isinstance(known, RankPerformance):
        known = run.derived["rank_performance", steps] = RankPerformance(run, steps)
    return known
