"""The schedule: the action of each step, and warnings about invalid parameters."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest

from paceline.profiling import ProfilerAction, schedule
from paceline.profiling.scheduling import action_of_step, step_window
from paceline.profiling.warning import ProfilingWarning

NO_WARM_UP = "Profiler won't be using warmup, this can skew profiler results"


def pattern(plan: object, steps: int = 12) -> str:
    """- nothing, W warm-up, R recorded, S recorded and saved."""
    action = action_of_step(plan)
    return "".join("-WRS"[action(step).value] for step in range(steps))


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"wait": 0, "active": 2, "repeat": 1}, "RS----------"),
        ({"wait": 1, "warmup": 1, "active": 2, "repeat": 2, "skip_first": 1}, "--WRS-WRS---"),
        ({"wait": 0, "active": 1}, "SSSSSSSSSSSS"),
        ({"wait": 2, "warm_up": 1, "active": 3, "repeat": 0}, "--WRRS--WRRS"),
    ],
)
@pytest.mark.filterwarnings(f"ignore:{NO_WARM_UP}")
def test_actions_are_as_in_the_guide(parameters: dict[str, int], expected: str) -> None:
    assert pattern(schedule(**parameters)) == expected


def test_active_below_one_is_reset_with_a_warning() -> None:
    with pytest.warns(ProfilingWarning, match=r"Parameter 'active' should be at least 1, but got 0\. reset to int 1\."):
        plan = schedule(wait=0, warmup=1, active=0)
    assert plan.active == 1


@pytest.mark.parametrize("name", ["wait", "warmup", "repeat", "skip_first"])
@pytest.mark.parametrize("value", ["1", 1.0, True, None, -1])
def test_invalid_counts_are_reset_to_zero_with_a_warning(name: str, value: object) -> None:
    parameters = {"wait": 1, "warmup": 1, "active": 1, name: value}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan = schedule(**parameters)  # type: ignore[arg-type]
    if name == "warmup" and value is None:  # not given
        assert NO_WARM_UP in str(caught[0].message)
    else:
        assert f"Parameter '{name}' should be" in str(caught[0].message)
        assert "reset to int 0" in str(caught[0].message)
    assert plan.to_dict()[name] == 0


def test_missing_warm_up_warns_at_the_line_of_the_caller() -> None:
    with pytest.warns(ProfilingWarning, match=NO_WARM_UP) as caught:
        schedule(wait=0, active=1)
    assert caught[0].filename == __file__


def test_negative_steps_are_rejected() -> None:
    with pytest.raises(ValueError, match="must be not less than 0"):
        schedule(wait=0, warmup=1, active=1)(-1)


def test_schedules_of_both_frameworks_are_converted() -> None:
    theirs = SimpleNamespace(to_dict=lambda: {"wait": 1, "active": 1, "warmup": 1, "repeat": 1, "skip_first": 0})
    assert pattern(theirs, 4) == "-WS-"
    torch_like = ["NONE", "WARMUP", "RECORD_AND_SAVE", "NONE"]
    assert pattern(lambda step: SimpleNamespace(name=torch_like[step]), 4) == "-WS-"
    with pytest.warns(ProfilingWarning) as caught:
        assert pattern(5, 2) == "SS"
    assert "schedule value is Invalid" in str(caught[0].message)


def test_step_window_includes_first_and_last_step() -> None:
    assert pattern(step_window(2, 5), 8) == "--RRRS--"
    assert step_window(3, 3)(3) is ProfilerAction.RECORD_AND_SAVE
