"""Parsing of profiler options: old and new names, values of every kind, and conflicts."""

from __future__ import annotations

import re
from typing import Any

import pytest

from paceline.profiling import AicoreMetrics, ExportType, HostSystem, Profiler, ProfilerActivity, ProfilerLevel
from paceline.profiling.option_conflicts import resolve_conflicts
from paceline.profiling.option_parsing import parse_options
from paceline.profiling.options import ProfilerOptions
from paceline.profiling.warning import ProfilingWarning, collect_warnings


def chosen(**given: Any) -> tuple[ProfilerOptions, list[str]]:
    with collect_warnings() as messages:
        options, unknown = parse_options(given)
        assert not unknown
        options = resolve_conflicts(options, scheduled=False)
    return options, messages


def test_documented_defaults() -> None:
    assert ProfilerOptions().to_json() == {
        "output_path": "./data",
        "profiler_level": "Level0",
        "activities": ["CPU", "NPU"],
        "aic_metrics": "None",
        "with_stack": False,
        "profile_memory": False,
        "data_process": False,
        "parallel_strategy": False,
        "start_profile": True,
        "l2_cache": False,
        "hbm_ddr": False,
        "pcie": False,
        "sys_io": False,
        "sys_interconnection": False,
        "host_sys": [],
        "sync_enable": True,
        "data_simplification": True,
        "record_shapes": False,
        "export_type": ["text"],
        "mstx": False,
        "mstx_domain_include": [],
        "mstx_domain_exclude": [],
    }


def test_values_may_be_members_strings_or_members_of_other_enums() -> None:
    class Theirs:
        name, value = "Level1", "ACL_LEVEL_1"

    options, messages = chosen(
        profiler_level=Theirs(), aicore_metrics="Memory", activities=["CPU"], export_type=ExportType.Db
    )
    assert (options.profiler_level, options.aic_metrics) == (ProfilerLevel.Level1, AicoreMetrics.Memory)
    assert (options.activities, options.export_type) == ((ProfilerActivity.CPU,), (ExportType.Db,))
    assert chosen(host_sys=["cpu", HostSystem.MEM])[0].host_sys == (HostSystem.CPU, HostSystem.MEM)
    assert not messages


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("profiler_level", "Level9"),
        ("aic_metrics", "AicoreNine"),
        ("activities", ["TPU"]),
        ("activities", []),
        ("with_stack", 1),
        ("output_path", 3),
        ("export_type", "xml"),
        ("host_sys", ["gpu"]),
        ("mstx_domain_include", "a"),
        ("mstx_domain_include", [""]),
        ("profiler_level", 7),
    ],
)
def test_invalid_values_are_reset_with_a_warning(name: str, value: object) -> None:
    options, messages = chosen(**{name: value})
    assert getattr(options, name) == getattr(ProfilerOptions(), name)
    assert f"type of {name} should be" in messages[0]
    assert "reset to" in messages[0]


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
def test_documented_corrections_are_made_with_a_warning(
    given: dict[str, Any], expected: dict[str, Any], text: str
) -> None:
    options, messages = chosen(**given)
    assert {name: options.to_json()[name] for name in expected} == expected
    assert any(text in each for each in messages), messages


def test_schedule_disables_data_process() -> None:
    with pytest.warns(
        ProfilingWarning, match=re.escape("When 'schedule' is set, 'data_process' will be set to False.")
    ):
        assert not resolve_conflicts(ProfilerOptions(data_process=True), scheduled=True).data_process


def test_experimental_config_of_frameworks_is_read() -> None:
    class Config:
        def __init__(self) -> None:
            self._profiler_level, self._aic_metrics, self._l2_cache = ProfilerLevel.Level2, AicoreMetrics.MemoryUB, True

    options, messages = chosen(experimental_config=Config())
    assert (options.profiler_level, options.aic_metrics, options.l2_cache) == (
        ProfilerLevel.Level2,
        AicoreMetrics.MemoryUB,
        True,
    )
    assert not messages


def test_unknown_parameter_suggests_the_right_one() -> None:
    with pytest.raises(
        TypeError, match=r"unknown parameter 'profile_memroy' of Profiler; did you mean 'profile_memory'\?"
    ):
        Profiler(profile_memroy=True)
