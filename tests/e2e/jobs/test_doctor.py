"""paceline doctor: what would stop a job is found, and what to change is said, in two languages."""

from __future__ import annotations

import json
import os
import socket
from email.utils import formatdate
from pathlib import Path

import pytest

from paceline.jobs.doctor import Check, CheckVerdict, run_checks
from paceline.jobs.doctor.machine import _cann
from paceline.jobs.doctor.network import clock, resolve
from support.jobs.slurm_cluster import SlurmCluster
from support.jobs.standin import StandIn
from support.jobs.workloads import in_the_cloud, write_job
from support.storage.faults import Proxy, Status
from support.storage.servers import S3Server, paceline


def found(path: Path | None) -> dict[str, Check]:
    """The worst check of each kind."""
    order = list(CheckVerdict)
    result: dict[str, Check] = {}
    for check in run_checks(path):
        if check.id not in result or order.index(check.verdict) > order.index(result[check.id].verdict):
            result[check.id] = check
    return result


def test_a_job_that_can_run_is_good_and_leaves_nothing_behind(
    tmp_path: Path, s3: S3Server, bucket: str, modelarts: StandIn
) -> None:
    s3.client().putContent(bucket, "data/x", content="x")
    job = write_job(tmp_path, **in_the_cloud(bucket, inputs={"data_url": f"obs://{bucket}/data"}))
    done = paceline("doctor", job, "--json", env=dict(os.environ), cwd=tmp_path)
    said = json.loads(done.stdout)
    assert done.returncode == 0, [each for each in said["checks"] if each["verdict"] != "good"]
    assert said["ok"] and said["schema"] == "paceline.doctor/1"
    assert {check["id"] for check in said["checks"]} == {
        "description",
        "versions",
        "disk",
        "name",
        "endpoint",
        "clock",
        "bucket",
        "modelarts",
    }
    assert {item.key for item in s3.client().listObjects(bucket).body.contents} == {"data/x"}


def test_a_bucket_that_takes_nothing_is_found_before_the_job(
    tmp_path: Path, bucket: str, proxy: Proxy, modelarts: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBS_ENDPOINT", proxy.endpoint)
    proxy.fault = lambda request: Status(403, "AccessDenied") if request.method == "PUT" else None
    checks = found(write_job(tmp_path, **in_the_cloud(bucket, flavor="modelarts.kat1.7xlarge")))
    assert checks["bucket"].verdict is CheckVerdict.bad and "AccessDenied" in checks["bucket"].found["en"]
    assert checks["offers"].verdict is CheckVerdict.bad and "modelarts.kat1.2xlarge" in checks["offers"].found["zh"]


def test_wrong_keys_and_no_keys_are_told_apart(
    tmp_path: Path, s3: S3Server, bucket: str, modelarts: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = write_job(tmp_path, **in_the_cloud(bucket))
    modelarts.keys = {s3.key: "another secret"}
    try:
        checks = found(job)
    finally:
        modelarts.keys = {s3.key: s3.secret}
    assert checks["bucket"].verdict is CheckVerdict.good and "signature mismatch" in checks["modelarts"].found["en"]
    for name in ("HUAWEICLOUD_SDK_AK",):
        monkeypatch.delenv(name)
    checks = found(job)
    assert checks["keys"].verdict is CheckVerdict.bad and "endpoint" not in checks


def test_names_nobody_knows_become_lines_for_etc_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = {"localhost": "", "bucket.localhost.invalid": "", "modelarts.site.invalid": ""}
    *good, bad = resolve(hosts)
    assert [check.verdict for check in good] == [CheckVerdict.good] and bad.advice
    assert bad.advice["en"].splitlines()[1:] == [
        "<address>  bucket.localhost.invalid",
        "<address>  modelarts.site.invalid",
    ]
    assert "/etc/hosts" in bad.advice["zh"]


def test_a_region_or_a_site_says_which_hosts_are_needed(
    tmp_path: Path, bucket: str, modelarts: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all services, and no others: a private site has no public DNS."""
    for said, domain in (
        ({"region": "cn-north-9"}, "cn-north-9.myhuaweicloud.com"),
        ({"site": "cn-central-221.center.example"}, "cn-central-221.center.example"),
    ):
        check = found(write_job(tmp_path, **in_the_cloud(bucket, modelarts=said)))["name"]
        assert check.verdict is CheckVerdict.bad and check.advice
        asked = {line.split()[1] for line in check.advice["en"].splitlines()[1:]}
        services = {f"{service}.{domain}" for service in ("obs", "modelarts", "iam", "swr")}
        assert asked - services <= {f"{bucket}.obs.{domain}"} and asked >= services
    only_optional = list(resolve({"localhost": "", "iam.site.invalid": ""}, frozenset({"iam.site.invalid"})))
    assert [check.verdict for check in only_optional] == [CheckVerdict.good, CheckVerdict.warning]


def test_a_bucket_is_where_its_service_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if host != "obs.private":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.9", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    *_, bad = resolve({"obs.private": "", "bucket.obs.private": ""})
    assert bad.advice and bad.advice["en"].endswith("10.0.0.9  bucket.obs.private")


@pytest.mark.parametrize(
    ("apart", "verdict"), [(5, CheckVerdict.good), (-120, CheckVerdict.warning), (1000, CheckVerdict.bad)]
)
def test_a_clock_is_as_bad_as_signatures_say(apart: int, verdict: CheckVerdict) -> None:
    (check,) = clock("http://x", formatdate(1_000_000, usegmt=True), 1_000_000 + apart)
    assert check.verdict is verdict
    assert list(clock("http://x", "nonsense", 0.0)) == [] == list(clock("http://x", None, 0.0))


def test_the_toolkit_is_named_as_people_know_it(tmp_path: Path) -> None:
    (tmp_path / "version.cfg").write_text("# version: 1.0\nruntime_running_version=[7.3.0.1.231:8.0.RC2]\n")
    assert _cann(tmp_path) == "8.0.RC2" and _cann(tmp_path / "absent") == ""


def test_a_wrong_description_and_no_description_still_say_what_is_here(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("job_nam: x\n")
    checks = found(tmp_path / "job.yaml")
    assert (
        "did you mean 'job_name'?" in checks["description"].found["en"]
        and checks["versions"].verdict is CheckVerdict.good
    )
    done = paceline("doctor", "--lang", "zh", env={}, cwd=tmp_path)
    assert done.returncode == 0 and "剩余" in done.stdout


def test_slurm_is_asked(tmp_path: Path, slurm: SlurmCluster) -> None:
    job = write_job(tmp_path, backend="slurm")
    check = found(job)["slurm"]
    assert check.verdict is CheckVerdict.good and "tests* " in check.found["en"]
