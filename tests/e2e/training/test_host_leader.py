"""HostLeader: one rank per host downloads; the others wait with a timeout and learn what went wrong."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from paceline.core.errors import PacelineError
from paceline.storage.transfer.transfer import transfer
from paceline.training import Ranks
from paceline.training.session.host_leader import HostLeader
from support.storage.faults import Hold, Proxy
from support.training.running import Training, stored, wait_for

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


def test_inputs_are_downloaded_once_per_host_and_every_rank_uploads_its_own(
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


def test_a_leader_killed_during_the_download_is_noticed_immediately(data: str, proxy: Proxy, tmp_path: Path) -> None:
    proxy.fault = lambda request: Hold() if request.method == "GET" and "/data/" in request.path else None
    team = start(tmp_path / "run", 3, inputs={"train_dataset_dir": data}, input_timeout=6000)
    wait_for(proxy.held.is_set, told=lambda: "\n".join(each.output for each in team))
    places = list((tmp_path / "tmp").glob("paceline-*/*/state.json"))
    assert len(places) == 1
    time.sleep(0.2)
    team[0].kill(signal.SIGKILL)
    for each in team[1:]:
        assert each.wait(600) == 1  # far less than the timeout
        assert "rank 0 (downloads inputs for this host) exited during train_dataset_dir: " in each.output
    # Its leftover files do not block the next start.
    proxy.fault = lambda _: None
    for each in start(tmp_path / "run", 3, inputs={"train_dataset_dir": data}):
        assert each.wait() == 0, each.output


def team_of(base: Path, ranks: int = 2) -> list[HostLeader]:
    return [HostLeader("subject", Ranks(rank, ranks, rank, ranks), base) for rank in range(ranks)]


def test_waiting_for_a_missing_or_slow_leader_times_out(tmp_path: Path) -> None:
    leader, follower = team_of(tmp_path)
    with pytest.raises(PacelineError, match="did not start within 0 s"):
        follower.run_once(lambda report: {}, 0.2)
    errors: list[str] = []

    def work(report: object) -> dict[str, str]:
        with pytest.raises(PacelineError, match="did not finish within 0 s") as caught:
            follower.run_once(lambda report: {}, 0.2)
        errors.append(str(caught.value))
        return {}

    leader.run_once(work, 1)
    assert errors


def test_state_of_an_earlier_run_is_ignored(tmp_path: Path) -> None:
    first, follower = team_of(tmp_path)
    assert first.run_once(lambda report: {"data": "/old"}, 1) == {"data": "/old"}
    assert follower.run_once(lambda report: {}, 5) == {"data": "/old"}
    follower.close()
    first.close()
    again, late = team_of(tmp_path)
    with pytest.raises(PacelineError, match="did not start"):
        late.run_once(lambda report: {}, 0.2)
    again.run_once(lambda report: {"data": "/new"}, 1)
    assert late.run_once(lambda report: {}, 5) == {"data": "/new"}
    assert again.alive_ranks() == {1} and not late.leader_is_gone
    late.close()
    assert again.alive_ranks() == set()
    again.close()


def test_an_error_of_the_leader_is_raised_on_every_rank(tmp_path: Path) -> None:
    leader, follower = team_of(tmp_path)

    def work(report: object) -> dict[str, str]:
        raise PacelineError("data: no such bucket", hint="check the name")

    with pytest.raises(PacelineError, match="no such bucket"):
        leader.run_once(work, 1)
    with pytest.raises(
        PacelineError, match="rank 0 \\(downloads inputs for this host\\) failed: data: no such bucket"
    ) as caught:
        follower.run_once(lambda report: {}, 5)
    assert caught.value.hint == "check the name"
    follower.close()
    leader.close()


def test_checkpoints_of_a_killed_rank_are_uploaded_by_the_first_rank_of_its_host(bucket: str, tmp_path: Path) -> None:
    url = f"s3://{bucket}/run"
    options = {"url": url, "steps": 6, "monitors": [SAVE], "hold": 4}
    team = [Training(tmp_path / "run", ranks=[rank, 2, rank, 2], **options) for rank in range(2)]
    for rank, each in enumerate(team):
        each.until(
            lambda rank=rank: (
                (tmp_path / "run" / f"progress-{rank}").exists()
                and (tmp_path / "run" / f"progress-{rank}").read_text() == "4"
            )
        )
    team[1].kill()
    (tmp_path / "run" / "go").write_text("")
    assert team[0].wait() == 0, team[0].output
    found = set(stored(url))
    assert {"checkpoint/rank_1/gpt_rank_1-1_4.ckpt", "checkpoint/rank_1/meta.json"} <= found
