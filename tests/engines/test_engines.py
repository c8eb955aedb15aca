"""Whoever reads, the tables are the same; a dead worker costs time, a deadly rank a warning."""

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
from engines.clusters import TESTS, dask_cluster, ray_cluster
from engines.deadly import double, read_nothing_and_die
from paceline.errors import PacelineError, UsageError
from paceline.run import index
from paceline.run.engines import Engine, Lost, engine_for, far, on_dask
from paceline.run.engines.far import run_checked
from paceline.run.engines.on_ray import OnRay
from paceline.run.engines.processes import Processes
from paceline.run.index import Reading
from paceline.run.places import Source, Target
from paceline.run.run import TABLE_NAMES, Run
from paceline.simulate import ClusterSpec, simulate
from paceline.storage.transfer import transfer
from storage.servers import S3Server

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
    monkeypatch.setattr(index, "BATCH_SECTIONS", 2)
    monkeypatch.setattr(index, "POOL_BYTES", 0)


@pytest.fixture(params=["processes", "dask"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    made = Processes(2) if request.param == "processes" else engine_for(request.getfixturevalue(request.param))
    yield made
    made.close()


def content(run: Run) -> dict[str, str]:
    """Every table, bit for bit, in an order of its own; where it lies is not part of it."""
    run.load(TABLE_NAMES)
    found = {}
    for name in TABLE_NAMES:
        rows = run.sql(f"SELECT * FROM {name} ORDER BY ALL").fetchall()
        found[name] = hashlib.sha256(repr(rows).encode()).hexdigest()
    return found


def test_every_task_comes_back_and_a_deadly_one_as_lost(engine: Engine) -> None:
    check_tasks(engine)


def check_tasks(engine: Engine) -> None:
    results = dict(engine.run(double, list(range(10, 20))))
    assert results.pop(13) == Lost()  # in the same words, whoever read
    assert results == {number: 2 * number for number in range(10, 20) if number != 13}


def test_dask_reads_the_same_from_a_bucket(
    source: Path, dask: str, bucket: str, small_batches: None, tmp_path: Path
) -> None:
    with paceline.open(source, store=tmp_path / "here") as run:
        expected = content(run)
    transfer(source, f"s3://{bucket}/run").raise_failures()
    with paceline.open(f"s3://{bucket}/run", store=tmp_path / "there", engine=dask) as run:
        assert content(run) == expected


def test_ray_reads_the_same_and_outlives_deadly_ranks(
    s3: S3Server, small_batches: None, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One test, because a machine has room for one Ray cluster: two of them want the same ports."""
    out = tmp_path / "run"
    simulate(out, ClusterSpec(hosts=2, devices=2, dp=2, tp=2, pp=1, steps=2, layers=2, micro_batches=2), [], "kineto")
    with paceline.open(out, store=tmp_path / "here") as run:
        expected = content(run)
    with ray_cluster(tmp_path_factory.mktemp("ray"), s3.environment()) as cluster:
        with paceline.open(out, store=tmp_path / "there", engine=cluster.address) as run:
            assert content(run) == expected
        engine = engine_for(cluster.address)
        check_tasks(engine)
        with Run(out, store=tmp_path / "deadly", engine=engine) as run:
            check_deadly_rank(run)
        killed: list[Reading] = []

        def kill_one(now: Reading) -> None:
            if not killed:
                cluster.kill_node()
            killed.append(now)

        with paceline.open(out, store=tmp_path / "again", engine=cluster.address, progress=kill_one) as run:
            assert content(run) == expected
        assert len(killed) > 1, "it died in the middle"


def test_a_store_in_a_bucket_serves_whoever_opens_it_next(
    dask: str, bucket: str, small_batches: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: Path
) -> None:
    with paceline.open(source, store=f"s3://{bucket}/index", engine=dask) as run:
        expected = content(run)
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "another machine"))
    monkeypatch.setattr(index, "read_batch", None)  # whoever reads anew fails
    with paceline.open(source, store=f"s3://{bucket}/index") as run:
        assert content(run) == expected


def test_a_worker_killed_in_the_middle_changes_nothing(
    source: Path, dask: str, small_batches: None, tmp_path: Path
) -> None:
    from distributed import Client

    with paceline.open(source, store=tmp_path / "here") as run:
        expected = content(run)
    with Client(dask.replace("dask://", "tcp://"), set_as_default=False) as client:
        client.wait_for_workers(2, timeout=120)  # one may be on its way back from the test before
        workers = list(client.run(os.getpid).values())
    killed: list[int] = []

    def kill_one(now: Reading) -> None:
        if not killed:
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])

    with paceline.open(source, store=tmp_path / "there", engine=dask, progress=kill_one) as run:
        assert content(run) == expected
    assert killed


@pytest.mark.parametrize("source", ["ascend-text"], indirect=True)
def test_a_rank_that_kills_its_readers_is_passed_over(
    source: Path, engine: Engine, small_batches: None, tmp_path: Path
) -> None:
    with Run(source, store=tmp_path / "store", engine=engine) as run:
        check_deadly_rank(run)


def check_deadly_rank(run: Run) -> None:
    chosen = run._chosen
    rank, number = next(
        (place, part)
        for place, entry in enumerate(chosen)
        for part, section in enumerate(entry.part.sections)
        if "collectives" in section.tables and entry.part.rank == 2
    )
    sections = list(chosen[rank].part.sections)
    sections[number] = replace(sections[number], read=read_nothing_and_die)
    chosen[rank] = replace(chosen[rank], part=replace(chosen[rank].part, sections=tuple(sections)))
    assert run.sql("SELECT list_sort(list(DISTINCT rank)) FROM collectives").fetchall() == [([0, 1, 3],)]
    assert any(warning.rank == 2 and "died" in warning.message for warning in run.warnings)


def test_suspects_are_never_read_by_the_command_itself(tmp_path: Path) -> None:
    """In a process of its own, which dies with the deadly rank if it reads it: little is left to read the second time."""
    simulate(tmp_path / "run", ClusterSpec(hosts=1, devices=4, dp=4, tp=1, pp=1, steps=1, layers=1), [], "ascend-text")
    script = (
        "import sys; from pathlib import Path\n"
        "from engines.test_engines import Processes, Run, check_deadly_rank, index\n"
        "if __name__ == '__main__':\n"
        "    index.BATCH_SECTIONS = 4\n"
        "    run = Run(Path(sys.argv[1]), store=sys.argv[2], engine=Processes(2))\n"
        "    tables = frozenset({'ranks', 'groups', 'transfers', 'collectives'})\n"
        "    index.POOL_BYTES = sum(job.size for job in index._jobs(run._store, run._chosen, tables)) - 1\n"
        "    check_deadly_rank(run)\n"
    )
    (tmp_path / "script.py").write_text(script)
    paths = [TESTS / "engines", TESTS, TESTS / "run", Path(paceline.__file__).parents[1]]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, tmp_path / "script.py", tmp_path / "run", tmp_path / "store"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_progress_counts_ranks(tmp_path: Path, small_batches: None) -> None:
    simulate(tmp_path / "run", ClusterSpec(hosts=1, devices=4, dp=4, tp=1, pp=1, steps=1, layers=1), [], "ascend-text")
    seen: list[Reading] = []
    with paceline.open(tmp_path / "run", store=tmp_path / "store", progress=seen.append) as run:
        run.load(["steps"])
    assert [now.ranks for now in seen] == sorted(now.ranks for now in seen)
    assert (seen[-1].ranks, seen[-1].ranks_total) == (4, 4)
    assert seen[-1].done == seen[-1].total


def test_unknown_engines_are_said() -> None:
    with pytest.raises(UsageError, match="no such engine"):
        engine_for("spark://here:1")


def test_workers_that_do_not_see_the_store_say_so(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match="not the same directory on worker"):
        Target(tmp_path, token=".absent").staging(tmp_path)
    with pytest.raises(PacelineError, match="not on worker"):
        Source(tmp_path / "absent").fetched(tmp_path)


def test_engines_that_cannot_be_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """In seconds: left alone, Dask's client waits for ever for something that is not Dask, Ray's half a minute."""
    monkeypatch.setattr(on_dask, "CONNECTED_WITHIN", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(PacelineError, match="no Dask scheduler"):
        engine_for(f"dask://127.0.0.1:{silent.getsockname()[1]}")
    for scheme in ("dask", "ray"):
        with pytest.raises(PacelineError, match="nobody answers"):
            engine_for(f"{scheme}://127.0.0.1:9")
        for where in ("127.0.0.1", "127.0.0.1:abc", ":8786"):
            with pytest.raises(UsageError, match="no host and port"):
                engine_for(f"{scheme}://{where}")


def test_an_engine_works_where_a_loop_runs_as_in_notebooks(dask: str) -> None:
    async def cell() -> dict[int, int | Lost]:
        engine = engine_for(dask)
        try:
            return dict(engine.run(double, [1, 2]))
        finally:
            engine.close()

    assert asyncio.run(cell()) == {1: 2, 2: 4}


def test_workers_of_another_version_are_refused(dask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PacelineError, match=r"Paceline 0\.0\.1 \(tables 1\).*cannot work together"):
        run_checked(double, ("0.0.1", 1), 1)
    monkeypatch.setattr(far, "OURS", ("99.0", 1))
    with pytest.raises(PacelineError, match=r"and 99\.0 \(tables 1\) cannot work together"):
        engine_for(dask)


def test_workers_without_paceline_are_told_of(dask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_checked, "__module__", "paceline.gone")
    with pytest.raises(PacelineError, match=r"cannot run Paceline \(No module named 'paceline\.gone'\)") as told:
        engine_for(dask)
    assert "install paceline" in str(told.value.hint)


def test_a_ray_head_without_paceline_is_told_of() -> None:
    """What its client raises when the head cannot unpickle a task; a cluster of its own would take half a minute."""
    engine = OnRay.__new__(OnRay)
    engine._address, engine._client = "ray://head:10001", nullcontext()
    with pytest.raises(PacelineError, match="ray://head:10001: it cannot run Paceline"), engine._asked():
        raise ModuleNotFoundError("No module named 'paceline'")


def test_tasks_do_not_wait_for_workers_that_never_come(
    tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Client

    monkeypatch.setattr(on_dask, "WORKERS_WITHIN", 1)
    with dask_cluster(tmp_path, s3.environment()) as address:
        engine = engine_for(address)
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
