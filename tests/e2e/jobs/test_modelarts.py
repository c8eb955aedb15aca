"""ModelArts through the vendor's SDK, against a stand-in that checks signatures and runs what it is told to."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from paceline.core.errors import PacelineError, UsageError
from paceline.jobs import JobHandle, JobPhase, JobStatus, LogPiece, backend_for, load_job, submit, wait
from paceline.jobs.job_registry import find_record, list_records, save_record
from paceline.jobs.outputs import is_benchmark_result
from paceline.jobs.submission import recover_handle
from paceline.storage.store_errors import DeniedError
from paceline.storage.transfer.retry import Backoff
from support.jobs.standin import Fault, StandIn
from support.jobs.workloads import in_the_cloud, write_job
from support.storage.faults import Proxy, Status
from support.storage.servers import S3Server


def keys_of(s3: S3Server, bucket: str, prefix: str = "") -> set[str]:
    return {item.key for item in s3.client().listObjects(bucket, prefix=prefix).body.contents}


def started(directory: Path, bucket: str, modelarts: StandIn, **keys: object) -> JobHandle:
    return submit(load_job(write_job(directory, **in_the_cloud(bucket, **keys))))


def test_a_job_runs_with_its_code_inputs_and_outputs_in_the_bucket(
    tmp_path: Path, s3: S3Server, bucket: str, modelarts: StandIn
) -> None:
    s3.client().putContent(bucket, "data/train.txt", content="words")
    handle = started(
        tmp_path,
        bucket,
        modelarts,
        nodes=2,
        inputs={"data_url": f"obs://{bucket}/data/"},
        hyperparameters={"steps": 3},
        pre_start={"agent": False, "log_levels": {"GLOG_v": 2}},
    )
    said = {0: "", 1: ""}

    def hear(piece: LogPiece) -> None:
        said[piece.worker] += piece.text

    outcome = wait(handle, on_log=hear, interval=0.05)
    assert outcome.succeeded and modelarts.refused == []
    assert [worker.exit_code for worker in outcome.status.workers] == [0, 0]
    assert [(each.name, each.cards, each.cpu) for each in outcome.utilisation] == [
        ("worker-0", 0.5, 0.5),
        ("worker-1", 0.7, 0.5),
    ]
    names = [f"modelarts-job-{handle.remote_id}-worker-{number}.log" for number in (0, 1)]
    assert [Path(log).name for log in outcome.logs] == names
    first = (handle.logs / names[0]).read_text()
    assert "rank 1 step 2 of GLOG_v=2" in first and "input: ['train.txt']" in first
    assert said == {number: (handle.logs / name).read_text() for number, name in enumerate(names)}
    assert f"out/{handle.name}/throughput_3.json" in keys_of(s3, bucket)
    home = backend_for(handle).fetch_outputs(handle, tmp_path / "home", is_benchmark_result)
    assert [float(path.read_text()) for path in sorted((home / "train_url").iterdir())] == [100.5, 101.5, 102.5, 103.5]


def test_a_refused_upload_stops_before_anything_is_started(
    tmp_path: Path, bucket: str, proxy: Proxy, modelarts: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original went on with whatever code was in the bucket."""
    monkeypatch.setenv("OBS_ENDPOINT", proxy.endpoint)
    proxy.fault = lambda request: Status(403, "AccessDenied") if request.method == "PUT" else None
    with pytest.raises(PacelineError, match="AccessDenied"):
        started(tmp_path, bucket, modelarts)
    assert not modelarts.jobs and not list_records()
    assert not [request for request in modelarts.seen if request.endswith("/training-jobs")]


def test_a_lost_answer_does_not_start_the_job_twice(tmp_path: Path, bucket: str, modelarts: StandIn) -> None:
    modelarts.faults += [
        Fault(r"POST .*/training-jobs$", 500),
        Fault(r"POST .*/training-jobs$", "cut"),
        Fault(r"POST .*/training-jobs$", "lost"),
    ]
    handle = started(tmp_path, bucket, modelarts)
    assert [job.id for job in modelarts.jobs.values()] == [handle.remote_id]
    assert wait(handle, interval=0.05).succeeded


def test_following_survives_errors_lost_connections_and_unknown_phases(
    tmp_path: Path, bucket: str, modelarts: StandIn
) -> None:
    gate = tmp_path / "gate"
    handle = started(tmp_path, bucket, modelarts, hyperparameters={"wait_for": str(gate)})
    shown = r"GET .*/training-jobs/[^/]+$"
    modelarts.faults += [Fault(shown, 500), Fault(shown, "cut"), Fault(shown, 429), Fault(shown, "lost")]
    modelarts.faults += [Fault(r"preview$", 503), Fault(r"preview$", "cut")]
    modelarts.jobs[handle.remote_id].shown = ["never heard: its answer is lost", "Hibernating", "Moonlighting"]
    seen: list[tuple[JobPhase, str]] = []

    def look(status: JobStatus) -> None:
        seen.append((status.phase, status.detail))
        if status.phase is JobPhase.running:
            gate.touch()

    outcome = wait(handle, on_status=look, interval=0.05)
    assert outcome.succeeded and not outcome.warnings
    assert seen[:2] == [(JobPhase.unknown, "Hibernating"), (JobPhase.unknown, "Moonlighting")]
    assert all(fault.count == 0 for fault in modelarts.faults)
    log = (handle.logs / handle.log_name(0)).read_text()
    assert sorted(line for line in log.splitlines() if "step 0" in line) == [
        f"rank {rank} step 0 of GLOG_v=None" for rank in (0, 1)
    ]


