"""Four gloo ranks and a bucket: killed, resumed, and bitwise equal to an uninterrupted run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from paceline.checkpoint.resume.resume_point import find_resume_point
from paceline.core.errors import PacelineError
from paceline.training.launcher.rank_placement import free_port
from support.storage.fixtures import bucket, own_places, s3
from support.training.fixtures import no_launcher
from support.training.launching import eventually
from support.training.tiny import import_path, write_config, write_text

pytest.importorskip("torch", reason="torch is not installed; `make test` installs it")

__all__ = ["bucket", "no_launcher", "own_places", "s3"]

RANKS, STEPS, KILLED_AT = 4, 30, 17


@pytest.mark.timeout(2400)
def test_killed_at_17_of_30_steps_and_resumed_it_is_the_same_to_the_last_bit(tmp_path: Path, bucket: str) -> None:
    job = Job(tmp_path, f"s3://{bucket}/job")
    whole = tmp_path / "whole"
    job.train(whole)
    assert [step for step, _ in curve(whole)] == list(range(1, STEPS + 1))

    cut = tmp_path / "cut"
    job.kill_at(KILLED_AT, cut)
    assert curve(cut)[-1][0] == KILLED_AT
    assert not (cut / "throughput_0.json").exists()

    told = job.train(cut, "--remote_save_url", job.url, "--resume_training", "True")
    assert "resuming from" in told and "checkpoint 2_5" in told
    assert latest(cut) == curve(whole)
    for rank in range(RANKS):
        last = f"checkpoint/rank_{rank}/gpt2_rank_{rank}-3_10.ckpt"
        assert (cut / last).read_bytes() == (whole / last).read_bytes()
    assert_complete(job, cut)

    # Another machine with only the bucket, where the newest checkpoint is damaged.
    damage(job, "checkpoint/rank_2/gpt2_rank_2-3_10.ckpt")
    damage(job, "checkpoint/rank_0/gpt2_rank_0-3_5.ckpt")
    fresh = tmp_path / "fresh"
    told = job.train(fresh, "--load_checkpoint", f"{job.url}/checkpoint", "--resume_training", "True")
    assert "skipping checkpoint 3_10: " in told and "rank_2/gpt2_rank_2-3_10.ckpt is damaged" in told
    assert "skipping checkpoint 3_5: rank_0/" in told
    assert "checkpoint 2_10" in told
    assert curve(fresh) == curve(whole)[20:]
    for rank in range(RANKS):
        last = f"checkpoint/rank_{rank}/gpt2_rank_{rank}-3_10.ckpt"
        assert (fresh / last).read_bytes() == (whole / last).read_bytes()


@pytest.mark.timeout(2400)
def test_two_hosts_train_what_one_host_trains(tmp_path: Path) -> None:
    job = Job(tmp_path, "")
    job.ranks = 2
    job.train(tmp_path / "one", "--epochs", "1")
    job.ranks = 1
    meeting = ("--nodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port()), "--epochs", "1")
    both = [job.start(tmp_path / "two", *meeting, "--node-rank", str(node)) for node in range(2)]
    for each in both:
        told, _ = each.communicate(timeout=600)
        assert each.returncode == 0, told
    assert curve(tmp_path / "two") == curve(tmp_path / "one")
    for rank in range(2):
        last = f"checkpoint/rank_{rank}/gpt2_rank_{rank}-1_20.ckpt"
        assert (tmp_path / "two" / last).read_bytes() == (tmp_path / "one" / last).read_bytes()


class Job:
    def __init__(self, directory: Path, url: str) -> None:
        self.directory, self.url, self.ranks = directory, url, RANKS
        self.config = write_config(directory / "run.yaml")
        self.text = write_text(directory / "text.txt")

    def start(self, output: Path, *words: str, config: Path | None = None) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "paceline",
            "train",
            "--config",
            str(config or self.config),
            "--ranks",
            str(self.ranks),
            "--train_dataset_dir",
            str(self.text),
            "--output_dir",
            str(output),
            *words,
        ]
        env = {**os.environ, "PYTHONPATH": import_path(), "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, cwd=self.directory
        )

    def train(self, output: Path, *words: str) -> str:
        """Output of the job."""
        job = self.start(output, *words)
        try:
            told, _ = job.communicate(timeout=600)
        finally:
            job.kill()  # if it hangs; its orphan reaper stops the ranks
        assert job.returncode == 0, told
        return told

    def kill_at(self, step: int, output: Path) -> None:
        """kill -9 of all processes, once the previous checkpoint is in the bucket."""
        values = yaml.safe_load(self.config.read_text())
        flag = self.directory / "held"
        values["callbacks"].append({"type": "support.training.tiny:HoldAt", "step": step, "flag": str(flag)})
        holding = self.directory / "holding.yaml"
        holding.write_text(yaml.safe_dump(values))
        job = self.start(output, "--remote_save_url", self.url, config=holding)
        try:
            eventually(lambda: job.poll() is not None or all(Path(f"{flag}.{r}").exists() for r in range(RANKS)))
            assert job.poll() is None, job.communicate()[0]
            eventually(lambda: self._is_saved((2, 5)))
        finally:
            for pid in [job.pid, *descendants(job.pid)]:
                kill(pid)
            job.communicate(timeout=600)

    def _is_saved(self, moment: tuple[int, int]) -> bool:
        try:
            point = find_resume_point(f"{self.url}/checkpoint", ranks=RANKS)
        except PacelineError:
            return False
        return (point.epoch, point.step) == moment


def curve(output: Path) -> list[tuple[int, str]]:
    lines = (output / "log" / "rank_0" / "loss.csv").read_text().splitlines()[1:]
    return [(int(step), loss) for step, loss in (line.split(",") for line in lines)]


def latest(output: Path) -> list[tuple[int, str]]:
    """Losses of a run that repeated some steps: the last value of each; both must be equal."""
    found: dict[int, str] = {}
    for step, loss in curve(output):
        assert found.setdefault(step, loss) == loss
    return sorted(found.items())


def assert_complete(job: Job, local: Path) -> None:
    keys = dict(objects(job.url))
    expected = ["ranksize.json", "log/rank_0/loss.csv"]
    for rank in range(RANKS):
        expected += [f"throughput_{rank}.json", f"log/rank_{rank}/info.log", f"checkpoint/rank_{rank}/meta.json"]
    expected += [str(path.relative_to(local)) for path in local.glob("checkpoint/rank_*/*.ckpt")]
    assert not [key for key in expected if key not in keys]
    for path in local.glob("checkpoint/rank_*/*"):
        assert keys[str(path.relative_to(local))] == path.stat().st_size


def objects(url: str) -> Iterator[tuple[str, int]]:
    from paceline.storage.stores.open_store import open_store

    store = open_store(url)
    yield from ((item.key, item.size) for item in store.list_files())
    store.close()


def damage(job: Job, key: str) -> None:
    """Flip one bit of one object."""
    from paceline.storage.checksum import md5
    from paceline.storage.stores.open_store import open_store

    store = open_store(job.url)
    item = store.stat(key)
    assert item is not None
    data = bytearray(store.read(item, 0, item.size))
    data[len(data) // 2] ^= 1
    store.write(key, bytes(data), md5(bytes(data)))
    store.close()


def descendants(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                child = int(stat.parent.name)
                found += [child, *descendants(child)]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
