"""The torch_npu backend, tested with a fake torch_npu (the real one needs Ascend) that logs its calls.

Modelled on torch_npu 2.x: `profile` follows a schedule and warns when it is stopped while it records; the handler decides
where results go.
"""

from __future__ import annotations

import enum
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; `make test` installs it")

from paceline.profiling import Profiler, schedule, tensorboard_trace_handler


class Action(enum.Enum):
    NONE, WARMUP, RECORD, RECORD_AND_SAVE = range(4)


class Npu(ModuleType):
    """torch_npu.profiler"""

    def __init__(self) -> None:
        super().__init__("torch_npu.profiler")
        self.calls: list[Any] = []
        self.ProfilerAction = Action
        self.ProfilerActivity = enum.Enum("ProfilerActivity", ["CPU", "NPU"])
        self.ProfilerLevel = type("ProfilerLevel", (), {"Level0": 0, "Level1": 1, "Level2": 2, "Level_none": -1})
        self.AiCMetrics = type("AiCMetrics", (), {"PipeUtilization": "pipe", "Memory": "memory"})
        self.ExportType = type("ExportType", (), {"Text": "text", "Db": "db"})
        calls = self.calls

        class Config:
            def __init__(
                self,
                profiler_level: int = 0,
                aic_metrics: str = "none",
                l2_cache: bool = False,
                msprof_tx: bool = False,
                data_simplification: bool = True,
                export_type: Any = None,
            ) -> None:
                calls.append(("config", profiler_level, aic_metrics, msprof_tx, export_type))

        def handler(directory: str, worker: str | None, analyse: bool, asynchronous: bool) -> Callable[[Any], None]:
            return lambda prof: calls.append(("analyse" if analyse else "raw", prof.write(Path(directory), worker)))

        class Profile:
            def __init__(
                self,
                *,
                activities: Any,
                schedule: Any,
                on_trace_ready: Any,
                record_shapes: bool,
                profile_memory: bool,
                with_stack: bool,
                experimental_config: Any,
            ) -> None:
                self.schedule, self.ready = schedule, on_trace_ready
                self.step_num, self.current_action = 0, schedule(0)
                self.recorded: list[int] = []

            def start(self) -> None:
                self._record()

            def step(self) -> None:
                before, self.current_action = self.current_action, self.schedule(self.step_num + 1)
                self.step_num += 1
                if before is Action.RECORD_AND_SAVE:
                    self.ready(self)
                elif before is Action.RECORD and self.current_action is Action.NONE:
                    calls.append("Incorrect schedule")
                self._record()

            def __exit__(self, *_: object) -> None:
                if self.current_action is not Action.NONE:
                    calls.append("Incorrect schedule")

            def add_metadata_json(self, key: str, value: str) -> None:
                calls.append(("metadata", key, value))

            def _record(self) -> None:
                if self.current_action in (Action.RECORD, Action.RECORD_AND_SAVE):
                    self.recorded.append(self.step_num)

            def write(self, directory: Path, worker: str | None) -> list[int]:
                made = (
                    directory
                    / f"{worker or socket.gethostname()}_{os.getpid()}_2026111702000{len(calls):04d}_ascend_pt"
                )
                (made / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
                return self.recorded

        self._ExperimentalConfig, self.tensorboard_trace_handler, self.profile = Config, handler, Profile


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> Npu:
    library, package = Npu(), ModuleType("torch_npu")
    package.profiler = library  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_npu", package)
    monkeypatch.setitem(sys.modules, "torch_npu.profiler", library)
    return library


def test_torch_npu_writes_the_requested_steps_without_a_warning(npu: Npu, tmp_path: Path) -> None:
    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    handler = tensorboard_trace_handler(str(tmp_path), "worker")
    with Profiler(
        backend="torch",
        schedule=plan,
        on_trace_ready=handler,
        profiler_level="Level1",
        aic_metrics="Memory",
        export_type=["db"],
    ) as profiler:
        profiler.add_metadata("model", "gpt2")
        for _ in range(9):
            profiler.step()
    assert [entry for entry in npu.calls if entry[0] == "analyse"] == [("analyse", [2, 3]), ("analyse", [6, 7])]
    assert ("config", 1, "memory", False, ["db"]) in npu.calls
    assert "Incorrect schedule" not in npu.calls
    assert [path.name.partition("_")[0] for path in profiler.recordings] == ["worker", "worker"]
    info = json.loads((profiler.recordings[0] / "profiler_info_0.json").read_text())
    assert [step["step"] for step in info["paceline"]["steps"]] == [2, 3]


def test_start_to_stop_is_one_recording_without_a_warning(npu: Npu, tmp_path: Path) -> None:
    profiler = Profiler(backend="torch", output_path=str(tmp_path))
    profiler.stop()
    assert ("raw", [0]) in npu.calls
    assert "Incorrect schedule" not in npu.calls
