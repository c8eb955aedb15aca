"""Endpoints of the cloud's services (OBS, ModelArts, IAM, SWR), from what the user gives: the one place for all commands.

    what a job's description says     modelarts: region, site, endpoint
    the environment                   OBS_ENDPOINT, OBS_REGION
    the access file                   server, obs_endpoint, modelarts_endpoint, iam_endpoint, swr_endpoint, region_name, site

An endpoint in the environment wins, then the description, then the rest of the environment, then the file. A place that
names one endpoint only (obs.DOMAIN) gives the others too: a private site has one domain.
"""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import urlsplit

_REGION = re.compile(r"(?:obs|modelarts|iam|swr)\.([a-z]{2,}-[a-z]+-\d+)\.")
_DOMAINS = (("eu-west-101", "myhuaweicloud.eu"),)
"""Regions outside of the public cloud's usual domain."""
_DOMAIN = "myhuaweicloud.com"


_REGIONS = frozenset(
    (
        "af-north-1",
        "af-south-1",
        "ap-southeast-1",
        "ap-southeast-2",
        "ap-southeast-3",
        "ap-southeast-4",
        "cn-east-2",
        "cn-east-3",
        "cn-east-4",
        "cn-east-5",
        "cn-north-1",
        "cn-north-2",
        "cn-north-4",
        "cn-north-9",
        "cn-north-11",
        "cn-north-12",
        "cn-south-1",
        "cn-south-2",
        "cn-south-4",
        "cn-southwest-2",
        "cn-southwest-3",
        "eu-west-0",
        "eu-west-101",
        "la-north-2",
        "la-south-2",
        "me-east-1",
        "my-kualalumpur-1",
        "na-mexico-1",
        "ru-northwest-2",
        "sa-brazil-1",
        "tr-west-1",
    )
)
"""Of the public cloud. New ones are added: only said of a host that does not resolve, never a reason to refuse one."""


class CloudService(str, Enum):
    """Its value is the first part of its host names."""

    obs = "obs"
    modelarts = "modelarts"
    iam = "iam"
    swr = "swr"


@dataclass(frozen=True)
class CloudPlace:
    """What one source (a description, the environment, a file) says about where the cloud is; empty where it is silent."""

    region: str = ""
    site: str = ""
    """Domain of a private site."""
    endpoints: tuple[tuple[CloudService, str], ...] = field(default=())

    def named(self, service: CloudService) -> str:
        """The endpoint that is given for this service."""
        return next((with_scheme(url) for each, url in self.endpoints if each is service and url), "")

    def endpoint(self, service: CloudService) -> str:
        """The one that is given, else the one that follows from site, another endpoint's domain, or region; or empty."""
        if found := self.named(service):
            return found
        domain = self.site or self._domain() or (region_domain(self.region) if self.region else "")
        return f"https://{service.value}.{domain}" if domain else ""

    def _domain(self) -> str:
        for service, url in self.endpoints:
            host = _host(with_scheme(url)) if url else ""
            if host.startswith(f"{service.value}."):
                return host.partition(".")[2]
        return ""


def find_endpoint_of(
    service: CloudService, *, described: CloudPlace, environment: CloudPlace, stored: CloudPlace
) -> str:
    """Empty where nothing is configured."""
    if found := environment.named(service):
        return found
    # A description that names the file's own region does not mean the public endpoints of that region.
    same = described.region and described.region == stored.region and not described.site
    order = (described, environment, stored)
    if same and not described.named(service):
        order = (stored, described, environment)
    return next((found for place in order if (found := place.endpoint(service))), "")


def region_of(endpoint: str) -> str:
    """The region in an endpoint's host name; empty where there is none.

    >>> region_of("https://obs.cn-north-4.myhuaweicloud.com")
    'cn-north-4'
    """
    found = _REGION.match(_host(endpoint))
    return found[1] if found else ""


@dataclass(frozen=True)
class UnknownRegion:
    name: str
    meant: str
    """The most similar region; empty where none is similar."""


def unknown_region(host: str) -> UnknownRegion | None:
    """The region in a host name of the public cloud, if we know none of that name.

    >>> unknown_region("bucket.obs.cn-nort-4.myhuaweicloud.com")
    UnknownRegion(name='cn-nort-4', meant='cn-north-4')
    """
    found = re.search(r"(?:^|\.)(?:obs|modelarts|iam|swr)\.([\w-]+)\.myhuaweicloud\.(?:com|eu)$", host)
    if not found or found[1] in _REGIONS:
        return None
    similar = difflib.get_close_matches(found[1], sorted(_REGIONS), n=1)
    return UnknownRegion(found[1], similar[0] if similar else "")


def region_domain(region: str) -> str:
    """
    >>> region_domain("cn-north-4")
    'cn-north-4.myhuaweicloud.com'
    """
    return f"{region}.{dict(_DOMAINS).get(region, _DOMAIN)}"


def with_scheme(endpoint: str) -> str:
    found = endpoint.rstrip("/")
    return found if "://" in found else f"https://{found}"


_places: dict[str, CloudPlace] = {}
_lock = threading.Lock()


def set_bucket_place(buckets: Iterable[str], place: CloudPlace) -> None:
    """Say where these buckets are: stores are opened by URL, and a URL of a bucket does not name its region."""
    with _lock:
        for bucket in buckets:
            _places[bucket] = place


def bucket_place(bucket: str) -> CloudPlace:
    with _lock:
        return _places.get(bucket, CloudPlace())


def _host(endpoint: str) -> str:
    try:
        return urlsplit(endpoint).hostname or ""
    except ValueError:
        return ""
