"""Python 3.8 to 3.13: one pip command installs; a job records, saves, resumes and collects with what it installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from matrix.conftest import ROOT, environment, run
from paceline.storage.stores.open_store import open_store

IN_JOB = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
JOB = Path(__file__).with_name("in_job_script.py")


@pytest.mark.parametrize("version", IN_JOB)
def test_a_job_records_saves_resumes_and_collects(version: str, wheel: Path, bucket: str, tmp_path: Path) -> None:
    python = environment(version, tmp_path / "venv")
    run(str(python), "-m", "pip", "install", "--quiet", f"{wheel}[checkpoint,storage]")
    url = f"obs://{bucket}/py{version}"
    run(str(python), str(JOB), url, cwd=tmp_path)
    lines = [line for file in (tmp_path / "recording").rglob("steps-*.jsonl") for line in file.read_text().splitlines()]
    assert len([line for line in lines if '"step"' in line]) >= 20
    store = open_store(url)
    kept = {item.key for item in store.list_files()}
    store.close()
    assert {str(path.relative_to(tmp_path / "recording")) for path in (tmp_path / "recording").rglob("*.jsonl")} <= kept
    if version in ("3.8", "3.9"):
        done = subprocess.run([python, "-m", "paceline", "diagnose", "recording"], capture_output=True, text=True)
        assert done.returncode and "3.10" in done.stderr and len(done.stderr.strip().splitlines()) <= 2
    else:
        assert "recording" in run(str(python), "-m", "paceline", "show", "recording", cwd=tmp_path)


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10"])
def test_a_clone_installs_in_one_command(version: str, tmp_path: Path) -> None:
    python = environment(version, tmp_path / "venv")
    run(str(python), "-m", "pip", "install", "--quiet", str(ROOT))
    assert "launch" in run(str(python), "-m", "paceline", "--help", cwd=tmp_path)
    run(str(python), "-c", "import paceline.profiling, paceline.training, paceline.collect", cwd=tmp_path)


def test_a_wheel_alone_demonstrates_and_serves(wheel: Path, tmp_path: Path) -> None:
    """In an empty directory, without the clone: pages and report are in the wheel."""
    python = environment("3.11", tmp_path / "venv")
    run(str(python), "-m", "pip", "install", "--quiet", f"{wheel}[web]")
    env = {**os.environ, "PACELINE_CACHE": str(tmp_path / "cache"), "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
    empty = tmp_path / "empty"
    empty.mkdir()
    shown = run(str(python), "-m", "paceline", "demo", "--fault", "slow-rank:11:1.3", "--seed", "7", cwd=empty, env=env)
    assert "Rank 11" in shown and (empty / "paceline-demo" / "report.html").stat().st_size > 50_000
    command = [str(python), "-m", "paceline", "serve", "paceline-demo", "--port", "0"]
    with subprocess.Popen(
        command, cwd=empty, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout is not None
        address = next(found[0] for line in server.stdout if (found := re.search(r"http://[\d.]+:\d+", line)))
        pages = [fetch(f"{address}{path}") for path in ("/", "/api/v1/runs")]
        server.terminate()
    assert '<div id="app">' in pages[0] and '"runs"' in pages[1]


def fetch(address: str) -> str:
    """What a server answers; it may only just begin to listen."""
    for _ in range(100):
        try:
            with urllib.request.urlopen(address) as answer:
                return str(answer.read().decode())
        except urllib.error.URLError:
            time.sleep(0.1)
    raise AssertionError(f"{address} does not answer")


@pytest.mark.parametrize(("version", "duckdb", "numpy"), [("3.10", "1.4.*", "1.26.4"), ("3.11", "2.*", "2.*")])
def test_analysis_with_old_and_new_duckdb_and_numpy(
    version: str, duckdb: str, numpy: str, wheel: Path, tmp_path: Path
) -> None:
    python = environment(version, tmp_path / "venv")
    run(str(python), "-m", "pip", "install", "--quiet", str(wheel), f"duckdb=={duckdb}", f"numpy=={numpy}")
    env = {**os.environ, "PACELINE_CACHE": str(tmp_path / "cache")}
    run(str(python), "-m", "paceline", "simulate", "run", "--fault", "slow-rank", "--seed", "3", cwd=tmp_path, env=env)
    run(str(python), "-m", "paceline", "diagnose", "run", "--json", "found.json", cwd=tmp_path, env=env)
    assert '"slow-rank"' in (tmp_path / "found.json").read_text()


@pytest.mark.parametrize(
    ("python", "extras"),
    [
        ("3.9", "checkpoint,dask,frames,modelarts,obs,perfetto,ray,storage,web"),
        ("3.11", "checkpoint,dask,frames,modelarts,obs,perfetto,ray,storage,web"),
    ],
)
def test_a_bundle_for_aarch64_needs_no_index(python: str, extras: str, tmp_path: Path) -> None:
    words = ["--platform", "manylinux_2_28_aarch64", "--python", python, "--extras", extras, "--to", str(tmp_path)]
    told = run(sys.executable, str(ROOT / "scripts" / "bundle.py"), *words)
    assert "pip install --no-index --find-links ." in told
    names = {path.name.split("-")[0] for path in tmp_path.glob("*.whl")}
    assert {"paceline", "esdk_obs_python", "crcmod", "asyncssh", "obstore", "msgspec"} <= names
    assert ("duckdb" in names) == (python == "3.11")


def test_mindspore_keeps_its_numpy_and_still_generates_data(wheel: Path, tmp_path: Path) -> None:
    python = environment("3.11", tmp_path / "venv")
    run(str(python), "-m", "pip", "install", "--quiet", "mindspore==2.10.0", "numpy==1.26.4")
    extras = "checkpoint,dask,frames,modelarts,obs,perfetto,ray,storage,web"
    run(str(python), "-m", "pip", "install", "--quiet", f"{wheel}[{extras}]")
    assert "GeneratorDataset ok with NumPy 1.26.4" in run(str(python), "-c", _GENERATOR, cwd=tmp_path)


_GENERATOR = """
import numpy
import paceline.training, paceline.storage.stores.open_store
from mindspore.dataset import GeneratorDataset

class Rows:
    def __getitem__(self, place):
        return numpy.full(3, place, numpy.float32), numpy.int32(place)

    def __len__(self):
        return 5

data = GeneratorDataset(Rows(), ["row", "place"], shuffle=False)
found = [(float(row.asnumpy().sum()), int(place.asnumpy())) for row, place in data.create_tuple_iterator()]
assert found == [(3.0 * place, place) for place in range(5)], found
print("GeneratorDataset ok with NumPy", numpy.__version__)
"""
