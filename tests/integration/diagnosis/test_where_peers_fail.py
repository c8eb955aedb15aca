"""Recordings that lead other tools astray: combined sends, device waits of 0, skewed clocks, undeclared groups."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline.diagnosis.diagnose import diagnose
from paceline.diagnosis.finding import Finding
from paceline.simulate import ClusterSpec, simulate

SPEC = ClusterSpec(steps=5, seed=9)


def findings_after(root: Path, change: Callable[[dict[str, Any]], None], fault: str) -> tuple[Finding, ...]:
    """Simulate, rewrite every communication.json, diagnose."""
    simulate(root / "run", SPEC, [fault], "ascend-text")
    for path in (root / "run").rglob("communication.json"):
        content = json.loads(path.read_text())
        for step in content.values():
            change(step)
        path.write_text(json.dumps(content))
    for path in (root / "run").rglob("trace_view.json"):
        path.unlink()  # it still tells the old names
    with paceline.open(root / "run", store=root / "store") as run:
        return diagnose(run).findings


def combine_sends(step: dict[str, Any]) -> None:
    """Megatron's batched point-to-point calls: one kind of call on both sides, numbered in the order of their start."""
    times = {name: call["Communication Time Info"] for name, call in step["p2p"].items() if "@" in name}
    calls = [
        (name, step["p2p"][name]) for name in sorted(times, key=lambda name: float(times[name]["Start Timestamp(us)"]))
    ]
    renamed = {name: call for name, call in step["p2p"].items() if "@" not in name}  # the sum of all
    for number, (name, call) in enumerate(calls):
        middle, group = name.split("__")[1].split("_")[0], name.split("@")[1]
        renamed[f"hcom_batchSendRecv__{middle}_{number}_1@{group}"] = call
    step["p2p"] = renamed


def round_times(step: dict[str, Any]) -> None:
    """Whole microseconds, as some exports write them."""
    for calls in step.values():
        for call in calls.values():
            times = call["Communication Time Info"]
            if "Start Timestamp(us)" in times:
                times["Start Timestamp(us)"] = round(float(times["Start Timestamp(us)"]))
            times["Elapse Time(ms)"] = round(float(times["Elapse Time(ms)"]), 3)


def no_waits(step: dict[str, Any]) -> None:
    """Some drivers report every wait as 0."""
    for calls in step.values():
        for call in calls.values():
            times = call["Communication Time Info"]
            for key in ("Wait Time(ms)", "Synchronization Time(ms)", "Wait Time Ratio", "Synchronization Time Ratio"):
                times[key] = 0
            times["Transit Time(ms)"] = times["Elapse Time(ms)"]


@pytest.mark.parametrize("fault", ["slow-rank:11:1.25", "slow-rank:2:1.25"])
def test_a_slow_rank_in_a_pipeline_of_combined_sends(tmp_path: Path, fault: str) -> None:
    first = findings_after(tmp_path, combine_sends, fault)[0]
    assert (first.id, first.subject.ranks) == ("slow-rank", (int(fault.split(":")[1]),))


def test_a_long_stage_in_a_pipeline_of_combined_sends(tmp_path: Path) -> None:
    first = findings_after(tmp_path, combine_sends, "stage-imbalance:1:1.25")[0]
    assert (first.id, first.subject.stages) == ("stage-imbalance", (1,))


@pytest.mark.parametrize("fault", ["slow-rank:11:1.25", "slow-rank:2:1.25"])
def test_waits_reported_as_zero_hide_nobody(tmp_path: Path, fault: str) -> None:
    first = findings_after(tmp_path, no_waits, fault)[0]
    assert (first.id, first.subject.ranks) == ("slow-rank", (int(fault.split(":")[1]),))


@pytest.mark.parametrize("fault", ["slow-rank:11:1.25", "load-imbalance"])
def test_times_in_whole_microseconds(tmp_path: Path, fault: str) -> None:
    first = findings_after(tmp_path, round_times, fault)[0]
    assert first.id == fault.split(":")[0]


def test_hosts_whose_clocks_are_four_milliseconds_apart(tmp_path: Path) -> None:
    simulate(tmp_path / "run", SPEC, ["slow-rank:5:1.2", "clock-skew:1:4"], "ascend-text")
    with paceline.open(tmp_path / "run", store=tmp_path / "store") as run:
        first = diagnose(run).findings[0]
    assert (first.id, first.subject.ranks) == ("slow-rank", (5,))


def test_a_link_at_half_speed_among_three_percent_noise(tmp_path: Path) -> None:
    spec = ClusterSpec(steps=5, seed=4, noise=0.03)
    simulate(tmp_path / "run", spec, ["slow-link:3-5:2"], "ascend-text")
    with paceline.open(tmp_path / "run", store=tmp_path / "store") as run:
        first = diagnose(run).findings[0]
    assert (first.id, {(link.src, link.dst) for link in first.subject.links}) == ("slow-link", {(3, 5)})


@pytest.mark.parametrize("layout", ["mindinsight", "msadvisor"])
@pytest.mark.parametrize("fault", ["slow-rank:11:1.25", "stage-imbalance:0:1.25", "load-imbalance"])
def test_recordings_that_name_no_group_and_no_partner(tmp_path: Path, layout: str, fault: str) -> None:
    simulate(tmp_path / "run", SPEC, [fault], layout)
    with paceline.open(tmp_path / "run", store=tmp_path / "store") as run:
        first = diagnose(run).findings[0]
    assert first.id == fault.split(":")[0]
    if first.id == "slow-rank":
        assert first.subject.ranks == (11,)
