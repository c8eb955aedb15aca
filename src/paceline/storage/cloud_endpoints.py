"""Endpoints of the cloud's services (OBS, ModelArts, IAM, SWR), from what the user gives: the one place for all commands.

    what a job's description says     modelarts: region, site, endpoint
    the environment                   OBS_ENDPOINT, OBS_REGION
    the access file                   server, obs_endpoint, modelarts_endpoint, iam_endpoint, swr_endpoint, region_name, site

An endpoint in the environment wins, then the description, then the rest of the environment, then the file. A place that
names one endpoint only (obs.DOMAIN) gives the others too: a private site has one domain.
"""

from __future__ import annotations

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
