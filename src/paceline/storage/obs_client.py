"""Huawei's SDK made ready, and what its servers' answers mean for a transfer.

Traps of the SDK, seen: `ssl_verify=True` loads no certificates and never checks host names, so it gets a context of ours;
`max_retry_count` sleeps on its own, so it is off; what it makes of a listing takes four times as long as reading it
(obs_page.py).
"""

from __future__ import annotations

import ssl
import warnings
from typing import Any

from paceline.storage.access import Access
from paceline.storage.obs_page import read_page
from paceline.storage.store import (
    ChangedError,
    DeniedError,
    MissingError,
    StorageError,
    ThrottledError,
    TransientError,
    UnsupportedError,
)

_TIMEOUT = 60
_CHUNK = 1 << 18


def connect(access: Access) -> Any:
    try:
        from obs import ObsClient
    except ImportError:
        raise StorageError("esdk-obs-python is not installed", hint="pip install 'paceline[storage]'") from None
    with warnings.catch_warnings():
        # It makes an old-style TLS context first; ours replaces it below.
        warnings.simplefilter("ignore", DeprecationWarning)
        client = _client(ObsClient, access)
    client.convertor.parseListObjects = read_page
    if access.secure:
        client.context = ssl.create_default_context(cafile=access.ca_file)
    return client


def _client(make: Any, access: Access) -> Any:
    return make(
        access_key_id=access.key.reveal(), secret_access_key=access.secret.reveal(),
        security_token=access.token.reveal() if access.token else None,
        server=access.endpoint, region=access.region, signature=access.signature, path_style=access.path_style,
        ssl_verify=access.ca_file or True, max_retry_count=0, timeout=_TIMEOUT, long_conn_mode=True,
        chunk_size=_CHUNK,
    )  # fmt: skip


def explain(where: str, status: int, code: str) -> StorageError:
    """An HTTP status and an error code as what they mean for a transfer."""
    said = f"{where}: {code or 'error'} (HTTP {status})"
    if status in (429, 503) or code in ("SlowDown", "TooManyRequests", "RequestLimitExceeded", "ServerBusy"):
        return ThrottledError(said)
    if (
        status in (408, 409)
        or (status >= 500 and status != 501)
        or code in ("RequestTimeout", "IncompleteBody", "BadDigest")
    ):
        return TransientError(said)
    if status == 404:
        hint = "check bucket and endpoint" if code == "NoSuchBucket" else None
        return MissingError(said, hint=hint)
    if status in (401, 403) or code == "ExpiredToken":
        return DeniedError(said, hint="check the keys, the region and the clock (docs/storage.md, Access)")
    if status in (412, 416):
        return ChangedError(f"{where}: changed while it was read")
    return UnsupportedError(said) if status in (400, 501) else StorageError(said)