def test_a_network_that_is_gone_for_long_does_not_end_the_following(
    tmp_path: Path, bucket: str, modelarts: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "paceline.jobs.modelarts.client._BACKOFF", Backoff(first_wait=0.02, longest_wait=0.05, patience=0.2)
    )
    gate = tmp_path / "gate"
    handle = started(tmp_path, bucket, modelarts, hyperparameters={"wait_for": str(gate)})
    job, troubles = modelarts.jobs[handle.remote_id], list[str]()

    def lose(status: JobStatus) -> None:
        if status.phase is JobPhase.running:
            modelarts.away()

    def trouble(text: str) -> None:
        troubles.append(text)
        if len(troubles) == 2:  # first the logs, then the status: meanwhile the job ends
            gate.touch()
            job.join()
            modelarts.back()

    outcome = wait(handle, on_status=lose, on_trouble=trouble, interval=0.05)
    assert outcome.succeeded and "the job keeps running" in troubles[1]
    assert (handle.logs / handle.log_name(0)).read_text().count("step 1") == 2


def test_a_failed_worker_is_named_and_its_logs_are_brought(tmp_path: Path, bucket: str, modelarts: StandIn) -> None:
    handle = started(tmp_path, bucket, modelarts, nodes=2, hyperparameters={"fail": 2, "steps": 1})
    outcome = wait(handle, interval=0.05)
    assert outcome.status.phase is JobPhase.failed
    assert "worker-1: exit code 3 training failed" in outcome.status.reason
    assert "rank 2 step 0" in (handle.logs / handle.log_name(1)).read_text()
    assert json.loads((Path(handle.directory) / "outcome.json").read_text())["schema"] == "paceline.job-outcome/1"


def test_only_the_job_with_exactly_this_name_is_stopped(tmp_path: Path, bucket: str, modelarts: StandIn) -> None:
    gate = str(tmp_path / "never")
    similar = started(
        tmp_path / "a", bucket, modelarts, job_name="gpt2-large", naming="exact", hyperparameters={"wait_for": gate}
    )
    meant = started(
        tmp_path / "b", bucket, modelarts, job_name="gpt2", naming="exact", hyperparameters={"wait_for": gate}
    )
    backend = backend_for(meant)
    found = backend.find(meant.job, "gpt2", tmp_path)
    assert found.remote_id == meant.remote_id
    with pytest.raises(UsageError, match="job not found"):
        backend.find(meant.job, "gpt", tmp_path)
    modelarts.jobs[meant.remote_id].body["metadata"]["name"] = "renamed"
    with pytest.raises(UsageError, match="not stopped"):
        backend.stop(meant)
    modelarts.jobs[meant.remote_id].body["metadata"]["name"] = "gpt2"
    backend.stop(meant)
    assert wait(meant, interval=0.05).status.phase is JobPhase.stopped
    assert not backend.status(similar).finished


def test_versions_count_up_from_exactly_this_name(tmp_path: Path, bucket: str, modelarts: StandIn) -> None:
    names = [
        started(tmp_path / str(number), bucket, modelarts, job_name=name, naming="version").name
        for number, name in enumerate(["bert", "bert-large", "bert-large", "bert"])
    ]
    assert names == ["bert-V1", "bert-large-V1", "bert-large-V2", "bert-V2"]


