"""profiler_config.json: documented fields in, one clear request out, whatever else stands in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import FormatError
from paceline.profiling.choosing import OLD_NAMES
from paceline.profiling.config_watch import ConfigFile
from paceline.profiling.dynamic_config import DEFAULTS, Request, read_request, request_of
from paceline.profiling.options import AicoreMetrics, ExportType, ProfilerActivity, ProfilerLevel
from paceline.profiling.warning import collected


def requested(**content: Any) -> tuple[Request, list[str]]:
    with collected() as said:
        return request_of(content, version="v"), said


def test_an_absent_file_is_created_with_the_documented_fields_in_their_order(tmp_path: Path) -> None:
    config = ConfigFile(tmp_path / "new" / "profiler_config.json")
    config.create()
    assert list(json.loads(config.path.read_text())) == [
        "start_step", "stop_step", "aic_metrics", "profiler_level", "analyse_mode", "activities", "export_type",
        "profile_memory", "mstx", "parallel_strategy", "with_stack", "data_simplification", "l2_cache", "analyse",
        "record_shapes", "prof_path", "mstx_domain_include", "mstx_domain_exclude", "host_sys", "sys_io",
        "sys_interconnection",
    ]  # fmt: skip
    request, said = read_request(config.path)
    assert not request.asks
    assert not said
    assert [path.name for path in config.path.parent.iterdir()] == ["profiler_config.json"]


def test_a_file_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    config = ConfigFile(tmp_path / "profiler_config.json")
    config.path.write_text('{"start_step": 3, "stop_step": 4}')
    config.create()
    assert config.path.read_text() == '{"start_step": 3, "stop_step": 4}'


def test_numbers_of_earlier_files_are_understood() -> None:
    request, said = requested(
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
    assert sum("as a number" in each for each in said) == 4


def test_the_guides_example_with_analyse_mode_alone_is_analysed() -> None:
    assert requested(start_step=2, stop_step=5, analyse_mode=0)[0].analyse
    assert not requested(start_step=2, stop_step=5, analyse_mode=0, analyse=False)[0].analyse
    assert not requested(start_step=2, stop_step=5)[0].analyse


@pytest.mark.parametrize(("start", "stop"), [(5, 2), (0, 3), (-2, 4), ("2", 5), (2, None), (True, 3), (2.0, 5)])
def test_steps_that_make_no_sense_record_nothing_and_are_said(start: object, stop: object) -> None:
    request, said = requested(start_step=start, stop_step=stop)
    assert not request.asks
    assert said


@pytest.mark.parametrize(("old", "new"), [("aicore_metrics", "aic_metrics"), ("record_shape", "record_shapes")])
def test_old_names_are_read(old: str, new: str) -> None:
    values = {"aic_metrics": "Memory", "record_shapes": True}
    request, _ = requested(start_step=1, stop_step=1, profiler_level="Level1", **{old: values[new]})
    assert getattr(request.options, new) in (AicoreMetrics.Memory, True)
    assert OLD_NAMES[old] == new


def test_unknown_fields_are_named_with_the_right_one() -> None:
    _, said = requested(start_stpe=1)
    assert said == ["field 'start_stpe' is not known and was passed over; did you mean 'start_step'?"]


def test_ranks_choose() -> None:
    request, said = requested(start_step=1, stop_step=1, ranks=[8, 0])
    assert not said
    assert [rank for rank in range(16) if request.wants(rank)] == [0, 8]
    assert requested(ranks="0")[0].wants(5)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner)))
def test_no_value_of_any_field_ends_training(value: Any) -> None:
    for name in (*DEFAULTS, *OLD_NAMES, "ranks"):
        requested(**{"start_step": 1, "stop_step": 2, name: value})


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_no_file_ends_training(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "profiler_config.json"
    path.write_bytes(data)
    try:
        read_request(path)
    except FormatError as error:
        assert str(error)


def test_a_file_cut_anywhere_leaves_the_old_request_and_the_whole_one_is_seen_again(
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
    assert "the configuration before stays in force" in caplog.text
    config.path.write_text(whole)
    second = config.poll()
    assert second is not None
    assert (second.start, second.stop) == (8, 10)
    assert config.poll() is None


def test_a_file_that_others_may_write_is_read(tmp_path: Path) -> None:
    config = ConfigFile(tmp_path / "profiler_config.json")
    config.path.write_text('{"start_step": 2, "stop_step": 5}')
    config.path.chmod(0o666)
    assert config.poll() is not None


def test_a_file_that_vanishes_and_comes_back_is_read_again(tmp_path: Path) -> None:
    config = ConfigFile(tmp_path / "profiler_config.json")
    assert config.poll() is None
    config.path.write_text('{"start_step": 2, "stop_step": 5}')
    assert config.poll() is not None
    config.path.unlink()
    assert config.poll() is None
    config.path.write_text('{"start_step": 3, "stop_step": 5}')
    assert config.poll() is not None
