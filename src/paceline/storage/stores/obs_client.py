"""Create clients of Huawei's OBS SDK, and translate HTTP status codes into storage errors.

Workarounds for the SDK: `ssl_verify=True` loads no certificates and never checks host names, so it gets our TLS context;
`max_retry_count` sleeps on its own, so it is 0; its parser of listings is several times slower than ours
(obs_listing.py).
"""

from __future__ import annotations

import ssl
import warnings
from typing import Any

from paceline.storage.credentials import BucketAccess
from paceline.storage.store_errors import (
    ChangedError,
    DeniedError,
    MissingError,
    StorageError,
    ThrottledError,
    TransientError,
    UnsupportedError,
)
from paceline.storage.stores.obs_listing import parse_listing_page

_TIMEOUT = 60
_CHUNK = 1 << 18


def create_client(access: BucketAccess) -> Any:
    try:
        from obs import ObsClient
    except ImportError:
        raise StorageError("esdk-obs-python is not installed", hint="pip install 'paceline[storage]'") from None
    with warnings.catch_warnings():
        # The SDK creates a deprecated TLS context; ours replaces it below.
        warnings.simplefilter("ignore", DeprecationWarning)
        client = _new_client(ObsClient, access)
    client.convertor.parseListObjects = parse_listing_page
    if access.secure:
        client.context = ssl.create_default_context(cafile=access.ca_file)
    return client


def _new_client(client_class: Any, access: BucketAccess) -> Any:
    return client_class(
        access_key_id=access.key.reveal(),
        secret_access_key=access.secret.reveal(),
        security_token=access.token.reveal() if access.token else None,
        server=access.endpoint,
        region=access.region,
        signature=access.signature,
        path_style=access.path_style,
        # The SDK would ask every bucket with a host name of its own for its version, and then sign as it likes.
        is_signature_negotiation=False,
        ssl_verify=access.ca_file or True,
        max_retry_count=0,
        timeout=_TIMEOUT,
        long_conn_mode=True,
        chunk_size=_CHUNK,
    )


def http_status_error(where: str, status: int, code: str) -> StorageError:
    """The StorageError for an HTTP status and the server's error code."""
    message = f"{where}: {code or 'error'} (HTTP {status})"
    if status in (429, 503) or code in ("SlowDown", "TooManyRequests", "RequestLimitExceeded", "ServerBusy"):
        return ThrottledError(message)
    if (
        status in (408, 409)
        or (status >= 500 and status != 501)
        or code in ("RequestTimeout", "IncompleteBody", "BadDigest")
    ):
        return TransientError(message)
    if status == 404:
        hint = "check bucket and endpoint" if code == "NoSuchBucket" else None
        return MissingError(message, hint=hint)
    if status in (301, 307):
        return StorageError(message, hint="the bucket is in another region: check region and endpoint")
    if status in (401, 403) or code == "ExpiredToken":
        return DeniedError(
            message, hint="check the credentials, the region and the system clock (docs/storage.md, Access)"
        )
    if status in (412, 416):
        return ChangedError(f"{where}: changed while it was read")
    return UnsupportedError(message) if status in (400, 501) else StorageError(message)