def test_expired_keys_do_not_end_the_following_and_new_ones_are_used(
    tmp_path: Path, s3: S3Server, bucket: str, modelarts: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = tmp_path / "access.json"

    def renew(token: str) -> None:
        fields = {
            "access_key": s3.key,
            "secret_access_key": s3.secret,
            "security_token": token,
            "project_id": "0123456789abcdef0123456789abcdef",
            "obs_endpoint": s3.endpoint,
        }
        fresh = access.with_name("fresh")
        fresh.write_text(json.dumps({"access_config": fields}))
        fresh.chmod(0o600)
        fresh.replace(access)

    gate = tmp_path / "gate"
    handle = started(tmp_path, bucket, modelarts, hyperparameters={"wait_for": str(gate)})
    for name in ("HUAWEICLOUD_SDK_AK", "HUAWEICLOUD_SDK_PROJECT_ID"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PACELINE_ACCESS", str(access))
    modelarts.tokens = {"first"}
    renew("first")
    troubles: list[str] = []

    def expire(status: JobStatus) -> None:
        if status.phase is JobPhase.running and modelarts.tokens == {"first"}:
            modelarts.tokens = {"second"}
            gate.touch()

    def trouble(text: str) -> None:
        troubles.append(text)
        renew("second")

    outcome = wait(handle, on_status=expire, on_trouble=trouble, interval=0.05)
    assert outcome.succeeded
    assert any("token has expired" in text and str(access) in text for text in troubles)
    assert s3.secret not in "".join(troubles)


def test_stale_files_are_said_and_a_pre_start_script_is_written(
    tmp_path: Path, s3: S3Server, bucket: str, modelarts: StandIn
) -> None:
    s3.client().putContent(bucket, "code/run/old.whl", content="old")
    write_job(tmp_path)
    (tmp_path / "code" / "ma-pre-start.sh").write_text("#!/bin/bash\nexport MINE=1\nexport SINGLESERVER_MODE=True\n")
    handle = started(
        tmp_path,
        bucket,
        modelarts,
        pre_start={"agent": False, "log_levels": {"GLOG_v": 1}, "commands": ["echo before"]},
    )
    assert "run/old.whl" in handle.warnings[0]
    script = s3.client().getObject(bucket, "code/ma-pre-start.sh", loadStreamInMemory=True).body.buffer.decode()
    assert script.splitlines()[:2] == ["#!/bin/bash", "export MINE=1"] and "SINGLESERVER_MODE" not in script
    assert wait(handle, interval=0.05).succeeded
    assert "before\n" in (handle.logs / handle.log_name(0)).read_text()
    assert "SINGLESERVER" in (tmp_path / "code" / "ma-pre-start.sh").read_text(), "the user's own file is not touched"


def test_a_preview_that_is_too_short_is_made_up_for_by_the_bucket(
    tmp_path: Path, bucket: str, modelarts: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modelarts, "preview", 100)
    handle = started(tmp_path, bucket, modelarts, hyperparameters={"steps": 200})
    assert wait(handle, interval=0.05).succeeded
    lines = (handle.logs / handle.log_name(0)).read_text().splitlines()
    assert sum("step" in line for line in lines) == 400


def test_wrong_keys_are_found_before_the_upload(
    tmp_path: Path, s3: S3Server, bucket: str, modelarts: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUAWEICLOUD_SDK_SK", "not-the-secret")
    with pytest.raises(DeniedError, match="signature mismatch"):
        started(tmp_path, bucket, modelarts)
    assert not keys_of(s3, bucket)


def test_outputs_that_are_missing_are_said(tmp_path: Path, bucket: str, modelarts: StandIn) -> None:
    write_job(tmp_path)
    job = in_the_cloud(bucket)
    handle = submit(load_job(write_job(tmp_path, code="print('nothing written')", **job)))
    assert wait(handle, interval=0.05).succeeded
    with pytest.raises(PacelineError, match="no matching output found"):
        backend_for(handle).fetch_outputs(handle, tmp_path / "home")


def test_a_job_whose_number_was_never_heard_is_found_by_its_exact_name(
    tmp_path: Path, bucket: str, modelarts: StandIn
) -> None:
    handle = started(tmp_path, bucket, modelarts)
    save_record(msgspec.structs.replace(handle, remote_id=""))  # as it is when we are killed while it starts
    assert recover_handle(find_record(handle.id).handle) == handle == find_record(handle.remote_id).handle
    assert wait(handle, interval=0.05).succeeded
    with pytest.raises(UsageError, match="never started"):
        recover_handle(msgspec.structs.replace(handle, remote_id="", name="quick"))


def test_a_follower_that_was_killed_while_it_wrote_leaves_no_line_twice(
    tmp_path: Path, bucket: str, modelarts: StandIn
) -> None:
    gate = tmp_path / "gate"
    handle = started(tmp_path, bucket, modelarts, hyperparameters={"wait_for": str(gate)})
    log, backend = handle.logs / handle.log_name(0), backend_for(handle)
    while not log.exists() or log.read_text().count("step 0") < 2:
        backend.sync_logs(handle)
    with log.open("a") as file:
        file.write("rank 0 step 1 of GLO")  # appended, and killed before that was written down
    gate.touch()
    assert wait(handle, interval=0.05).succeeded
    assert sorted(log.read_text().splitlines()) == [
        f"rank {rank} step {step} of GLOG_v=None" for rank in (0, 1) for step in (0, 1)
    ]


def test_a_start_that_nobody_knows_of_is_kept_and_found_out_later(
    tmp_path: Path, bucket: str, modelarts: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "paceline.jobs.modelarts.client._BACKOFF", Backoff(first_wait=0.02, longest_wait=0.05, patience=0.2)
    )
    modelarts.faults += [Fault(r"POST .*/training-jobs$", "lost")]
    made = modelarts.create

    def start_and_go(body: dict[str, object]) -> tuple[int, object]:
        modelarts.gone = True
        return made(body)

    monkeypatch.setattr(modelarts, "create", start_and_go)
    with pytest.raises(PacelineError, match="it is not known whether the job was started"):
        started(tmp_path, bucket, modelarts)
    modelarts.gone = False
    (record,) = list_records()
    assert wait(recover_handle(record.handle), interval=0.05).succeeded
