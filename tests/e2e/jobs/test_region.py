"""A description with a region and nothing else says where everything is; what does not answer is named within seconds."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from paceline.storage.reachability import UnreachableError
from paceline.training.session.uploader import warn_if_unreachable
from support.jobs.region import OBS, CloudRegion
from support.jobs.standin import StandIn
from support.jobs.workloads import in_the_cloud, write_job
from support.storage.servers import S3Server, paceline

SECONDS = 300.0
"""Of them most start Python on a busy machine. Whatever is retried until it answers would take longer."""


def run(*words: object, cwd: Path) -> tuple[int, str, float]:
    """Exit code, what was said on stderr, and how long it took."""
    started = time.monotonic()
    done = paceline(*words, env={**os.environ, "OBS_ENDPOINT": ""}, cwd=cwd)
    return done.returncode, done.stderr, time.monotonic() - started


def test_copy_and_ls_find_the_bucket_by_its_region_alone(
    tmp_path: Path, s3: S3Server, bucket: str, region: CloudRegion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBS_ACCESS_KEY_ID", s3.key)
    monkeypatch.setenv("OBS_SECRET_ACCESS_KEY", s3.secret)
    s3.client().putContent(bucket, "data/x", content="x")
    code, said, _ = run("ls", f"obs://{bucket}/data", cwd=tmp_path)
    assert code and "neither a region nor an endpoint" in said and "OBS_REGION" in said
    monkeypatch.setenv("OBS_REGION", "cn-north-4")
    environment = {**os.environ, "OBS_REGION": "cn-north-4"}
    shutil_env = {name: value for name, value in environment.items() if name.startswith(("OBS_", "SSL_"))}
    done = paceline("copy", f"obs://{bucket}/data", tmp_path / "home", env=shutil_env, cwd=tmp_path)
    assert done.returncode == 0 and (tmp_path / "home" / "x").read_text() == "x", done.stderr


def test_a_wrong_region_is_one_sentence(tmp_path: Path, bucket: str, modelarts: StandIn) -> None:
    job = write_job(tmp_path, **in_the_cloud(bucket, modelarts={"region": "cn-nort-4"}))
    code, said, seconds = run("job", "submit", job, cwd=tmp_path)
    assert code == 1 and seconds < SECONDS, said
    assert f"{bucket}.obs.cn-nort-4.myhuaweicloud.com does not resolve" in said and "did you mean 'cn-north-4'?" in said
    assert not modelarts.jobs


@pytest.mark.parametrize("how", ["refused", "silent"])
def test_a_bucket_that_is_down_is_one_sentence(
    tmp_path: Path, s3: S3Server, bucket: str, region: CloudRegion, modelarts: StandIn, how: str
) -> None:
    """Behind an address that refuses connections, or one that takes them and never answers."""
    job = write_job(tmp_path, **in_the_cloud(bucket))
    before = region.hosts.read_text()
    if how == "silent":
        region.silent.add("obs")
    else:
        region.hosts.write_text(before.replace(f"{region.address} {bucket}.", f"127.0.0.9 {bucket}."))
    try:
        code, said, seconds = run("job", "submit", job, cwd=tmp_path)
    finally:
        region.hosts.write_text(before)
        region.silent.clear()
    assert code == 1 and seconds < SECONDS, said
    assert f"obs://{bucket}: {bucket}.{OBS}:443 does not answer" in said and "paceline doctor" in said
    assert re.search(rf"note: waiting for {bucket}\.{re.escape(OBS)}", said), said
    assert not modelarts.jobs


def test_a_modelarts_that_is_down_is_one_sentence(
    tmp_path: Path, bucket: str, region: CloudRegion, modelarts: StandIn
) -> None:
    job = write_job(tmp_path, **in_the_cloud(bucket))
    region.silent.add("modelarts")
    code, said, seconds = run("job", "submit", job, cwd=tmp_path)
    assert code == 1 and seconds < SECONDS, said
    assert "ModelArts: modelarts.cn-north-4.myhuaweicloud.com:443 does not answer" in said


@pytest.mark.parametrize(
    "words",
    [
        ("copy", "URL", "copied"),
        ("ls", "URL"),
        ("diagnose", "URL"),
        ("watch", "URL"),
        ("bench", "score", "URL"),
        ("checkpoint", "inspect", "URL"),
        ("train", "--train_dataset_dir=URL", "--output_dir=output"),
    ],
    ids=" ".join,
)
def test_every_command_that_reads_a_bucket_names_the_host_that_does_not_resolve(
    words: tuple[str, ...],
    tmp_path: Path,
    bucket: str,
    region: CloudRegion,
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HUAWEICLOUD_SDK_AK", s3.key)
    monkeypatch.setenv("HUAWEICLOUD_SDK_SK", s3.secret)
    monkeypatch.setenv("OBS_REGION", "cn-nort-4")
    code, said, seconds = run(*(word.replace("URL", f"obs://{bucket}/data") for word in words), cwd=tmp_path)
    assert code == 1 and seconds < SECONDS, said
    assert f"{bucket}.obs.cn-nort-4.myhuaweicloud.com does not resolve" in said, said
    assert "did you mean 'cn-north-4'?" in said


def test_the_outputs_bucket_does_not_stop_training_but_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(url: str) -> None:
        raise UnreachableError(f"{url}: no.such.host does not answer", hint="check the region")

    monkeypatch.setattr("paceline.training.session.uploader.require_reachable", refuse)
    warn_if_unreachable("obs://bucket/run").join(600)
    assert "obs://bucket/run: no.such.host does not answer" in caplog.text and "training continues" in caplog.text
