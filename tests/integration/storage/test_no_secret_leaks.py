"""Secrets do not leak into output, errors, tracebacks, the process list, the cache or stored runs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from paceline.collect.accounts import read_accounts
from paceline.core.errors import UsageError
from paceline.storage.url import parse_url
from support.collect.clusters import simulated
from support.storage.faults import Hold, Proxy, Status
from support.storage.servers import PACELINE, S3Server, paceline
from support.storage.trees import content, write_tree


@pytest.fixture
def env(faulty: str, s3: S3Server, proxy: Proxy, tmp_path: Path) -> dict[str, str]:
    token = {"PACELINE_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path / "home")}
    return s3.environment(proxy.endpoint) | token


def assert_nowhere(s3: S3Server, *texts: str) -> None:
    for text in texts:
        assert s3.secret not in text and s3.key not in text


def files_below(*places: Path) -> str:
    return "".join(f"{name} {data!r}" for place in places if place.exists() for name, data in content(place).items())


@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_not_in_output_errors_or_tracebacks(
    faulty: str, s3: S3Server, proxy: Proxy, env: dict[str, str], tmp_path: Path, debug: tuple[str, ...]
) -> None:
    source = write_tree(tmp_path / "source", large=9)
    said = []
    # A server that repeats our credentials, as some do in errors about signatures.
    echo = f"AccessDenied</Code><Message>{s3.key} {s3.secret}</Message><Code>x"
    for fault in (None, Status(403, echo), Status(500, echo), Status(503, echo)):
        proxy.fault = lambda _, fault=fault: fault
        words = (*debug, "copy", source, f"s3://{faulty}/run", "--patience", 0.2, "--json")
        done = paceline(*words, env=env)
        assert (done.returncode == 0) is (fault is None)
        said += [done.stdout, done.stderr]
    proxy.fault = lambda _: None
    wrong = paceline(*debug, "ls", f"s3://{faulty}", env=env | {"AWS_SECRET_ACCESS_KEY": s3.secret[::-1]})
    assert wrong.returncode != 0 and s3.secret[::-1] not in wrong.stderr
    assert_nowhere(s3, *said, wrong.stdout, wrong.stderr, files_below(tmp_path / "cache", tmp_path / "home"))


def test_not_in_the_process_list(faulty: str, s3: S3Server, proxy: Proxy, env: dict[str, str], tmp_path: Path) -> None:
    proxy.fault = lambda request: Hold() if request.method == "PUT" else None
    command = [str(PACELINE), "copy", str(write_tree(tmp_path / "source")), f"s3://{faulty}/run"]
    running = subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.DEVNULL)
    assert proxy.held.wait(600)
    listed = subprocess.run(["ps", "-eo", "args", "-ww"], capture_output=True, text=True, check=True).stdout
    proxy.fault = lambda _: None
    proxy.release.set()
    assert running.wait(600) == 0
    assert f"s3://{faulty}/run" in listed
    assert_nowhere(s3, listed)


def test_not_in_stored_runs_exports_or_slimmed_copies(
    faulty: str, s3: S3Server, env: dict[str, str], tmp_path: Path
) -> None:
    source = simulated(tmp_path / "job", "msadvisor")
    for words in (
        ("copy", source, f"s3://{faulty}/job"),
        ("show", f"s3://{faulty}/job"),
        ("export", f"s3://{faulty}/job", "--to", "parquet", "-o", tmp_path / "exported"),
        ("slim", f"s3://{faulty}/job", tmp_path / "slim", "--encode", "parquet"),
        ("collect", f"s3://{faulty}/job", "--ranks", 4, "-o", tmp_path / "collected"),
    ):
        done = paceline(*words, env=env)
        assert done.returncode == 0, done.stderr
        assert_nowhere(s3, done.stdout, done.stderr)
    places = [tmp_path / name for name in ("cache", "exported", "slim", "collected", "home")]
    assert_nowhere(s3, files_below(*places))


WORD = "hunter2-hunter2"


@pytest.mark.parametrize(
    "fields",
    [
        {"access_key": 5, "secret_access_key": WORD},
        {"access_key": "AK", "secret_access_key": [WORD]},
        {"access_key": "AK", "secret_access_key": {"value": WORD}},
        {"access_key": "AK", "secret_access_key": WORD, "path_style": WORD},
        {"credentials": WORD},
        [WORD],
        WORD,
    ],
)
def test_not_in_errors_about_an_invalid_access_file(tmp_path: Path, fields: object) -> None:
    place = tmp_path / "access.json"
    place.write_text(json.dumps({"access_config": fields}))
    place.chmod(0o600)
    done = paceline("--debug", "ls", "s3://bucket/x", env={"PACELINE_ACCESS": str(place)})
    assert done.returncode != 0 and str(place) in done.stderr
    assert WORD not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "account",
    [
        {"user": "root", "passwd": [WORD]},
        {"user": {"root": WORD}},
        {"user": "root", "passwd": "x", "port": WORD},
        {"user": "root", "passwd": WORD, "port": 70_000},
        {"user": "root", "passwd": WORD, "port": "-1"},
        WORD,
    ],
)
def test_not_in_errors_about_an_invalid_account_file(tmp_path: Path, account: object) -> None:
    place = tmp_path / "accounts.json"
    place.write_text(json.dumps({"cluster": {"10.0.0.1": account}}))
    place.chmod(0o600)
    with pytest.raises(UsageError) as caught:
        read_accounts(place)
    assert str(place) in str(caught.value) and WORD not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("name", ["a b", "a\nb", "", "x" * 300])
def test_an_invalid_host_name_is_an_error(tmp_path: Path, name: str) -> None:
    place = tmp_path / "accounts.json"
    place.write_text(json.dumps({"cluster": {name: {"user": "root"}}}))
    with pytest.raises(UsageError, match="is not a host name"):
        read_accounts(place)


@pytest.mark.parametrize("url", [f"ssh://root:{WORD}@host/x", "ssh://root:half@" + WORD + "/x@host/y"])
def test_not_repeated_from_a_url(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_url(url)
    assert WORD not in f"{caught.value} {caught.value.hint}"
