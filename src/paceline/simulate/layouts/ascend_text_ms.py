"""The text output of MindSpore's profiler since 2.2: *_ascend_ms directories, with slightly different names."""

from __future__ import annotations

from pathlib import Path

from paceline.simulate.layouts import minddata
from paceline.simulate.layouts.ascend_text import AscendText, group_info, write_json, write_text
from paceline.simulate.layouts.dialect import MINDSPORE
from paceline.simulate.layouts.mindinsight import write_compact_json
from paceline.simulate.recording import Recording


class AscendTextMs(AscendText):
    dialect = MINDSPORE

    def write(self, recording: Recording) -> Path:
        path = super().write(recording)
        output, rank = path.parent, recording.rank
        write_text(output / "dataset.csv", dataset(recording))
        write_text(output / f"minddata_pipeline_raw_{rank}.csv", minddata.pipeline_raw(recording))
        summary = minddata.summary(recording)
        write_compact_json(output / f"minddata_pipeline_summary_{rank}.json", summary)
        rows = (",".join([key, *(str(value).replace(",", ";") for value in values)]) for key, values in summary.items())
        write_text(output / f"minddata_pipeline_summary_{rank}.csv", "\n".join([*rows, ""]))
        return path

    def _write_identity(self, recording: Recording, root: Path) -> None:
        rank = recording.rank
        info = {
            "profiler_parameters": {
                "profiler_level": "Level1",
                "activities": ["CPU", "NPU"],
                "data_process": True,
                "profile_memory": True,
                "l2_cache": True,
            },
            "ms_profiler_info": {"rank_id": rank, "device_id": self.cluster.device(rank)},
            "cann_profiler_info": {},
            "analysis_cost_time": {},
            "ms_version": "2.7.0",
            "cann_version": "8.3.RC1",
            "jit_level": "O0",
        }
        write_json(root / f"profiler_info_{rank}.json", info)
        if self.cluster.spec.declare_groups:
            write_json(root / "profiler_metadata.json", {"parallel_group_info": group_info(recording)})


def dataset(recording: Recording) -> str:
    """dataset.csv: times of the data pipeline's operators, in µs."""
    steps = len(recording.steps.number)
    wait = float((recording.steps.ready - recording.steps.start).mean() / 1000)
    rows = (
        ("Pipeline", "Batch", round(wait * 0.1, 3)),
        ("Pipeline", "Map", round(wait * 0.8, 3)),
        ("Pipeline", "Generator", round(wait * 0.1, 3)),
        ("DeviceQueue", "Push", 12.0),
    )
    lines = (f"{operation},{stage},{steps},{time}," for operation, stage, time in rows)
    return "\n".join(["Operation,Stage,Occurrences,Avg. time (us),Custom Info", *lines, ""])
