"""All executors give the same tables; a dead worker costs time, a crashing rank becomes a warning."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

import paceline
from paceline.core.errors import PacelineError, UsageError
from paceline.run import ingest
from paceline.run.executors import dask as dask_executor
from paceline.run.executors import dask_ray_checks
from paceline.run.executors.dask_ray_checks import run_checked
from paceline.run.executors.executor import CrashedTask, Executor
from paceline.run.executors.open_executor import executor_for
from paceline.run.executors.processes import ProcessExecutor
from paceline.run.executors.ray import RayExecutor
from paceline.run.ingest import ReadProgress
from paceline.run.io_endpoints import ReadSource, StoreTarget
from paceline.run.run import TABLE_NAMES, Run
from paceline.simulate import ClusterSpec, simulate
from paceline.storage.transfer.transfer import transfer
from support.executors.clusters import TESTS, dask_cluster, ray_cluster
from support.executors.deadly import double, read_nothing_and_die
from support.storage.servers import S3Server

LAYOUTS = ("ascend-text", "ascend-db", "kineto")


@pytest.fixture(scope="session", params=LAYOUTS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("simulated") / "run"
    simulate(
        out,
        ClusterSpec(hosts=2, devices=2, dp=2, tp=2, pp=1, steps=2, layers=2, micro_batches=2),
        ["slow-rank:1:1.3"],
        request.param,
    )
    return out


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "BATCH_SECTIONS", 2)
    monkeypatch.setattr(ingest, "POOL_BYTES", 0)


@pytest.fixture(params=["processes", "dask"])
def engine(request: pytest.FixtureRequest) -> Iterator[Executor]:
    made = ProcessExecutor(2) if request.param == "processes" else executor_for(request.getfixturevalue(request.param))
    yield made
    made.close()


def content(run: Run) -> dict[str, str]:
    """Hashes of all tables in a fixed order of rows."""
    run.load(TABLE_NAMES)
    found = {}
    for name in TABLE_NAMES:
        rows = run.sql(f"SELECT * FROM {name} ORDER BY ALL").fetchall()
        found[name] = hashlib.sha256(repr(rows).encode()).hexdigest()
    return found


def test_every_task_returns_and_a_crashing_one_is_reported(engine: Executor) -> None:
    check_tasks(engine)


def check_tasks(engine: Executor) -> None:
    results = dict(engine.run(double, list(range(10, 20))))
    assert results.pop(13) == CrashedTask()  # the same for all executors
    assert results == {number: 2 * number for number in range(10, 20) if number != 13}


def test_dask_reads_the_same_from_a_bucket(
    source: Path, dask: str, bucket: str, small_batches: None, tmp_path: Path
) -> None:
    with paceline.open(source, store=tmp_path / "here") as run:
        expected = content(run)
    transfer(source, f"s3://{bucket}/run").raise_failures()
    with paceline.open(f"s3://{bucket}/run", store=tmp_path / "there", engine=dask) as run:
        assert content(run) == expected


def test_ray_reads_the_same_and_survives_crashing_ranks(
    s3: S3Server, small_batches: None, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One test, because two Ray clusters on one machine would use the same ports."""
    out = tmp_path / "run"
    simulate(out, ClusterSpec(hosts=2, devices=2, dp=2, tp=2, pp=1, steps=2, layers=2, micro_batches=2), [], "kineto")
    with paceline.open(out, store=tmp_path / "here") as run:
        expected = content(run)
    with ray_cluster(tmp_path_factory.mktemp("ray"), s3.environment()) as cluster:
        with paceline.open(out, store=tmp_path / "there", engine=cluster.address) as run:
            assert content(run) == expected
        engine = executor_for(cluster.address)
        check_tasks(engine)
        with Run(out, store=tmp_path / "deadly", executor=engine) as run:
            check_crashing_rank(run)
        killed: list[ReadProgress] = []

        def kill_one(now: ReadProgress) -> None:
            if not killed:
                cluster.kill_node()
            killed.append(now)

        with paceline.open(out, store=tmp_path / "again", engine=cluster.address, progress=kill_one) as run:
            assert content(run) == expected
        assert len(killed) > 1, "it died during reading"


