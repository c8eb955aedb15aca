"""A run as msprof-analyze's `cluster_analysis_output`, the four files that MindStudio Insight opens.

    cluster_step_trace_time.csv         µs per step and rank; stage rows are the maximum of their ranks
    cluster_communication.json          ranks of the group → step → operator@group → rank → times and bandwidths
    cluster_communication_matrix.json   ranks of the group → step → operator@group → "src-dst" → one link
    communication_group.json            the groups

Ranks are global, timestamps are on each rank's own clock (Insight shows them beside the ranks' own traces), and sums
stand beside their parts as "Total Op Info@group". What the run does not know is left out, not written as 0. Rows are
sorted by DuckDB, which spills to disk, and written as they come: memory does not grow with the run.
"""

from __future__ import annotations

from pathlib import Path

from paceline.core.errors import UsageError
from paceline.core.i18n import text
from paceline.output.cluster_analysis.communication import COLLECTIVES, operator_entries
from paceline.output.cluster_analysis.groups import read_groups, register_groups, write_groups
from paceline.output.cluster_analysis.link_matrix import TRANSFERS, link_entries
from paceline.output.cluster_analysis.nested_json import write_nested
from paceline.output.cluster_analysis.operator_keys import read_rows
from paceline.output.cluster_analysis.step_trace_time import write_steps
from paceline.output.new_directory import new_directory
from paceline.output.writer import ExportOptions
from paceline.run.run import Run


def export_cluster_analysis(run: Run, target: Path) -> dict[str, int]:
    """Write the four files into a new directory; returns file → entries."""
    run.load(["ranks", "groups", "steps", "collectives", "packets", "transfers"])
    groups = read_groups(run)
    register_groups(run, groups)
    with new_directory(target) as scratch:
        written = {
            "cluster_step_trace_time.csv": write_steps(run, scratch / "cluster_step_trace_time.csv"),
            "cluster_communication.json": write_nested(
                scratch / "cluster_communication.json", operator_entries(read_rows(run, COLLECTIVES))
            ),
            "cluster_communication_matrix.json": write_nested(
                scratch / "cluster_communication_matrix.json", link_entries(read_rows(run, TRANSFERS))
            ),
        }
        if not any(written.values()):
            raise UsageError(f"{run.source}: neither steps nor communication to export")
        write_groups(groups, scratch / "communication_group.json")
    run.connection.execute("DROP TABLE exported_groups")
    return written | {"communication_group.json": len(groups)}


def unplaced_links(run: Run) -> int:
    """Links that are left out, because the ranks at their ends are known inside their communicator only."""
    return int(run.sql("SELECT count(*) FROM links WHERE scope <> 'global'").fetchall()[0][0])


class ClusterAnalysisWriter:
    def default_name(self, source: str) -> str:
        return "cluster_analysis_output"  # the name MindStudio Insight looks for

    def write(self, run: Run, target: Path, options: ExportOptions) -> str:
        if options.ranks:
            raise UsageError("--ranks does not go with --to cluster-analysis: its groups and totals need all ranks")
        written = export_cluster_analysis(run, target)
        listed = ", ".join(f"{file} {rows:,}" for file, rows in written.items())
        lines = [text("output.written.tables", options.language, target=target, tables=listed)]
        if left_out := unplaced_links(run):
            lines.append(text("output.written.links_left_out", options.language, count=f"{left_out:,}"))
        return "\n".join(lines)


CLUSTER_ANALYSIS = ClusterAnalysisWriter()
