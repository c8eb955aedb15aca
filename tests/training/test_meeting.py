"""Ranks of one host: one fetches for all; whoever waits, waits for a bounded time and is told what happened."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from paceline.errors import PacelineError
from paceline.storage.transfer import transfer
from paceline.training import Ranks
from paceline.training.meeting import Meeting
from storage.faults import Hold, Proxy
from training.running import Training, stored, wait_for

SAVE = {"type": "CheckpointMonitor", "prefix": "gpt", "save_checkpoint_steps": 1}


@pytest.fixture
def data(faulty: str, tmp_path: Path) -> str:
    (tmp_path / "data").mkdir()
    for number in range(5):
        (tmp_path / "data" / f"{number}.txt").write_text(f"text {number}")
    transfer(tmp_path / "data", f"s3://{faulty}/data")
    return f"s3://{faulty}/data"


def start(root: Path, ranks: int, **options: object) -> list[Training]:
    return [
        Training(root, steps=2, monitors=[SAVE], ranks=[rank, ranks, rank, ranks], **options) for rank in range(ranks)
    ]  # type: ignore[arg-type]


def test_inputs_are_fetched_once_per_host_and_every_rank_sends_its_own(
    faulty: str, proxy: Proxy, data: str, tmp_path: Path
) -> None:
    url = f"s3://{faulty}/run"
    proxy.forget()
    team = start(tmp_path / "run", 3, url=url, inputs={"train_dataset_dir": data})
    for each in team:
        assert each.wait() == 0, each.output
    fetched = [request.path for request in proxy.seen if request.method == "GET" and "/data/" in request.path]
    assert len(fetched) == 5
    found = set(stored(url))
    assert {f"checkpoint/rank_{rank}/meta.json" for rank in range(3)} <= found
    assert {f"log/rank_{rank}/info.log" for rank in range(3)} <= found


def test_a_leader_killed_while_it_fetches_is_noticed_at_once(data: str, proxy: Proxy, tmp_path: Path) -> None:
    proxy.fault = lambda request: Hold() if request.method == "GET" and "/data/" in request.path else None
    team = start(tmp_path / "run", 3, inputs={"train_dataset_dir": data}, input_timeout=600)
    wait_for(proxy.held.is_set, told=lambda: "\n".join(each.output for each in team))
    places = list((tmp_path / "tmp").glob("paceline-*/*/state.json"))
    assert len(places) == 1
    time.sleep(0.2)
    team[0].kill(signal.SIGKILL)
    for each in team[1:]:
        assert each.wait(60) == 1  # far less than the timeout
        assert "rank 0, which fetches for this host, ended while it was at work (train_dataset_dir: " in each.output
    # What it left behind does not hold up the next start.
    proxy.fault = lambda _: None
    for each in start(tmp_path / "run", 3, inputs={"train_dataset_dir": data}):
        assert each.wait() == 0, each.output


def team_of(place: Path, ranks: int = 2) -> list[Meeting]:
    return [Meeting("subject", Ranks(rank, ranks, rank, ranks), place) for rank in range(ranks)]


def test_a_leader_that_does_not_come_or_does_not_finish_is_a_bounded_wait(tmp_path: Path) -> None:
    leader, follower = team_of(tmp_path)
    with pytest.raises(PacelineError, match="did not begin within 0 s"):
        follower.share(lambda tell: {}, 0.2)
    errors: list[str] = []

    def work(tell: object) -> dict[str, str]:
        with pytest.raises(PacelineError, match="is not done after 0 s") as caught:
            follower.share(lambda tell: {}, 0.2)
        errors.append(str(caught.value))
        return {}

    leader.share(work, 1)
    assert errors


def test_what_an_earlier_run_left_is_not_taken_for_an_answer(tmp_path: Path) -> None:
    first, follower = team_of(tmp_path)
    assert first.share(lambda tell: {"data": "/old"}, 1) == {"data": "/old"}
    assert follower.share(lambda tell: {}, 5) == {"data": "/old"}
    follower.end()
    first.end()
    again, late = team_of(tmp_path)
    with pytest.raises(PacelineError, match="did not begin"):
        late.share(lambda tell: {}, 0.2)
    again.share(lambda tell: {"data": "/new"}, 1)
    assert late.share(lambda tell: {}, 5) == {"data": "/new"}
    assert again.alive() == {1} and not late.leader_is_gone
    late.end()
    assert again.alive() == set()
    again.end()


def test_a_leaders_error_is_everybodys_error(tmp_path: Path) -> None:
    leader, follower = team_of(tmp_path)

    def work(tell: object) -> dict[str, str]:
        raise PacelineError("data: no such bucket", hint="check the name")

    with pytest.raises(PacelineError, match="no such bucket"):
        leader.share(work, 1)
    with pytest.raises(
        PacelineError, match="rank 0, which fetches for this host, failed: data: no such bucket"
    ) as caught:
        follower.share(lambda tell: {}, 5)
    assert caught.value.hint == "check the name"
    follower.end()
    leader.end()


def test_checkpoints_of_a_rank_that_was_killed_are_sent_by_the_first_of_its_host(bucket: str, tmp_path: Path) -> None:
    url = f"s3://{bucket}/run"
    options = {"url": url, "steps": 6, "monitors": [SAVE], "hold": 4}
    team = [Training(tmp_path / "run", ranks=[rank, 2, rank, 2], **options) for rank in range(2)]
    for rank, each in enumerate(team):
        each.until(lambda rank=rank: (tmp_path / "run" / f"progress-{rank}").exists()
                   and (tmp_path / "run" / f"progress-{rank}").read_text() == "4")  # fmt: skip
    team[1].kill()
    (tmp_path / "run" / "go").write_text("")
    assert team[0].wait() == 0, team[0].output
    found = set(stored(url))
    assert {"checkpoint/rank_1/gpt_rank_1-1_4.ckpt", "checkpoint/rank_1/meta.json"} <= found
