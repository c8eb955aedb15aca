"""The stand-in answers the vendor's SDK as ModelArts does: every request of a training job, signatures, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.jobs import load_job, submit, wait
from support.jobs.standin import PROJECT, StandIn
from support.jobs.workloads import in_the_cloud, write_job
from support.storage.servers import S3Server


def client(modelarts: StandIn, key: str, secret: str) -> Any:
    from huaweicloudsdkcore.auth.credentials import BasicCredentials
    from huaweicloudsdkmodelarts.v1 import ModelArtsClient

    builder = ModelArtsClient.new_builder().with_credentials(BasicCredentials(key, secret, PROJECT))
    return builder.with_endpoint(modelarts.endpoint).build()


def test_every_request_about_a_job_is_answered(tmp_path: Path, s3: S3Server, bucket: str, modelarts: StandIn) -> None:
    from huaweicloudsdkcore.exceptions.exceptions import ClientRequestException
    from huaweicloudsdkmodelarts import v1

    handle = submit(load_job(write_job(tmp_path, **in_the_cloud(bucket))))
    assert wait(handle, interval=0.05).succeeded
    sdk, number = client(modelarts, s3.key, s3.secret), handle.remote_id
    shown = sdk.show_training_job_details(v1.ShowTrainingJobDetailsRequest(training_job_id=number))
    assert (shown.metadata.name, shown.status.phase, shown.spec.resource.node_count) == (handle.name, "Completed", 1)
    tail = sdk.show_training_job_logs_from_aom(
        v1.ShowTrainingJobLogsFromAomRequest(training_job_id=number, task_id="worker-0", lines="1", order="desc")
    )
    assert tail.content.startswith("rank ") and tail.content.count("\n") == 1
    metrics = sdk.show_training_job_metrics(
        v1.ShowTrainingJobMetricsRequest(training_job_id=number, task_id="worker-0")
    )
    assert metrics.metrics[0].metric == "cpuUsage"
    events = sdk.list_training_job_events(v1.ListTrainingJobEventsRequest(training_job_id=number))
    assert events.events[0].message == "Training job started"
    sdk.delete_training_job(v1.DeleteTrainingJobRequest(training_job_id=number))
    with pytest.raises(ClientRequestException) as error:
        sdk.show_training_job_details(v1.ShowTrainingJobDetailsRequest(training_job_id=number))
    assert (error.value.status_code, error.value.error_code) == (404, "ModelArts.2750")
    assert modelarts.refused == []
    for key, secret in ((s3.key, "wrong"), ("somebody", s3.secret)):
        with pytest.raises(ClientRequestException) as error:
            client(modelarts, key, secret).show_training_job_flavors(v1.ShowTrainingJobFlavorsRequest())
        assert (error.value.status_code, error.value.error_code) == (401, "APIGW.0301")
    assert [why.rpartition(": ")[2] for why in modelarts.refused] == ["signature mismatch", "unknown access key"]
