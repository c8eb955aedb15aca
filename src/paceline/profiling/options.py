"""Profiler options: levels, activities, metrics and switches, named as in MindSpore 2.10."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum


class ProfilerLevel(Enum):
    LevelNone = "LevelNone"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class ProfilerActivity(Enum):
    CPU = "CPU"
    NPU = "NPU"
    GPU = "GPU"


class AicoreMetrics(Enum):
    AiCoreNone = "None"
    PipeUtilization = "PipeUtilization"
    ArithmeticUtilization = "ArithmeticUtilization"
    Memory = "Memory"
    MemoryL0 = "MemoryL0"
    MemoryUB = "MemoryUB"
    ResourceConflictRatio = "ResourceConflictRatio"
    L2Cache = "L2Cache"
    MemoryAccess = "MemoryAccess"


class ExportType(Enum):
    Text = "text"
    Db = "db"


class HostSystem(Enum):
    CPU = "cpu"
    MEM = "mem"
    DISK = "disk"
    NETWORK = "network"
    OSRT = "osrt"


@dataclass(frozen=True)
class ProfilerOptions:
    """Parameters of a recording; a backend ignores what it cannot record."""

    output_path: str = "./data"
    profiler_level: ProfilerLevel = ProfilerLevel.Level0
    activities: tuple[ProfilerActivity, ...] = (ProfilerActivity.CPU, ProfilerActivity.NPU)
    aic_metrics: AicoreMetrics = AicoreMetrics.AiCoreNone
    with_stack: bool = False
    profile_memory: bool = False
    data_process: bool = False
    parallel_strategy: bool = False
    start_profile: bool = True
    l2_cache: bool = False
    hbm_ddr: bool = False
    pcie: bool = False
    sys_io: bool = False
    sys_interconnection: bool = False
    host_sys: tuple[HostSystem, ...] = ()
    sync_enable: bool = True
    data_simplification: bool = True
    record_shapes: bool = False
    export_type: tuple[ExportType, ...] = (ExportType.Text,)
    mstx: bool = False
    mstx_domain_include: tuple[str, ...] = ()
    mstx_domain_exclude: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Names and JSON values, in the documented order."""
        return {field.name: _json_value(getattr(self, field.name)) for field in fields(self)}


def _json_value(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return [_json_value(each) for each in value] if isinstance(value, tuple) else value
