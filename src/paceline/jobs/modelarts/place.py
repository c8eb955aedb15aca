"""Which ModelArts, as whom: from the description, the environment and the access file."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.errors import UsageError
from paceline.jobs.description import ModelArts
from paceline.storage.access import CloudAccess, find_cloud_access


@dataclass(frozen=True)
class Place:
    """Compares by value: renewed keys make another place, and another client."""

    endpoint: str
    project_id: str
    access: CloudAccess


def find_place(wanted: ModelArts) -> Place:
    """Looked up anew for every request, so that temporary keys can be renewed while a job is followed."""
    access = find_cloud_access()
    project = wanted.project_id or access.project_id
    if not project:
        raise UsageError(
            "ModelArts needs a project id",
            hint="modelarts: project_id: … in the description, or HUAWEICLOUD_SDK_PROJECT_ID (console: My Credentials)",
        )
    return Place(endpoint_of(wanted, access), project, access)


def endpoint_of(wanted: ModelArts, access: CloudAccess) -> str:
    """As given; else of an AICC's domain, of the access file, or of a region of the public cloud."""
    region = wanted.region or access.region
    found = (
        wanted.endpoint
        or (f"modelarts.{wanted.site}" if wanted.site else "")
        or ("" if wanted.region else access.modelarts_endpoint)
        or (f"modelarts.{region}.myhuaweicloud.com" if region else "")
    )
    if not found:
        raise UsageError(
            "which ModelArts?",
            hint="modelarts: region: cn-north-4, or site: (an AICC's domain), or endpoint: https://…",
        )
    return (found if "://" in found else f"https://{found}").rstrip("/")
