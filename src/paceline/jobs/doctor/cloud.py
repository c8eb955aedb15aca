"""Checks of credentials, buckets and ModelArts, with the requests the job will make."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit

from paceline.core.errors import PacelineError
from paceline.jobs.cloud_place import bucket_urls, locate_buckets, place_of, written_urls
from paceline.jobs.description import JobDescription
from paceline.jobs.doctor.check import Check, bad, from_error, good
from paceline.storage.cloud_endpoints import CloudService
from paceline.storage.credentials import BucketAccess, find_bucket_access, find_cloud_endpoint
from paceline.storage.reachability import UnreachableError, require_reachable
from paceline.storage.stores.open_store import open_store
from paceline.storage.url import parse_url

_PROBE = b"written by paceline doctor; can be removed\n"


def buckets(job: JobDescription) -> dict[str, tuple[BucketAccess, bool]]:
    """URLs of the job that lie in buckets → how to get there, and whether the job's code or outputs go there.

    Raises what `find_bucket_access` raises: without credentials there is nothing more to check.
    """
    locate_buckets(job)
    written = written_urls(job)
    found: dict[str, tuple[BucketAccess, bool]] = {}
    for url in bucket_urls(job):
        location = parse_url(url)
        found[location.text] = find_bucket_access(location.scheme, location.host), url in written
    return found


def hosts_of(places: dict[str, tuple[BucketAccess, bool]]) -> dict[str, str]:
    """Every host name that must resolve, with the host names of buckets where addresses are virtual-hosted."""
    found: dict[str, str] = {}
    for url, (access, _) in places.items():
        host = urlsplit(access.endpoint).hostname or ""
        found[host] = access.endpoint
        if not access.path_style:
            found[f"{parse_url(url).host}.{host}"] = url
    return found


def other_hosts(job: JobDescription) -> dict[str, str]:
    """Hosts of services that only the job's nodes and other tools ask: a private site has them in /etc/hosts too."""
    wanted = [CloudService.iam, CloudService.swr]
    endpoints = [find_cloud_endpoint(service, place_of(job.modelarts)) for service in wanted]
    return {urlsplit(url).hostname or "": url for url in endpoints if url}


def try_buckets(places: dict[str, tuple[BucketAccess, bool]]) -> Iterator[Check]:
    """List where it reads; write, read back and remove a small object of our own where it writes."""
    unreachable: set[str] = set()
    for url, (_, written) in places.items():
        if parse_url(url).host in unreachable:
            continue
        try:
            require_reachable(url)
            if written:
                _write(url)
                yield good("bucket", "bucket_writable", url=url)
            else:
                yield _listed(url)
        except UnreachableError as error:
            unreachable.add(parse_url(url).host)
            yield bad("bucket", "bucket_unreachable", reason=error)
        except PacelineError as error:
            yield from_error("bucket", error)


def modelarts(job: JobDescription) -> Iterator[Check]:
    """The requests before an upload: credentials and project; then flavor, engine and pool against what is offered."""
    from paceline.jobs.modelarts.client import TrainingJobClient
    from paceline.jobs.modelarts.endpoint import find_endpoint
    from paceline.jobs.modelarts.offers import as_offered
    from paceline.storage.transfer.retry import Backoff

    try:
        place = find_endpoint(job.modelarts)
        client = TrainingJobClient(job.modelarts, Backoff(patience=5.0))
        client.flavors()
    except PacelineError as error:
        yield from_error("modelarts", error)
        return
    yield good("modelarts", "modelarts", source=place.access.source, project=place.project_id)
    try:
        for note in as_offered(job, client)[1]:
            yield good("offers", "offers_note", note=note)
    except PacelineError as error:
        yield from_error("offers", error)


def _listed(url: str) -> Check:
    store = open_store(url)
    try:
        if next(iter(store.list_files(recursive=False)), None) is None:
            return bad("bucket", "bucket_empty", url=url)
        return good("bucket", "bucket_readable", url=url)
    finally:
        store.close()


def _write(url: str) -> None:
    store = open_store(url)
    name = f".paceline-doctor-{secrets.token_hex(4)}"
    try:
        item = store.write(name, _PROBE, hashlib.md5(_PROBE, usedforsecurity=False).hexdigest())
        store.read(item, 0, item.size)
        store.remove(name)
    finally:
        store.close()
