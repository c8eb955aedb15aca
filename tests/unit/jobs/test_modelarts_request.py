"""The request that starts a ModelArts job: what a description may ask for is where the SDK's model has it."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.jobs.description import JobDescription, ModelArtsSettings, NfsMount, Notification

pytest.importorskip("huaweicloudsdkmodelarts")
from huaweicloudsdkcore.utils.http_utils import sanitize_for_serialization

from paceline.jobs.modelarts.request import create_request


def request_of(**keys: Any) -> dict[str, Any]:
    job = JobDescription(job_name="quick", boot_file="train.py", code_url="obs://bucket/code/", **keys)
    made = create_request(job, "quick-V1", {"train_url": "obs://bucket/out/quick-V1/train_url"}, "obs://bucket/log/")
    found: dict[str, Any] = sanitize_for_serialization(made)
    return found


def test_what_the_platform_does_for_a_job_is_asked_for() -> None:
    wanted = ModelArtsSettings(
        mounts=(NfsMount(server="192.168.0.5:/share", path="/data", read_only=True),),
        priority=3,
        restarts=2,
        restart_always=True,
        hang_restart=True,
        retention=False,
        max_hours=12,
        notification=Notification(topic_urn="urn:smn:x", events=("JobFailed",)),
    )
    made = request_of(modelarts=wanted, image="swr/x:1", command="bash run.sh", pool_id="pool-1", nodes=4)
    nfs = {"nfs_server_path": "192.168.0.5:/share", "local_path": "/data", "read_only": True}
    assert made["spec"]["volumes"] == [{"nfs": nfs}]
    assert made["spec"]["schedule_policy"] == {"priority": 3}
    assert made["spec"]["retention"] == {"policy": "disabled"}
    assert made["spec"]["notification"] == {"topic_urn": "urn:smn:x", "events": ["JobFailed"]}
    assert made["spec"]["auto_stop"] == {"time_unit": "HOURS", "duration": 12}
    assert made["spec"]["resource"] == {"pool_id": "pool-1", "node_count": 4}
    assert made["metadata"]["annotations"] == {
        "fault-tolerance/job-retry-num": "2",
        "fault-tolerance/job-unconditional-retry": "true",
        "fault-tolerance/hang-retry": "true",
    }
    assert made["algorithm"]["engine"] == {"image_url": "swr/x:1"} and made["algorithm"]["command"] == "bash run.sh"
    assert "boot_file" not in made["algorithm"], "a custom image runs its command"


def test_nothing_is_asked_for_that_nobody_wanted() -> None:
    made = request_of(flavor="modelarts.kat1.xlarge")
    assert set(made["spec"]) == {"resource", "log_export_path"} and "annotations" not in made["metadata"]
    assert made["algorithm"]["boot_file"] == "/bucket/code/train.py"
