"""Endpoints follow from region, site, access file or environment, for all services by one rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.storage.cloud_endpoints import CloudPlace, CloudService, bucket_place, find_endpoint_of, set_bucket_place
from paceline.storage.credentials import find_bucket_access, find_cloud_endpoint
from paceline.storage.store_errors import DeniedError

NOTHING = CloudPlace()


def all_of(
    described: CloudPlace = NOTHING, environment: CloudPlace = NOTHING, stored: CloudPlace = NOTHING
) -> set[str]:
    return {
        find_endpoint_of(service, described=described, environment=environment, stored=stored)
        for service in CloudService
    }


def public(region: str, domain: str = "myhuaweicloud.com") -> set[str]:
    return {f"https://{service.value}.{region}.{domain}" for service in CloudService}


@pytest.mark.parametrize("source", ["described", "environment", "stored"])
def test_a_region_gives_the_endpoints_of_all_services(source: str) -> None:
    assert all_of(**{source: CloudPlace(region="cn-north-4")}) == public("cn-north-4")
    assert all_of(**{source: CloudPlace(region="eu-west-101")}) == public("eu-west-101", "myhuaweicloud.eu")


def test_a_site_gives_the_endpoints_of_all_services() -> None:
    expected = {f"https://{service.value}.center.example" for service in CloudService}
    assert all_of(described=CloudPlace(site="center.example", region="cn-north-4")) == expected
    assert all_of(stored=CloudPlace(site="center.example")) == expected


def test_one_endpoint_of_a_private_site_gives_the_others() -> None:
    expected = {f"https://{service.value}.center.example" for service in CloudService}
    assert all_of(environment=CloudPlace(endpoints=((CloudService.obs, "obs.center.example"),))) == expected
    assert (
        all_of(described=CloudPlace(endpoints=((CloudService.modelarts, "https://modelarts.center.example/"),)))
        == expected
    )


def test_an_address_says_nothing_about_the_other_services() -> None:
    place = CloudPlace(endpoints=((CloudService.modelarts, "http://127.0.0.1:9"),))
    assert all_of(described=place) == {"http://127.0.0.1:9", ""}


def test_the_description_wins_over_the_file_but_its_own_region_has_the_files_endpoints() -> None:
    stored = CloudPlace(region="cn-central-221", endpoints=((CloudService.obs, "https://obs.private.example"),))
    assert all_of(described=CloudPlace(region="cn-north-4"), stored=stored) == public("cn-north-4")
    private = {f"https://{service.value}.private.example" for service in CloudService}
    assert all_of(described=CloudPlace(region="cn-central-221"), stored=stored) == private


def test_an_endpoint_of_the_environment_wins_over_everything() -> None:
    environment = CloudPlace(endpoints=((CloudService.obs, "http://127.0.0.1:7"),))
    found = find_endpoint_of(
        CloudService.obs,
        described=CloudPlace(region="cn-north-4"),
        environment=environment,
        stored=CloudPlace(region="cn-north-9"),
    )
    assert found == "http://127.0.0.1:7"


@pytest.fixture
def nothing_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OBS_ENDPOINT", "OBS_REGION", "OBS_ACCESS_KEY_ID", "S3_ACCESS_KEY_ID", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PACELINE_ACCESS", str(tmp_path / "access.json"))
    monkeypatch.setenv("HUAWEICLOUD_SDK_AK", "a")
    monkeypatch.setenv("HUAWEICLOUD_SDK_SK", "b")
    monkeypatch.setattr("paceline.storage.cloud_endpoints._places", {})
    return tmp_path / "access.json"


def test_a_bucket_is_where_its_description_says(nothing_configured: Path) -> None:
    set_bucket_place(["mine"], CloudPlace(region="cn-north-4"))
    found = find_bucket_access("obs", "mine")
    assert (found.endpoint, found.region, found.path_style) == (
        "https://obs.cn-north-4.myhuaweicloud.com",
        "cn-north-4",
        False,
    )
    assert bucket_place("other") == NOTHING
    with pytest.raises(DeniedError, match="neither a region nor an endpoint"):
        find_bucket_access("obs", "other")


def test_environment_and_file_say_where_all_services_are(
    nothing_configured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBS_REGION", "cn-north-4")
    assert find_bucket_access("obs", "b").endpoint == "https://obs.cn-north-4.myhuaweicloud.com"
    assert find_cloud_endpoint(CloudService.swr, NOTHING) == "https://swr.cn-north-4.myhuaweicloud.com"
    monkeypatch.delenv("OBS_REGION")
    fields = {"access_key": "k", "secret_access_key": "s", "server": "obs.center.example", "region_name": "center-1"}
    nothing_configured.write_text(
        json.dumps({"access_config": fields, "buckets": {"far": {**fields, "server": "", "region_name": "cn-south-1"}}})
    )
    nothing_configured.chmod(0o600)
    # Credentials of the environment, place of the file.
    assert find_bucket_access("obs", "b").endpoint == "https://obs.center.example"
    assert find_cloud_endpoint(CloudService.modelarts, NOTHING) == "https://modelarts.center.example"
    monkeypatch.delenv("HUAWEICLOUD_SDK_AK")
    assert find_bucket_access("obs", "b").region == "center-1"
    assert find_bucket_access("obs", "far").endpoint == "https://obs.cn-south-1.myhuaweicloud.com"
