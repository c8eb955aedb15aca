"""The peers of benchmarks/transfer.py, each as its documentation says to use it, 16 at a time.

transfer_peers.py CLIENT up SOURCE BUCKET PREFIX | CLIENT down BUCKET PREFIX TARGET
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

WORKERS = 16
ENDPOINT = os.environ["AWS_ENDPOINT_URL"]


def each(work: Callable[[Any], object], things: Iterable[Any], workers: int = WORKERS) -> None:
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(work, things):
            pass


def files(source: str) -> list[tuple[str, str]]:
    root = Path(source)
    return [(str(path), path.relative_to(root).as_posix()) for path in root.rglob("*") if path.is_file()]


def boto3_up(source: str, bucket: str, prefix: str) -> None:
    client = _boto3()
    each(lambda file: client.upload_file(file[0], bucket, f"{prefix}/{file[1]}"), files(source))


def boto3_down(bucket: str, prefix: str, target: str) -> None:
    client = _boto3()
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
    keys = [entry["Key"] for page in pages for entry in page["Contents"]]

    def fetch(key: str) -> None:
        path = Path(target) / key[len(prefix) + 1 :]
        path.parent.mkdir(parents=True, exist_ok=True)
        client.download_file(bucket, key, str(path))

    each(fetch, keys)


def _boto3() -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client("s3", endpoint_url=ENDPOINT, config=Config(max_pool_connections=64))


def esdk_up(source: str, bucket: str, prefix: str) -> None:
    client = _esdk()

    def send(file: tuple[str, str]) -> None:
        large = os.path.getsize(file[0]) > 9 << 20  # noqa: PTH202
        call = client.uploadFile if large else client.putFile
        answer = call(bucket, f"{prefix}/{file[1]}", file[0], **({"taskNum": 4} if large else {}))
        assert answer.status < 300, answer.errorCode

    each(send, files(source))


def esdk_down(bucket: str, prefix: str, target: str) -> None:
    client = _esdk()
    found, marker = [], None
    while True:
        body = client.listObjects(bucket, prefix=f"{prefix}/", marker=marker).body
        found += [(entry.key, int(entry.size)) for entry in body.contents]
        if not body.is_truncated:
            break
        marker = body.next_marker

    def fetch(entry: tuple[str, int]) -> None:
        path = Path(target) / entry[0][len(prefix) + 1 :]
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry[1] > 9 << 20:
            answer = client.downloadFile(bucket, entry[0], str(path), partSize=9 << 20, taskNum=4)
        else:
            answer = client.getObject(bucket, entry[0], downloadPath=str(path))
        assert answer.status < 300, answer.errorCode

    each(fetch, found)


def _esdk() -> Any:
    from obs import ObsClient

    return ObsClient(
        access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
        secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        server=ENDPOINT,
        signature="v4",
        region="us-east-1",
        path_style=True,
        long_conn_mode=True,
    )


def s3fs_up(source: str, bucket: str, prefix: str) -> None:
    _s3fs().put(source + "/", f"{bucket}/{prefix}/", recursive=True, batch_size=WORKERS)


def s3fs_down(bucket: str, prefix: str, target: str) -> None:
    _s3fs().get(f"{bucket}/{prefix}/", target + "/", recursive=True, batch_size=WORKERS)


def _s3fs() -> Any:
    import s3fs

    return s3fs.S3FileSystem(endpoint_url=ENDPOINT, config_kwargs={"max_pool_connections": 64})


if __name__ == "__main__":
    globals()[f"{sys.argv[1]}_{sys.argv[2]}"](*sys.argv[3:])
