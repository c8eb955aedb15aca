"""Checks of credentials, buckets and ModelArts, with the requests the job will make."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit

from paceline.core.errors import PacelineError
from paceline.jobs.description import JobDescription
from paceline.jobs.doctor.check import Check, bad, from_error, good, warning
from paceline.storage.credentials import BucketAccess, find_bucket_access
from paceline.storage.stores.open_store import open_store
from paceline.storage.url import parse_url

_PROBE = b"written by paceline doctor; can be removed\n"


def buckets(job: JobDescription) -> dict[str, tuple[BucketAccess, bool]]:
    """URLs of the job that lie in buckets → how to get there, and whether the job's code or outputs go there.

    Raises what `find_bucket_access` raises: without credentials there is nothing more to check.
    """
    written = [job.code_url, job.output_url, job.log_url, *job.outputs.values()]
    found: dict[str, tuple[BucketAccess, bool]] = {}
    for url in [*written, *job.inputs.values()]:
        if url.startswith(("obs:", "s3:")):
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


def try_buckets(places: dict[str, tuple[BucketAccess, bool]]) -> Iterator[Check]:
    """List where it reads; write, read back and remove a small object of our own where it writes."""
    for url, (_, written) in places.items():
        try:
            if written:
                _write(url)
                yield good("bucket", "bucket_writable", url=url)
            else:
                yield _listed(url)
        except PacelineError as error:
            yield from_error("bucket", error)


def modelarts(job: JobDescription) -> Iterator[Check]:
    """One signed request: credentials, project and flavor."""
    from paceline.jobs.modelarts.client import TrainingJobClient
    from paceline.jobs.modelarts.endpoint import find_endpoint
    from paceline.storage.transfer.retry import Backoff

    try:
        place = find_endpoint(job.modelarts)
        flavors = TrainingJobClient(job.modelarts, Backoff(patience=5.0)).flavors()
    except PacelineError as error:
        yield from_error("modelarts", error)
        return
    yield good("modelarts", "modelarts", source=place.access.source, project=place.project_id)
    if job.flavor and not job.pool_id and job.flavor not in flavors:
        yield warning("flavor", "flavor", flavor=job.flavor, offered=", ".join(flavors[:8]))


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
