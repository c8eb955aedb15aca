"""Everything a report shows, gathered from a Run and its diagnosis: small tables, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.analysis import collectives, links, memory, steps
from paceline.analysis.table import Table, query
from paceline.run.run import Run

Diagnosis = Mapping[str, object]
"""The public JSON "paceline.diagnosis/1"."""

_TABLES = ("ranks", "groups", "steps", "collectives", "links", "packets", "ranks_memory")
_MOST_WARNINGS = 500


@dataclass(frozen=True)
class ReportData:
    """What `write_html` writes; `diagnoses` holds the same findings in every language there is a text for."""

    diagnoses: Mapping[str, Diagnosis]
    source: str
    formats: Sequence[str]
    layout: Mapping[str, int]
    hosts: Sequence[str]
    tables: Mapping[str, Table]
    nominal: Mapping[str, float]
    warnings: Sequence[str]
    more_warnings: int
    all_links: int
    unplaced_links: int


def report_data(
    run: Run, diagnoses: Mapping[str, Diagnosis], *, nominal: Mapping[str, float] | None = None
) -> ReportData:
    """Gather the report of a run; `nominal` gives the design speed of a transport in GB/s where it is known."""
    run.load(_TABLES)
    chosen = _chosen_steps(diagnoses)
    ranks = _ranks(run)
    warnings = _warnings(run, diagnoses)
    all_links, unplaced_links = links.link_counts(run, chosen)
    return ReportData(
        diagnoses=diagnoses,
        source=str(run.source),
        formats=run.formats,
        layout=_layout(run),
        hosts=_distinct(ranks.texts["host"]),
        tables={"ranks": ranks} | _tables(run, chosen),
        nominal=nominal or {},
        warnings=warnings[:_MOST_WARNINGS],
        more_warnings=max(0, len(warnings) - _MOST_WARNINGS),
        all_links=all_links,
        unplaced_links=unplaced_links,
    )


def _tables(run: Run, chosen: str) -> dict[str, Table]:
    return {
        "breakdown": steps.rank_breakdown(run, chosen),
        "steps": steps.step_times(run, chosen),
        "memory": memory.memory_peaks(run),
        "collectives": collectives.collective_classes(run, chosen),
        "arrivals": collectives.arrivals(run, chosen),
        "operators": collectives.operator_names(run, chosen),
        "operator_times": collectives.operator_times(run, chosen),
        "transports": links.transports(run, chosen),
        "links": links.links(run, chosen),
        "host_links": links.host_links(run, chosen),
        "packets": links.packet_sizes(run, chosen),
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
    if "pp" in sizes:
        # Some declare a group for each pair of neighbours instead of one for the whole pipeline.
        sizes["pp"] = max(sizes["pp"], run.sql("SELECT count(DISTINCT stage) FROM ranks").fetchall()[0][0])
    return {kind: int(sizes[kind]) for kind in ("dp", "tp", "pp", "ep", "cp") if sizes.get(kind, 0) > 1}


def _chosen_steps(diagnoses: Mapping[str, Diagnosis]) -> str:
    """The steps that were diagnosed, as SQL; rows that belong to no step always count."""
    for diagnosis in diagnoses.values():
        about = diagnosis.get("run")
        steps = about.get("steps") if isinstance(about, Mapping) else None
        if isinstance(steps, Sequence) and steps and all(isinstance(step, int) for step in steps):
            return f"(step IS NULL OR step IN ({', '.join(str(step) for step in steps)}))"
    return "true"


def _warnings(run: Run, diagnoses: Mapping[str, Diagnosis]) -> list[str]:
    """What the reader noticed, then what only the diagnosis says."""
    said = [str(warning) for warning in run.warnings]
    for diagnosis in diagnoses.values():
        about = diagnosis.get("run")
        more = about.get("warnings") if isinstance(about, Mapping) else None
        if isinstance(more, Sequence):
            said += [str(text) for text in more]
    return list(dict.fromkeys(said))


def _distinct(names: Sequence[str | None]) -> list[str]:
    """In the order of their first rank."""
    return list(dict.fromkeys(name for name in names if name is not None))
