"""profiler_config.json: parsing the documented fields into a request, with any other content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import FormatError
from paceline.profiling.config_watcher import ConfigFile
from paceline.profiling.dynamic_config import DEFAULTS, RecordRequest, parse_request, read_request
from paceline.profiling.option_parsing import OLD_NAMES
from paceline.profiling.options import AicoreMetrics, ExportType, ProfilerActivity, ProfilerLevel
from paceline.profiling.warning import collect_warnings


def requested(**content: Any) -> tuple[RecordRequest, list[str]]:
    with collect_warnings() as messages:
        return parse_request(content, version="v"), messages


def test_missing_file_is_created_with_the_documented_fields_in_order(tmp_path: Path) -> None:
    config = ConfigFile(tmp_path / "new" / "profiler_config.json")
    config.create()
    assert list(json.loads(config.path.read_text())) == [
        "start_step",
        "stop_step",
        "aic_metrics",
        "profiler_level",
        "analyse_mode",
        "activities",
        "export_type",
        "profile_memory",
        "mstx",
        "parallel_strategy",
        "with_stack",
        "data_simplification",
        "l2_cache",
        "analyse",
        "record_shapes",
        "prof_path",
        "mstx_domain_include",
        "mstx_domain_exclude",
        "host_sys",
        "sys_io",
        "sys_interconnection",
    ]
    request, messages = read_request(config.path)
    assert not request.is_active
    assert not messages
    assert [path.name for path in config.path.parent.iterdir()] == ["profiler_config.json"]


def test_existing_file_is_not_changed(tmp_path: Path) -> None:
    config = ConfigFile(tmp_path / "profiler_config.json")
    config.path.write_text('{"start_step": 3, "stop_step": 4}')
    config.create()
    assert config.path.read_text() == '{"start_step": 3, "stop_step": 4}'


def test_numbers_of_older_files_are_read() -> None:
    request, messages = requested(
        start_step=2,
        stop_step=5,
        profiler_level=1,
        activities=1,
        aic_metrics=2,
        export_type=2,
        analyse_mode=1,
        analyse=True,
    )
    options = request.options
    assert (options.profiler_level, options.activities) == (ProfilerLevel.Level1, (ProfilerActivity.CPU,))
    assert (options.aic_metrics, options.export_type) == (AicoreMetrics.Memory, (ExportType.Text, ExportType.Db))
    assert (request.analyse, request.asynchronous) == (True, True)
    assert sum("as a number" in each for each in messages) == 4


def test_analyse_mode_alone_requests_analysis() -> None:
    assert requested(start_step=2, stop_step=5, analyse_mode=0)[0].analyse
    assert not requested(start_step=2, stop_step=5, analyse_mode=0, analyse=False)[0].analyse
    assert not requested(start_step=2, stop_step=5)[0].analyse


@pytest.mark.parametrize(("start", "stop"), [(5, 2), (0, 3), (-2, 4), ("2", 5), (2, None), (True, 3), (2.0, 5)])
def test_invalid_steps_record_nothing_and_warn(start: object, stop: object) -> None:
    request, messages = requested(start_step=start, stop_step=stop)
    assert not request.is_active
    assert messages


@pytest.mark.parametrize(("old", "new"), [("aicore_metrics", "aic_metrics"), ("record_shape", "record_shapes")])
def test_old_names_are_read(old: str, new: str) -> None:
    values = {"aic_metrics": "Memory", "record_shapes": True}
    request, _ = requested(start_step=1, stop_step=1, profiler_level="Level1", **{old: values[new]})
    assert getattr(request.options, new) in (AicoreMetrics.Memory, True)
    assert OLD_NAMES[old] == new


def test_unknown_field_suggests_the_right_one() -> None:
    _, messages = requested(start_stpe=1)
    assert messages == ["unknown field 'start_stpe' was ignored; did you mean 'start_step'?"]


def test_ranks_field_selects_ranks() -> None:
    request, messages = requested(start_step=1, stop_step=1, ranks=[8, 0])
    assert not messages
    assert [rank for rank in range(16) if request.includes(rank)] == [0, 8]
    assert requested(ranks="0")[0].includes(5)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner)))
def test_no_field_value_raises(value: Any) -> None:
    for name in (*DEFAULTS, *OLD_NAMES, "ranks"):
        requested(**{"start_step": 1, "stop_step": 2, name: value})


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_no_file_content_raises(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "profiler_config.json"
    path.write_bytes(data)
    try:
        read_request(path)
    except FormatError as error:
        assert str(error)


def test_truncated_file_keeps_the_old_request_and_the_complete_one_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = ConfigFile(tmp_path / "profiler_config.json")
    config.path.write_text(json.dumps({**DEFAULTS, "start_step": 2, "stop_step": 5}))
    first = config.poll()
    assert first is not None
    whole = json.dumps({**DEFAULTS, "start_step": 8, "stop_step": 10})
    for length in range(len(whole)):
        config.path.write_text(whole[:length])
        assert config.poll() is None
        assert config.request is first
    assert "the previous configuration stays in force" in caplog.text
    config.path.write_text(whole)
    second = config.poll()
    assert second is not None
    assert (second.start, second.stop) == (8, 10)
    assert config.poll() is None


def test_world_writable_file_is_read(tmp_path: Path) -> None:
    config = ConfigFile(tmp_path / "profiler_config.json")
    config.path.write_text('{"start_step": 2, "stop_step": 5}')
    config.path.chmod(0o666)
    assert config.poll() is not None


def test_removed_and_recreated_file_is_read_again(tmp_path: Path) -> None:
    config = ConfigFile(tmp_path / "profiler_config.json")
    assert config.poll() is None
    config.path.write_text('{"start_step": 2, "stop_step": 5}')
    assert config.poll() is not None
    config.path.unlink()
    assert config.poll() is None
    config.path.write_text('{"start_step": 3, "stop_step": 5}')
    assert config.poll() is not None
