"""Keys, buckets and ModelArts: asked, as the job will ask them."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from urllib.parse import urlsplit

from paceline.errors import PacelineError
from paceline.jobs.description import JobDescription
from paceline.jobs.doctor.check import Check, Text, bad, good, of_error, warning
from paceline.storage.access import Access, find_access
from paceline.storage.location import parse
from paceline.storage.opening import open_store

_PROBE = b"paceline doctor was here; this can be removed\n"


def buckets(job: JobDescription) -> dict[str, tuple[Access, bool]]:
    """URLs of the job that lie in buckets → how to get there, and whether the job's code or outputs go there.

    Raises what `find_access` raises: without keys there is nothing more to look at.
    """
    written = [job.code_url, job.output_url, job.log_url, *job.outputs.values()]
    found: dict[str, tuple[Access, bool]] = {}
    for url in [*written, *job.inputs.values()]:
        if url.startswith(("obs:", "s3:")):
            location = parse(url)
            found[location.url] = find_access(location.scheme, location.host), url in written
    return found


def hosts_of(places: dict[str, tuple[Access, bool]]) -> dict[str, str]:
    """Every name that must resolve; where buckets have names of their own, those too."""
    found: dict[str, str] = {}
    for url, (access, _) in places.items():
        host = urlsplit(access.endpoint).hostname or ""
        found[host] = access.endpoint
        if not access.path_style:
            found[f"{parse(url).host}.{host}"] = url
    return found


def try_buckets(places: dict[str, tuple[Access, bool]]) -> Iterator[Check]:
    """List where it reads; write, read back and remove a small object of our own where it writes."""
    for url, (_, written) in places.items():
        try:
            if written:
                _write(url)
                yield good("bucket", f"{url} can be written", f"{url} 可写")
            else:
                yield _listed(url)
        except PacelineError as error:
            yield of_error("bucket", error)


def modelarts(job: JobDescription) -> Iterator[Check]:
    """One signed request: keys, project and flavor."""
    from paceline.jobs.modelarts.cloud import Cloud
    from paceline.jobs.modelarts.place import find_place
    from paceline.storage.retry import Backoff

    try:
        place = find_place(job.modelarts)
        flavors = Cloud(job.modelarts, Backoff(patience=5.0)).flavors()
    except PacelineError as error:
        yield of_error("modelarts", error)
        return
    yield good(
        "modelarts", f"ModelArts takes the keys ({place.access.source}) for project {place.project_id}",
        f"ModelArts 接受密钥（{place.access.source}），项目 {place.project_id}",
    )  # fmt: skip
    if job.flavor and not job.pool_id and job.flavor not in flavors:
        names = ", ".join(flavors[:8])
        yield warning(
            "flavor", Text(f"flavor {job.flavor} is not offered to this project", f"该项目没有规格 {job.flavor}"),
            Text(f"offered: {names}", f"可用规格：{names}"),
        )  # fmt: skip


def _listed(url: str) -> Check:
    store = open_store(url)
    try:
        if next(iter(store.items(shallow=True)), None) is None:
            return bad(
                "bucket", Text(f"{url} is empty", f"{url} 为空"), Text("check the input's name", "请检查输入的路径")
            )
        return good("bucket", f"{url} can be read", f"{url} 可读")
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
