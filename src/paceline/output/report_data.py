"""Everything a report shows, gathered from a Run and its diagnosis: small tables, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from paceline.core.i18n import LANGUAGES, Language
from paceline.core.message import message_in
from paceline.core.text_encoding import printable
from paceline.diagnosis.finding import Diagnosis
from paceline.metrics.communication import collectives
from paceline.metrics.communication.communication_operators import CommunicationOperators
from paceline.metrics.memory import rank_memory
from paceline.metrics.network.links import LinkTables, packet_sizes
from paceline.metrics.rank_performance import rank_performance
from paceline.metrics.steps import step_condition
from paceline.metrics.table import Table, query
from paceline.run.run import Run

_TABLES = ("ranks", "groups", "steps", "collectives", "links", "packets", "ranks_memory")
_MOST_WARNINGS = 500


@dataclass(frozen=True)
class ReportData:
    """Facts, findings and tables of a report; `diagnoses` holds the same findings in every language."""

    diagnoses: Mapping[Language, Diagnosis]
    source: str
    formats: Sequence[str]
    layout: Mapping[str, int]
    hosts: Sequence[str]
    tables: Mapping[str, Table]
    nominal: Mapping[str, float]
    warnings: Mapping[Language, Sequence[str]]
    more_warnings: int
    all_links: int
    unplaced_links: int


def report_data(
    run: Run,
    diagnoses: Mapping[Language, Diagnosis],
    *,
    nominal: Mapping[str, float] | None = None,
    capacity_for: Callable[[int], int | None] | None = None,
    operators: Sequence[str] = (),
) -> ReportData:
    """Gather the report of a run.

    `nominal` gives the design speed of a transport in GB/s, `capacity_for` the memory of a card that holds a peak,
    `operators` the communication operators to show before all others, by name.
    """
    run.load(_TABLES)
    steps = _chosen_steps(diagnoses)
    chosen = step_condition(steps)
    ranks = _ranks(run)
    warnings = {language: _warnings(run, diagnoses, language) for language in LANGUAGES}
    most = max(map(len, warnings.values()))
    links = LinkTables(run, chosen, nominal)
    all_links, unplaced_links = links.counts()
    return ReportData(
        diagnoses=diagnoses,
        source=printable(run.source),
        formats=run.formats,
        layout=_layout(run),
        hosts=_distinct(ranks.texts["host"]),
        tables={"ranks": ranks} | _tables(run, steps, links, capacity_for, operators),
        nominal=nominal or {},
        warnings={language: found[:_MOST_WARNINGS] for language, found in warnings.items()},
        more_warnings=max(0, most - _MOST_WARNINGS),
        all_links=all_links,
        unplaced_links=unplaced_links,
    )


def _tables(
    run: Run,
    steps: tuple[int, ...],
    links: LinkTables,
    capacity_for: Callable[[int], int | None] | None,
    operators: Sequence[str],
) -> dict[str, Table]:
    performance = rank_performance(run, steps or None)
    chosen, ranks = step_condition(steps), performance.ranks.tolist()
    shown = CommunicationOperators(run, chosen, operators)
    return {
        "breakdown": performance.rank_means,
        "host_breakdown": performance.host_means,
        "cluster_breakdown": performance.cluster_mean,
        "steps": performance.step_times,
        "memory": rank_memory(run, ranks, performance.peer_groups, capacity_for),
        "collectives": collectives.collective_classes(run, chosen),
        "arrivals": collectives.arrivals(run, chosen),
        "operators": shown.names(),
        "operator_times": shown.times(),
        "operator_links": shown.links(),
        "operator_transports": shown.transports(),
        "operator_packets": shown.packets(),
        "transports": links.transports(),
        "links": links.links(),
        "host_links": links.host_links(),
        "packets": packet_sizes(run, chosen),
    }


def _ranks(run: Run) -> Table:
    return query(run, "SELECT rank, host, device, stage, format IS NOT NULL AS recorded FROM ranks ORDER BY rank")


def _layout(run: Run) -> dict[str, int]:
    """Sizes of the parallel groups: {"dp": 4, "tp": 2, "pp": 2}."""
    rows = run.sql(
        """
        SELECT kind, max(size) FROM (SELECT kind, "group", count(DISTINCT rank) AS size FROM groups GROUP BY ALL)
        WHERE kind IN ('dp', 'tp', 'pp', 'ep', 'cp') GROUP BY kind
        """
    ).fetchall()
    sizes = dict(rows)
    # Pipeline groups often hold one pair of neighbours each; the stages tell how long the chain is.
    [(stages,)] = run.sql("SELECT max(stage) + 1 FROM ranks").fetchall()
    sizes["pp"] = max(stages or 0, sizes.get("pp", 0))
    return {kind: int(sizes[kind]) for kind in ("dp", "tp", "pp", "ep", "cp") if sizes.get(kind, 0) > 1}


def _chosen_steps(diagnoses: Mapping[Language, Diagnosis]) -> tuple[int, ...]:
    """The steps that were diagnosed; none = all of them."""
    return next((tuple(diagnosis.run.steps) for diagnosis in diagnoses.values()), ())


def _warnings(run: Run, diagnoses: Mapping[Language, Diagnosis], language: Language) -> list[str]:
    """Warnings of the readers, then those that only the diagnosis has."""
    found = [printable(message_in(language, warning.sentence)) for warning in run.warnings]
    if language in diagnoses:
        found += diagnoses[language].run.warnings
    return list(dict.fromkeys(found))


def _distinct(names: Sequence[str | None]) -> list[str]:
    """In the order of their first rank."""
    return list(dict.fromkeys(name for name in names if name is not None))
