"""Find ModelArts' endpoint, project and credentials: description, environment, access file."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core.errors import UsageError
from paceline.jobs.cloud_place import place_of
from paceline.jobs.description import ModelArtsSettings
from paceline.storage.cloud_endpoints import CloudService
from paceline.storage.credentials import CloudAccess, find_cloud_access, find_cloud_endpoint


@dataclass(frozen=True)
class ModelArtsEndpoint:
    """Compared by value: renewed credentials make another endpoint, and another client."""

    endpoint: str
    project_id: str
    access: CloudAccess


def find_endpoint(wanted: ModelArtsSettings) -> ModelArtsEndpoint:
    """Read again for every request, so that temporary credentials can be renewed while a job is followed."""
    access = find_cloud_access()
    project = wanted.project_id or access.project_id
    if not project:
        raise UsageError(
            "ModelArts needs a project id",
            hint="set modelarts: project_id: … in the description, or HUAWEICLOUD_SDK_PROJECT_ID (console: My Credentials)",
        )
    return ModelArtsEndpoint(endpoint_of(wanted), project, access)


def endpoint_of(wanted: ModelArtsSettings) -> str:
    """Of ModelArts, by the rule that holds for every service (storage/cloud_endpoints.py)."""
    found = find_cloud_endpoint(CloudService.modelarts, place_of(wanted))
    if not found:
        raise UsageError(
            "ModelArts needs an endpoint",
            hint="set modelarts: region: cn-north-4, or site: (an AICC's domain), or endpoint: https://…",
        )
    return found
