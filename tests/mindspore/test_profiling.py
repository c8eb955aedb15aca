"""Profiling with the real MindSpore 2.10 on CPU: exactly the requested steps, in every form, with MindSpore's rules."""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
JOB = HERE / "mindspore_job.py"
WAYS = ("plain_loop", "plain_model", "schedule_loop", "window_model", "guides_model", "dynamic_loop", "dynamic_model")
UPDATES_PER_STEP = 2
"""The SGD operator runs once for the weights and once for the bias."""


def run(*words: object, **more: str) -> str:
    foreign = ("RANK", "WORLD_SIZE", "MASTER_", "MS_", "SLURM_")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    source = str(HERE.parents[1] / "src")
    done = subprocess.run(
        [str(word) for word in words],
        env={**plain, "PYTHONPATH": source, **more},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ways")
    (folder / "messages.txt").write_text(run(sys.executable, "-W", "always", JOB, folder, *WAYS))
    return folder


def recordings(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*_ascend_ms") if path.is_dir())


def updates(recording: Path) -> int:
    """How often the optimizer's operator ran, from MindSpore's own file."""
    [path] = recording.glob("FRAMEWORK/cpu_op_execute_timestamp_0.txt")
    rows = (line.split(";") for line in path.read_text().splitlines())
    return sum(len(row[2].split()) for row in rows if re.search(r"(^|/)SGD(-op\d+)?$", row[0]))


def steps(recording: Path) -> list[int]:
    [path] = recording.glob("ASCEND_PROFILER_OUTPUT/trace_view.json")
    names = (str(event["name"]) for event in json.loads(path.read_text()))
    return [int(name.partition("#")[2]) for name in names if name.startswith("ProfilerStep#")]


def check(recording: Path, expected: list[int]) -> None:
    """Exactly these steps, by our step events and by the operators MindSpore executed."""
    assert steps(recording) == expected
    assert updates(recording) == UPDATES_PER_STEP * len(expected)
    info = json.loads((recording / "profiler_info_0.json").read_text())
    assert [step["step"] for step in info["paceline"]["steps"]] == expected
    assert info["ms_version"] == "2.10.0"


def test_schedule_records_its_active_steps(trained: Path) -> None:
    first, second = recordings(trained / "schedule_loop")
    check(first, [3, 4])
    check(second, [7, 8])
    for each in (first, second):
        assert json.loads((each / "profiler_metadata.json").read_text()) == {"model": "one layer"}
        assert (each / "FRAMEWORK" / "cpu_ms_memory_record_0.txt").exists()


def test_the_guides_own_callback_records_its_steps(trained: Path) -> None:
    [recording] = recordings(trained / "guides_model")
    check(recording, [2, 3, 4, 5])


def test_callback_records_from_start_step_to_stop_step(trained: Path) -> None:
    [recording] = recordings(trained / "window_model")
    check(recording, [2, 3, 4, 5])


@pytest.mark.parametrize("way", ["dynamic_loop", "dynamic_model"])
def test_rewritten_configuration_records_the_same_steps_in_a_loop_and_as_a_callback(trained: Path, way: str) -> None:
    found = {path.parent.name: path for path in recordings(trained / way)}
    assert list(found) == ["rank0_start2_stop5", "rank0_start8_stop10"]
    check(found["rank0_start2_stop5"], [2, 3, 4, 5])
    check(found["rank0_start8_stop10"], [8, 9, 10])
    assert "the previous configuration stays in force" in (trained / "messages.txt").read_text()


def test_training_results_are_bit_identical(trained: Path) -> None:
    weights = {way: (trained / f"{way}.weights").read_text() for way in WAYS}
    assert weights["schedule_loop"] == weights["dynamic_loop"] == weights["plain_loop"]
    assert weights["window_model"] == weights["dynamic_model"] == weights["plain_model"]


def test_mindspore_gives_no_false_warning(trained: Path) -> None:
    """Stopped the normal way, MindSpore warns "may result in incomplete parsed data" about complete recordings."""
    assert "Incorrect schedule" not in (trained / "messages.txt").read_text()


@pytest.mark.parametrize("way", ["plain_loop", "plain_model"])
def test_unchanged_script_records_the_requested_steps(trained: Path, tmp_path: Path, way: str) -> None:
    """With the environment variable; importing paceline.profiling in the script must not start a second profiler."""
    paceline = (sys.executable, "-m", "paceline.cli.main", "run-profiled", "-o", tmp_path / "data")
    run(*paceline, "--start-step", 2, "--stop-step", 4, sys.executable, JOB, tmp_path, way)
    [recording] = recordings(tmp_path / "data")
    check(recording, [2, 3, 4])
    assert (tmp_path / f"{way}.weights").read_text() == (trained / f"{way}.weights").read_text()


def test_unchanged_script_without_steps_is_profiled_by_mindspore(trained: Path, tmp_path: Path) -> None:
    asked = json.dumps({"start": True, "aicore_metrics": "Memory", "profiler_level": "Level1", "output_pth": "x"})
    paceline = (sys.executable, "-m", "paceline.cli.main", "run-profiled", "-o", tmp_path / "data")
    messages = run(*paceline, sys.executable, JOB, tmp_path, "plain_loop", MS_PROFILER_OPTIONS=asked)
    assert "unknown key 'output_pth' was ignored; did you mean 'output_path'?" in messages
    assert "key 'aicore_metrics' is now called 'aic_metrics'" in messages
    [recording] = recordings(tmp_path / "data")
    assert updates(recording) == UPDATES_PER_STEP * 12
    assert (tmp_path / "plain_loop.weights").read_text() == (trained / "plain_loop.weights").read_text()


@pytest.mark.timeout(2400)
def test_diagnose_finds_the_slowed_of_two_ranks(tmp_path: Path) -> None:
    """Up to three recordings: where other programs take the cores, the times are theirs."""
    named = [_first_named(tmp_path / "0")]
    while named[-1] != [1] and len(named) < 3:
        named.append(_first_named(tmp_path / str(len(named))))
    assert named[-1] == [1], named


def _first_named(folder: Path) -> list[int]:
    """The ranks of the first finding about a new recording of two ranks, the second slowed."""
    folder.mkdir()
    msrun = Path(sys.executable).with_name("msrun")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = (msrun, "--worker_num=2", "--local_worker_num=2", f"--master_port={port}", f"--log_dir={folder / 'log'}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run(*launch, "--join=True", HERE / "two_ranks.py", folder / "data", PATH=path, OMP_NUM_THREADS="1")
    found = recordings(folder / "data")
    assert [steps(each) for each in found] == [list(range(3, 15))] * 2
    command = (sys.executable, "-m", "paceline.cli.main", "diagnose", folder / "data", "--json", "-")
    messages = run(*command, "--store", folder / "store")
    result = json.loads(messages[messages.index("{") : messages.rindex("}") + 1])
    assert result["run"]["ranks"] == 2
    assert result["findings"], result["run"]
    return list(result["findings"][0]["subject"]["ranks"])


# -- MindSpore's own rules as the oracle --------------------------------------------------------------------------------


def test_every_schedule_equals_mindspores() -> None:
    from mindspore.profiler.schedule import Schedule as Theirs

    from paceline.profiling import schedule

    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for wait, active, warmup, repeat, skip in itertools.product(
            (0, 1, 3, -1), (0, 1, 3), (0, 2), (0, 1, 2), (0, 2)
        ):
            given = {"wait": wait, "active": active, "warmup": warmup, "repeat": repeat, "skip_first": skip}
            ours, theirs = schedule(**given), Theirs(**given)
            assert [ours(step).name for step in range(20)] == [theirs(step).name for step in range(20)], given
            assert ours.to_dict() == theirs.to_dict()
    logging.disable(logging.NOTSET)


def test_every_combination_of_options_is_corrected_as_mindspore_does() -> None:
    from mindspore.profiler.common import constant
    from mindspore.profiler.common.profiler_parameters import ProfilerParameters

    from paceline.profiling.option_conflicts import resolve_conflicts
    from paceline.profiling.option_parsing import parse_options
    from paceline.profiling.warning import collect_warnings

    for given in _combinations():
        theirs_given = {
            **given,
            "profiler_level": constant.ProfilerLevel(given["profiler_level"]),
            "aic_metrics": constant.AicoreMetrics(given["aic_metrics"]),
            "activities": [constant.ProfilerActivity(each) for each in given["activities"]],
        }
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            theirs = ProfilerParameters(**theirs_given).original_params
        with collect_warnings() as messages:
            ours = resolve_conflicts(parse_options(given)[0], scheduled=False).to_json()
        for name in ("profiler_level", "aic_metrics", "record_shapes", "mstx_domain_include", "mstx_domain_exclude"):
            assert ours[name] == theirs[name], (name, given)
        assert [_words(text) for text in messages] == [_words(str(each.message)) for each in caught], given


def _combinations() -> list[dict[str, Any]]:
    return [
        {
            "profiler_level": level,
            "aic_metrics": metrics,
            "activities": activities,
            "record_shapes": shapes,
            "mstx": mstx,
            "mstx_domain_include": include,
            "mstx_domain_exclude": exclude,
        }
        for level, metrics, activities, shapes, mstx, include, exclude in itertools.product(
            ("LevelNone", "Level0", "Level1", "Level2"),
            ("None", "Memory"),
            (["CPU"], ["NPU"]),
            (False, True),
            (False, True),
            ([], ["a"]),
            ([], ["b"]),
        )
    ]


def _words(text: str) -> str:
    return re.sub(r"\W+", " ", text).lower().strip()
