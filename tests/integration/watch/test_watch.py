"""`paceline watch`: alerts, what is read, and output, while logs grow."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import msgspec
import pytest

from paceline.core.errors import UsageError
from paceline.storage.transfer.transfer import transfer
from paceline.watch.prometheus import Endpoint, as_metrics, parse_address
from paceline.watch.render import headline, notices, watch_document
from paceline.watch.source import open_log_source
from paceline.watch.straggler import JobView, view_job
from paceline.watch.tail import FIRST_READ, LogFollower
from support.watch.logs import Writer, train


def world(folder: Path, size: int = 4) -> list[Writer]:
    return [Writer(folder, rank, size) for rank in range(size)]


def seen(folder: Path | str, **options: float) -> JobView:
    follower = LogFollower(open_log_source(folder))
    follower.poll()
    view = view_job(list(follower.jobs.values())[-1], **options)  # type: ignore[arg-type]
    assert view is not None
    return view


def paceline(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("paceline")), "watch", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_persistent_straggler_is_found_although_all_step_times_are_equal(tmp_path: Path) -> None:
    train(world(tmp_path), 60, slow={2: 1.3})
    view = seen(tmp_path)
    assert [rank.rank for rank in view.alerts] == [2]
    assert view.ranks[0].excess == pytest.approx(0.3, abs=0.02)
    assert max(rank.step_ms for rank in view.ranks) == pytest.approx(min(rank.step_ms for rank in view.ranks))


def test_healthy_job_and_single_slow_steps_raise_no_alert(tmp_path: Path) -> None:
    ranks = world(tmp_path)
    train(ranks, 30)
    train(ranks, 2, slow={1: 3.0})
    train(ranks, 20)
    assert seen(tmp_path).alerts == ()


def test_two_stragglers_are_found_and_recover(tmp_path: Path) -> None:
    ranks = world(tmp_path, 8)
    train(ranks, 60, slow={2: 1.3, 5: 1.5})
    assert {rank.rank for rank in seen(tmp_path).alerts} == {2, 5}
    train(ranks, 60, seed=2)
    assert seen(tmp_path).alerts == ()


def test_pipeline_stages_are_compared_with_ranks_of_the_same_stage(tmp_path: Path) -> None:
    ranks = world(tmp_path)
    for each in ranks:
        each.details(groups={f"pp_{each.rank % 2}": [each.rank % 2, each.rank % 2 + 2]})
    train(ranks, 60, slow={2: 2.0, 3: 2.0})
    assert seen(tmp_path).alerts == ()


def test_ranks_that_run_different_programs_are_not_compared(tmp_path: Path) -> None:
    ranks = world(tmp_path)
    for each in ranks:
        each.details(ops=["all_reduce"] * (1 if each.rank < 2 else 3))
    train(ranks, 60, slow={2: 2.0, 3: 2.0})
    assert seen(tmp_path).alerts == ()


def test_undeclared_pipelines_are_compared_within_data_parallel_groups(tmp_path: Path) -> None:
    ranks = world(tmp_path)
    for each in ranks:
        each.details(groups={"dp": [0, 1] if each.rank < 2 else [2, 3]}, ops=["send", "receive"])
    train(ranks, 60, slow={2: 2.0, 3: 2.0})
    assert seen(tmp_path).alerts == ()


def test_data_parallel_groups_do_not_divide_a_job_without_a_pipeline(tmp_path: Path) -> None:
    ranks = world(tmp_path)
    for each in ranks:
        each.details(groups={"dp": [each.rank % 2, each.rank % 2 + 2]}, ops=["all_reduce"])
    train(ranks, 60, slow={1: 2.0, 3: 2.0})
    assert {rank.rank for rank in seen(tmp_path).alerts} == {1, 3}


def test_trend_of_the_step_time_is_reported(tmp_path: Path) -> None:
    ranks = world(tmp_path)
    train(ranks, 100)
    train(ranks, 100, slow=dict.fromkeys(range(4), 1.25))
    assert seen(tmp_path).trend == pytest.approx(0.2, abs=0.02)
    assert "20 % longer than before" in headline(seen(tmp_path))


def test_each_poll_reads_only_new_bytes_and_finds_new_ranks(tmp_path: Path) -> None:
    first, second = Writer(tmp_path, 0, 3), Writer(tmp_path, 1, 3)
    train([first, second], 100)
    follower = LogFollower(open_log_source(tmp_path))
    follower.poll()
    before = follower.read_bytes
    third = Writer(tmp_path, 2, 3)
    train([first, second], 1)
    grown = sum(len(each.path.read_text().splitlines()[-1]) + 1 for each in (first, second))
    follower.poll()
    [ranks] = follower.jobs.values()
    assert follower.read_bytes - before == grown + third.path.stat().st_size
    assert {rank: len(state.steps) for rank, state in ranks.items()} == {0: 101, 1: 101, 2: 0}
    follower.poll()
    assert follower.read_bytes - before == grown + third.path.stat().st_size


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 0, 1)
    writer.raw("".join(f"[{step},{step},100000000,0,0,0]\n" for step in range(1, 30_001)))
    follower = LogFollower(open_log_source(tmp_path))
    follower.poll()
    assert follower.read_bytes < FIRST_READ + (128 << 10)
    assert seen(tmp_path).step == 30_000


def test_incomplete_line_is_read_when_it_is_complete(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 0, 1)
    train([writer], 20)
    follower = LogFollower(open_log_source(tmp_path))
    writer.raw("[21,2100000000,1000")
    follower.poll()
    writer.raw("00000,0,0,0]\n")
    follower.poll()
    [ranks] = follower.jobs.values()
    assert ranks[0].steps[-1][:3] == (21, 2_100_000_000, 100_000_000)


def test_silent_failed_and_missing_ranks_are_reported(tmp_path: Path) -> None:
    ranks = world(tmp_path, 3)
    train(ranks, 20)
    ranks[0].add_event("stall", "inside all_reduce of group 0")
    os.utime(ranks[1].path, (time.time() - 100, time.time() - 100))
    ranks[2].world = 4
    lines = [re.sub(r"\b1\d\d s ago", "100 s ago", line) for line in notices(seen(tmp_path))]
    assert lines == [
        "rank 1 (host0) stopped writing 100 s ago, after step 20",
        "rank 0 (host0): stall in step 21: inside all_reduce of group 0",
    ]
    Writer(tmp_path / "other", 0, 2).add(step_ms=1, blocked_ms=0)
    assert notices(seen(tmp_path / "other")) == ["no recording yet of rank 1 (of 2)"]


def test_jobs_are_not_mixed_and_the_newest_is_shown(tmp_path: Path) -> None:
    old = [Writer(tmp_path, rank, 2, job="old", started=5) for rank in range(2)]
    new = [Writer(tmp_path, rank, 2, job="new", started=8) for rank in range(2)]
    train(old, 60, slow={0: 2.0})
    train(new, 30)
    assert json.loads(paceline(tmp_path, "--once", "--json").stdout)["job"] == "new"
    chosen = paceline(tmp_path, "--once", "--json", "--job", "old")
    assert (chosen.returncode, json.loads(chosen.stdout)["alerts"]) == (3, [0])
    wrong = paceline(tmp_path, "--once", "--job", "other")
    assert wrong.returncode == 2
    assert "known: new, old" in wrong.stderr


def test_once_prints_a_table_and_exits_3_on_an_alert(tmp_path: Path) -> None:
    ranks = world(tmp_path)
    train(ranks, 40, slow={3: 1.5})
    done = paceline(tmp_path, "--once")
    assert done.returncode == 3
    assert "slowest rank 3 (host1)" in done.stdout.replace("\n", " ")
    assert "alert  step 40: rank 3 (host1) is persistently slow" in done.stderr
    empty = paceline(tmp_path / "rank-00000-20270101T000000.000000-1" / "nothing", "--once")
    assert empty.returncode == 2


def test_until_alert_exits_when_a_rank_becomes_slow(tmp_path: Path) -> None:
    ranks = world(tmp_path)
    train(ranks, 40)
    command = [
        str(Path(sys.executable).with_name("paceline")),
        "watch",
        str(tmp_path),
        "--until-alert",
        "--every",
        "0.1",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert "step 40" in process.stdout.readline()
        train(ranks, 60, slow={1: 1.5}, seed=3)
        _, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 3
    assert "rank 1 (host0) is persistently slow" in errors


def test_watch_ends_with_the_job(tmp_path: Path) -> None:
    ranks = world(tmp_path)
    train(ranks, 20)
    for each in ranks:
        each.add_event("closed")
    done = paceline(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("step 20 · 10")


def test_ctrl_c_exits_without_a_traceback(tmp_path: Path) -> None:
    train(world(tmp_path), 20)
    command = [str(Path(sys.executable).with_name("paceline")), "watch", str(tmp_path), "--every", "0.1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "step 20" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_bucket_is_watched_like_a_directory(bucket: str, tmp_path: Path) -> None:
    ranks = world(tmp_path / "run")
    train(ranks, 40)
    transfer(tmp_path / "run", f"s3://{bucket}/run").raise_failures()
    place = open_log_source(f"s3://{bucket}/run")
    follower = LogFollower(place)
    follower.poll()
    before = follower.read_bytes
    train(ranks, 60, slow={2: 1.4})
    transfer(tmp_path / "run", f"s3://{bucket}/run").raise_failures()
    follower.poll()
    place.close()
    view = view_job(list(follower.jobs.values())[-1])
    assert view is not None
    assert ([rank.rank for rank in view.alerts], view.step) == ([2], 100)
    assert paceline(f"s3://{bucket}/run", "--once", "--json").returncode == 3
    assert follower.read_bytes - before < sum(each.path.stat().st_size for each in ranks) * 0.65


def test_prometheus_client_reads_the_metrics(tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    train(world(tmp_path), 40, slow={1: 1.5})
    view = seen(tmp_path)
    endpoint = Endpoint("0")
    try:
        endpoint.put(view)
        assert endpoint.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(endpoint.url, timeout=600) as answer:
            text = answer.read().decode()
    finally:
        endpoint.close()
    assert text == as_metrics(view)
    samples = {
        (s.name, s.labels.get("rank")): s for f in parser.text_string_to_metric_families(text) for s in f.samples
    }
    assert samples["paceline_rank_chronic", "1"].value == 1
    assert samples["paceline_rank_chronic", "0"].value == 0
    assert samples["paceline_step", None].value == 40
    assert samples["paceline_rank_own_seconds", "1"].value == pytest.approx(0.12, rel=0.03)
    assert samples["paceline_rank_step", "3"].labels == {"job": "job", "rank": "3", "host": "host1"}


def test_invalid_addresses_and_directories_are_rejected(tmp_path: Path) -> None:
    for text in ("x", "1:2:x", "99999"):
        with pytest.raises(UsageError, match="--prometheus"):
            parse_address(text)
    with pytest.raises(UsageError, match="no such directory"):
        open_log_source(tmp_path / "nowhere")
    assert paceline(tmp_path, "--once").returncode == 2


def test_json_has_null_for_unknown_values(tmp_path: Path) -> None:
    train([Writer(tmp_path, 0, 1)], 20)
    view = json.loads(msgspec.json.encode(watch_document(seen(tmp_path))))
    assert (view["ranks"][0]["excess"], view["alerts"]) == (None, [])