def test_a_store_in_a_bucket_serves_the_next_machine(
    dask: str, bucket: str, small_batches: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Path
) -> None:
    with paceline.open(source, store=f"s3://{bucket}/index", engine=dask) as run:
        expected = content(run)
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "another machine"))
    monkeypatch.setattr(ingest, "read_batch", None)  # reading again would fail
    with paceline.open(source, store=f"s3://{bucket}/index") as run:
        assert content(run) == expected


def test_a_worker_killed_in_the_middle_changes_nothing(
    source: Path, dask: str, small_batches: None, tmp_path: Path
) -> None:
    from distributed import Client

    with paceline.open(source, store=tmp_path / "here") as run:
        expected = content(run)
    with Client(dask.replace("dask://", "tcp://"), set_as_default=False) as client:
        client.wait_for_workers(2, timeout=600)  # one may still be restarting after the test before
        workers = list(client.run(os.getpid).values())
    killed: list[int] = []

    def kill_one(now: ReadProgress) -> None:
        if not killed:
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])

    with paceline.open(source, store=tmp_path / "there", engine=dask, progress=kill_one) as run:
        assert content(run) == expected
    assert killed


@pytest.mark.parametrize("source", ["ascend-text"], indirect=True)
def test_a_rank_that_kills_its_readers_is_skipped(
    source: Path, engine: Executor, small_batches: None, tmp_path: Path
) -> None:
    with Run(source, store=tmp_path / "store", executor=engine) as run:
        check_crashing_rank(run)


def check_crashing_rank(run: Run) -> None:
    selected = run._selected
    rank, number = next(
        (index, number)
        for index, entry in enumerate(selected)
        for number, section in enumerate(entry.recording.sections)
        if "collectives" in section.tables and entry.recording.rank == 2
    )
    sections = list(selected[rank].recording.sections)
    sections[number] = replace(sections[number], read=read_nothing_and_die)
    selected[rank] = replace(selected[rank], recording=replace(selected[rank].recording, sections=tuple(sections)))
    assert run.sql("SELECT list_sort(list(DISTINCT rank)) FROM collectives").fetchall() == [([0, 1, 3],)]
    assert any(warning.rank == 2 and "died" in warning.message for warning in run.warnings)


def test_suspects_are_never_read_in_the_main_process(tmp_path: Path) -> None:
    """In a separate process, which dies if it reads the crashing rank itself: little is left to read the second time."""
    simulate(tmp_path / "run", ClusterSpec(hosts=1, devices=4, dp=4, tp=1, pp=1, steps=1, layers=1), [], "ascend-text")
    script = (
        "import sys; from pathlib import Path\n"
        "from e2e.executors.test_executors import ProcessExecutor, Run, check_crashing_rank, ingest\n"
        "if __name__ == '__main__':\n"
        "    ingest.BATCH_SECTIONS = 4\n"
        "    run = Run(Path(sys.argv[1]), store=sys.argv[2], executor=ProcessExecutor(2))\n"
        "    tables = frozenset({'ranks', 'groups', 'transfers', 'collectives'})\n"
        "    ingest.POOL_BYTES = sum(task.size for task in ingest._read_tasks(run._store, run._selected, tables)) - 1\n"
        "    check_crashing_rank(run)\n"
    )
    (tmp_path / "script.py").write_text(script)
    paths = [TESTS, Path(paceline.__file__).parents[1]]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, tmp_path / "script.py", tmp_path / "run", tmp_path / "store"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_progress_counts_ranks(tmp_path: Path, small_batches: None) -> None:
    simulate(tmp_path / "run", ClusterSpec(hosts=1, devices=4, dp=4, tp=1, pp=1, steps=1, layers=1), [], "ascend-text")
    seen: list[ReadProgress] = []
    with paceline.open(tmp_path / "run", store=tmp_path / "store", progress=seen.append) as run:
        run.load(["steps"])
    assert [now.ranks for now in seen] == sorted(now.ranks for now in seen)
    assert (seen[-1].ranks, seen[-1].ranks_total) == (4, 4)
    assert seen[-1].done == seen[-1].total


def test_unknown_engines_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown engine"):
        executor_for("spark://here:1")


