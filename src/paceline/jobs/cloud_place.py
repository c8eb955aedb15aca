"""Where the cloud of a job is: region, site and endpoint of its description, for ModelArts and for its buckets."""

from __future__ import annotations

from paceline.jobs.description import JobDescription, ModelArtsSettings
from paceline.storage.cloud_endpoints import CloudPlace, CloudService, set_bucket_place
from paceline.storage.url import parse_url


def place_of(wanted: ModelArtsSettings) -> CloudPlace:
    endpoints = ((CloudService.modelarts, wanted.endpoint),) if wanted.endpoint else ()
    return CloudPlace(region=wanted.region, site=wanted.site, endpoints=endpoints)


def locate_buckets(job: JobDescription) -> None:
    """The job's buckets are where its ModelArts is: every store that is opened on them in this process knows it."""
    place = place_of(job.modelarts)
    if place != CloudPlace():
        urls = bucket_urls(job)
        set_bucket_place({parse_url(url).host for url in urls}, place)


def bucket_urls(job: JobDescription) -> list[str]:
    """Everything in the description that lies in a bucket; what the job writes comes first."""
    urls = [*written_urls(job), *job.inputs.values()]
    return [url for url in urls if url.startswith(("obs:", "s3:"))]


def written_urls(job: JobDescription) -> list[str]:
    return [url for url in (job.code_url, job.output_url, job.log_url, *job.outputs.values()) if url]
