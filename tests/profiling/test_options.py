"""Options as people write them: names old and new, values of every kind, and what goes together."""

from __future__ import annotations

import re
from typing import Any

import pytest

from paceline.profiling import AicoreMetrics, ExportType, HostSystem, Profiler, ProfilerActivity, ProfilerLevel
from paceline.profiling.choosing import options_from
from paceline.profiling.compatibility import compatible
from paceline.profiling.options import Options
from paceline.profiling.warning import ProfilingWarning, collected


def chosen(**given: Any) -> tuple[Options, list[str]]:
    with collected() as said:
        options, unknown = options_from(given)
        assert not unknown
        options = compatible(options, scheduled=False)
    return options, said


def test_documented_defaults() -> None:
    assert Options().plain() == {
        "output_path": "./data", "profiler_level": "Level0", "activities": ["CPU", "NPU"], "aic_metrics": "None",
        "with_stack": False, "profile_memory": False, "data_process": False, "parallel_strategy": False,
        "start_profile": True, "l2_cache": False, "hbm_ddr": False, "pcie": False, "sys_io": False,
        "sys_interconnection": False, "host_sys": [], "sync_enable": True, "data_simplification": True,
        "record_shapes": False, "export_type": ["text"], "mstx": False, "mstx_domain_include": [],
        "mstx_domain_exclude": [],
    }  # fmt: skip


def test_values_may_be_members_strings_or_other_libraries_members() -> None:
    class Theirs:
        name, value = "Level1", "ACL_LEVEL_1"

    options, said = chosen(
        profiler_level=Theirs(), aicore_metrics="Memory", activities=["CPU"], export_type=ExportType.Db
    )
    assert (options.profiler_level, options.aic_metrics) == (ProfilerLevel.Level1, AicoreMetrics.Memory)
    assert (options.activities, options.export_type) == ((ProfilerActivity.CPU,), (ExportType.Db,))
    assert chosen(host_sys=["cpu", HostSystem.MEM])[0].host_sys == (HostSystem.CPU, HostSystem.MEM)
    assert not said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("profiler_level", "Level9"), ("aic_metrics", "AicoreNine"), ("activities", ["TPU"]), ("activities", []),
        ("with_stack", 1), ("output_path", 3), ("export_type", "xml"), ("host_sys", ["gpu"]),
        ("mstx_domain_include", "a"), ("mstx_domain_include", [""]), ("profiler_level", 7),
    ],
)  # fmt: skip
def test_wrong_values_are_reset_and_said(name: str, value: object) -> None:
    options, said = chosen(**{name: value})
    assert getattr(options, name) == getattr(Options(), name)
    assert f"type of {name} should be" in said[0]
    assert "reset to" in said[0]


@pytest.mark.parametrize(
    ("given", "expected", "text"),
    [
        (
            {"profiler_level": "LevelNone"},
            {"profiler_level": "Level0"},
            "when 'mstx' is disabled, 'profiler_level' cannot",
        ),
        ({"aic_metrics": "Memory"}, {"aic_metrics": "None"}, "'aic_metrics' cannot be set to other value except"),
        (
            {"profiler_level": "Level1"},
            {"aic_metrics": "PipeUtilization"},
            "'aic_metrics' cannot be set to 'AicoreMetrics.AiCoreNone', reset to 'AicoreMetrics.PipeUtilization'",
        ),
        (
            {"record_shapes": True, "activities": ["NPU"]},
            {"record_shapes": False},
            "'record_shapes' cannot be set to True",
        ),
        ({"mstx_domain_include": ["a"]}, {"mstx_domain_include": []}, "when 'mstx' is set to 'False'"),
        (
            {"mstx": True, "mstx_domain_include": ["a"], "mstx_domain_exclude": ["b"]},
            {"mstx_domain_include": ["a"], "mstx_domain_exclude": []},
            "can not be set together",
        ),
        ({"profile_communication": True}, {}, "'profile_communication' is deprecated"),
        ({"op_time": True}, {}, "'op_time' is deprecated"),
        ({"profile_framework": "all"}, {}, "'profile_framework' is deprecated"),
        ({"timeline_limit": 5}, {}, "'timeline_limit' is deprecated"),
        ({"host_stack": True}, {"with_stack": True}, "'host_stack' is deprecated"),
        ({"pcie": True}, {"pcie": True}, "'pcie' will be deprecated"),
        ({"hbm_ddr": True}, {"hbm_ddr": True}, "'hbm_ddr' will be deprecated"),
        ({"activities": 1}, {"activities": ["CPU"]}, "'activities' as a number"),
    ],
)
def test_documented_corrections_are_made_and_said(given: dict[str, Any], expected: dict[str, Any], text: str) -> None:
    options, said = chosen(**given)
    assert {name: options.plain()[name] for name in expected} == expected
    assert any(text in each for each in said), said


def test_a_schedule_switches_data_process_off() -> None:
    with pytest.warns(
        ProfilingWarning, match=re.escape("When 'schedule' is set, 'data_process' will be set to False.")
    ):
        assert not compatible(Options(data_process=True), scheduled=True).data_process


def test_frameworks_experimental_config_is_read() -> None:
    class Config:
        def __init__(self) -> None:
            self._profiler_level, self._aic_metrics, self._l2_cache = ProfilerLevel.Level2, AicoreMetrics.MemoryUB, True

    options, said = chosen(experimental_config=Config())
    assert (options.profiler_level, options.aic_metrics, options.l2_cache) == (
        ProfilerLevel.Level2,
        AicoreMetrics.MemoryUB,
        True,
    )
    assert not said


def test_an_unknown_parameter_names_the_right_one() -> None:
    with pytest.raises(TypeError, match=r"no parameter 'profile_memroy'; did you mean 'profile_memory'\?"):
        Profiler(profile_memroy=True)