def test_workers_that_do_not_see_the_store_report_it(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match="not the same directory on worker"):
        StoreTarget(tmp_path, token=".absent").staging_directory(tmp_path)
    with pytest.raises(PacelineError, match="not found on worker"):
        ReadSource(tmp_path / "absent").fetch(tmp_path)


def test_unreachable_engines_fail_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's client would wait for ever for something that is not Dask, Ray's for half a minute."""
    monkeypatch.setattr(dask_executor, "CONNECT_TIMEOUT_S", 1)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(PacelineError, match="a Dask scheduler"),
    ):
        executor_for(f"dask://127.0.0.1:{silent.getsockname()[1]}")
    for scheme in ("dask", "ray"):
        with pytest.raises(PacelineError, match="could not connect to"):
            executor_for(f"{scheme}://127.0.0.1:9")
        for where in ("127.0.0.1", "127.0.0.1:abc", ":8786"):
            with pytest.raises(UsageError, match="host or port is missing"):
                executor_for(f"{scheme}://{where}")


def test_an_engine_works_where_a_loop_runs_as_in_notebooks(dask: str) -> None:
    async def cell() -> dict[int, int | CrashedTask]:
        engine = executor_for(dask)
        try:
            return dict(engine.run(double, [1, 2]))
        finally:
            engine.close()

    assert asyncio.run(cell()) == {1: 2, 2: 4}


def test_workers_of_another_version_are_refused(dask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PacelineError, match=r"Paceline 0\.0\.1 \(tables 1\).*cannot work together"):
        run_checked(double, ("0.0.1", 1), 1)
    monkeypatch.setattr(dask_ray_checks, "OUR_VERSION", ("99.0", 1))
    with pytest.raises(PacelineError, match=r"and 99\.0 \(tables 1\) cannot work together"):
        executor_for(dask)


def test_workers_without_paceline_are_reported(dask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_checked, "__module__", "paceline.gone")
    with pytest.raises(PacelineError, match=r"cannot run Paceline \(No module named 'paceline\.gone'\)") as told:
        executor_for(dask)
    assert "install paceline" in str(told.value.hint)


def test_a_ray_head_without_paceline_is_reported() -> None:
    """What its client raises when the head cannot unpickle a task; starting a cluster would take half a minute."""
    engine = RayExecutor.__new__(RayExecutor)
    engine._address, engine._client = "ray://head:10001", nullcontext()
    with (
        pytest.raises(PacelineError, match="ray://head:10001: its workers cannot run Paceline"),
        engine._connected_client(),
    ):
        raise ModuleNotFoundError("No module named 'paceline'")


def test_tasks_do_not_wait_for_workers_that_never_come(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Client

    monkeypatch.setattr(dask_executor, "WORKERS_TIMEOUT_S", 1)
    with dask_cluster(tmp_path, s3.environment()) as address:
        engine = executor_for(address)
        with Client(address.replace("dask:", "tcp:"), set_as_default=False) as client:
            client.retire_workers()
        with pytest.raises(PacelineError, match="the scheduler has no workers"):
            list(engine.run(double, [1, 2]))
        engine.close()


def test_workers_find_what_the_user_named_from_another_directory(
    dask: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(tmp_path / "run", ClusterSpec(hosts=1, devices=2, dp=2, tp=1, pp=1, steps=1, layers=1), [], "ascend-text")
    monkeypatch.chdir(tmp_path)
    with paceline.open("run", store="store", engine=dask) as run:
        assert run.source == "run"
        assert run.rows("steps") == 2


@pytest.mark.parametrize("source", ["ascend-text"], indirect=True)
def test_stores_are_equal_to_the_last_byte_with_a_broken_rank_too(
    source: Path, dask: str, small_batches: None, tmp_path: Path
) -> None:
    broken = tmp_path / "run"
    shutil.copytree(source, broken)
    os.truncate(next(broken.rglob("communication.json")), 100)
    found = []
    for name, engine in (("here", None), ("there", dask)):
        with paceline.open(broken, store=tmp_path / name, engine=engine) as run:
            run.load(TABLE_NAMES)
            assert run.warnings
        files = [tmp_path / name / "manifest.json", *(tmp_path / name / "data").iterdir()]
        found.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files})
    assert found[0] == found[1]
