"""`paceline watch`: who is named, what is read, what is said, while logs grow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from paceline.errors import UsageError
from paceline.storage.transfer import transfer
from paceline.watch.follow import FIRST_LOOK, Follower
from paceline.watch.judge import View, judge
from paceline.watch.place import open_place
from paceline.watch.prometheus import Endpoint, as_metrics, parse_address
from paceline.watch.show import as_json, headline, notices
from watch.logs import Writer, train


def world(folder: Path, size: int = 4) -> list[Writer]:
    return [Writer(folder, rank, size) for rank in range(size)]


def seen(folder: Path | str, **options: float) -> View:
    follower = Follower(open_place(folder))
    follower.look()
    view = judge(list(follower.jobs.values())[-1], **options)  # type: ignore[arg-type]
    assert view is not None
    return view


def paceline(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("paceline")), "watch", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_chronic_straggler_is_named_although_all_steps_take_equally_long(tmp_path: Path) -> None:
    train(world(tmp_path), 60, slow={2: 1.3})
    view = seen(tmp_path)
    assert [rank.rank for rank in view.alerts] == [2]
    assert view.ranks[0].excess == pytest.approx(0.3, abs=0.02)
    assert max(rank.step_ms for rank in view.ranks) == pytest.approx(min(rank.step_ms for rank in view.ranks))


def test_a_healthy_job_and_a_one_off_alert_nobody(tmp_path: Path) -> None:
    ranks = world(tmp_path)
    train(ranks, 30)
    train(ranks, 2, slow={1: 3.0})
    train(ranks, 20)
    assert seen(tmp_path).alerts == ()


def test_two_stragglers_are_both_named_and_recover(tmp_path: Path) -> None:
    ranks = world(tmp_path, 8)
    train(ranks, 60, slow={2: 1.3, 5: 1.5})
    assert {rank.rank for rank in seen(tmp_path).alerts} == {2, 5}
    train(ranks, 60, seed=2)
    assert seen(tmp_path).alerts == ()


def test_stages_with_different_work_are_compared_with_their_own_peers(tmp_path: Path) -> None:
    ranks = world(tmp_path)
    for each in ranks:
        each.groups(**{"dp": [0, 1]} if each.rank < 2 else {"dp": [2, 3]})
    train(ranks, 60, slow={2: 2.0, 3: 2.0})
    assert seen(tmp_path).alerts == ()


def test_the_trend_is_told(tmp_path: Path) -> None:
    ranks = world(tmp_path)
    train(ranks, 100)
    train(ranks, 100, slow=dict.fromkeys(range(4), 1.25))
    assert seen(tmp_path).trend == pytest.approx(0.2, abs=0.02)
    assert "20 % slower than before" in headline(seen(tmp_path))


def test_each_look_reads_only_what_is_new_and_finds_new_ranks(tmp_path: Path) -> None:
    first, second = Writer(tmp_path, 0, 3), Writer(tmp_path, 1, 3)
    train([first, second], 100)
    follower = Follower(open_place(tmp_path))
    follower.look()
    before = follower.read_bytes
    third = Writer(tmp_path, 2, 3)
    train([first, second], 1)
    grown = sum(len(each.path.read_text().splitlines()[-1]) + 1 for each in (first, second))
    follower.look()
    [ranks] = follower.jobs.values()
    assert follower.read_bytes - before == grown + third.path.stat().st_size
    assert {rank: len(state.steps) for rank, state in ranks.items()} == {0: 101, 1: 101, 2: 0}
    follower.look()
    assert follower.read_bytes - before == grown + third.path.stat().st_size


def test_of_a_long_log_only_the_end_is_read(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 0, 1)
    writer.raw("".join(f"[{step},{step},100000000,0,0,0]\n" for step in range(1, 30_001)))
    follower = Follower(open_place(tmp_path))
    follower.look()
    assert follower.read_bytes < FIRST_LOOK + (128 << 10)
    assert seen(tmp_path).step == 30_000


def test_a_line_that_is_half_written_waits_for_its_other_half(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 0, 1)
    train([writer], 20)
    follower = Follower(open_place(tmp_path))
    writer.raw("[21,2100000000,1000")
    follower.look()
    writer.raw("00000,0,0,0]\n")
    follower.look()
    [ranks] = follower.jobs.values()
    assert ranks[0].steps[-1][:3] == (21, 2_100_000_000, 100_000_000)


def test_a_rank_that_stops_or_fails_or_never_came_is_said(tmp_path: Path) -> None:
    ranks = world(tmp_path, 3)
    train(ranks, 20)
    ranks[0].tell("stall", "inside all_reduce of group 0")
    os.utime(ranks[1].path, (time.time() - 100, time.time() - 100))
    ranks[2].world = 4
    said = notices(seen(tmp_path))
    assert said == [
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
    assert "there are: new, old" in wrong.stderr


def test_once_is_a_table_and_an_exit_code(tmp_path: Path) -> None:
    ranks = world(tmp_path)
    train(ranks, 40, slow={3: 1.5})
    done = paceline(tmp_path, "--once")
    assert done.returncode == 3
    assert "slowest rank 3 (host1)" in done.stdout.replace("\n", " ")
    assert "alert  step 40: rank 3 (host1) is a chronic straggler" in done.stderr
    empty = paceline(tmp_path / "rank-00000-20270101T000000.000000-1" / "nothing", "--once")
    assert empty.returncode == 2


def test_until_alert_ends_when_a_rank_becomes_slow(tmp_path: Path) -> None:
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
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 3
    assert "rank 1 (host0) is a chronic straggler" in errors


def test_watching_ends_with_the_job(tmp_path: Path) -> None:
    ranks = world(tmp_path)
    train(ranks, 20)
    for each in ranks:
        each.tell("closed")
    done = paceline(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("step 20 · 10")


def test_ctrl_c_is_clean(tmp_path: Path) -> None:
    train(world(tmp_path), 20)
    command = [str(Path(sys.executable).with_name("paceline")), "watch", str(tmp_path), "--every", "0.1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "step 20" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_a_bucket_is_watched_like_a_directory(bucket: str, tmp_path: Path) -> None:
    ranks = world(tmp_path / "run")
    train(ranks, 40)
    transfer(tmp_path / "run", f"s3://{bucket}/run").raise_failures()
    place = open_place(f"s3://{bucket}/run")
    follower = Follower(place)
    follower.look()
    before = follower.read_bytes
    train(ranks, 60, slow={2: 1.4})
    transfer(tmp_path / "run", f"s3://{bucket}/run").raise_failures()
    follower.look()
    place.close()
    view = judge(list(follower.jobs.values())[-1])
    assert view is not None
    assert ([rank.rank for rank in view.alerts], view.step) == ([2], 100)
    assert paceline(f"s3://{bucket}/run", "--once", "--json").returncode == 3
    assert follower.read_bytes - before < sum(each.path.stat().st_size for each in ranks) * 0.65


def test_prometheus_reads_the_same(tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    train(world(tmp_path), 40, slow={1: 1.5})
    view = seen(tmp_path)
    endpoint = Endpoint("0")
    try:
        endpoint.put(view)
        assert endpoint.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(endpoint.url, timeout=30) as answer:
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


def test_wrong_addresses_and_places_are_explained(tmp_path: Path) -> None:
    for text in ("x", "1:2:x", "99999"):
        with pytest.raises(UsageError, match="--prometheus"):
            parse_address(text)
    with pytest.raises(UsageError, match="no such directory"):
        open_place(tmp_path / "nowhere")
    assert paceline(tmp_path, "--once").returncode == 2


def test_json_says_nothing_as_null(tmp_path: Path) -> None:
    train([Writer(tmp_path, 0, 1)], 20)
    view = json.loads(json.dumps(as_json(seen(tmp_path)), allow_nan=False))
    assert (view["ranks"][0]["excess"], view["alerts"]) == (None, [])
