"""Input of msadvisor: {rank}/profiler/ with HCCL's task traces, the timeline and the step trace."""

from __future__ import annotations

from pathlib import Path

from paceline.simulate.cluster import Cluster
from paceline.simulate.layouts.ascend_communication import comm_ops_of
from paceline.simulate.layouts.ascend_names import HCOM
from paceline.simulate.layouts.ascend_text import write_json_array, write_text
from paceline.simulate.layouts.mindspore_hccl import iteration_trace
from paceline.simulate.layouts.mindspore_steps import step_trace
from paceline.simulate.layouts.mindspore_timeline import timeline
from paceline.simulate.recording import Recording


class MsAdvisor:
    def __init__(self, out: Path, cluster: Cluster) -> None:
        self.out, self.cluster = out, cluster

    def write(self, recording: Recording) -> Path:
        rank = recording.rank
        root = self.out / str(rank) / "profiler"
        root.mkdir(parents=True, exist_ok=True)
        write_text(root / f"step_trace_raw_{rank}_detail_time.csv", step_trace(recording))
        write_json_array(root / f"ascend_timeline_display_{rank}.json", timeline(recording))
        self._write_traces(recording, root / f"hccl_info_{rank}")
        return root / f"step_trace_raw_{rank}_detail_time.csv"

    def finish(self) -> None:
        """There are no files of the whole cluster."""

    def _write_traces(self, recording: Recording, root: Path) -> None:
        """<type>_<order>_1/iter<k>.trace: order counts the operators of a type, k their executions."""
        folders, seen = [], dict[str, int]()
        for message in recording.program.messages:
            seen[message.op] = seen.get(message.op, 0) + 1
            folders.append(root / f"{HCOM[message.op]}_{seen[message.op]}_1")
            folders[-1].mkdir(parents=True)
        for iteration, step in enumerate(recording.steps.number.tolist(), start=1):
            for comm_op in comm_ops_of(recording, step):
                write_text(
                    folders[comm_op.message] / f"iter{iteration}.trace", iteration_trace(recording, comm_op, iteration)
                )
