"""Buckets (S3 and compatible) through obstore for small objects, and Huawei's SDK for large ones and listings.

obstore (Rust) is the fastest at many small objects and at ranges, but cannot resume a multipart upload; the SDK can.
Only obstore's synchronous calls are used, from threads: its asynchronous ones abort at exit. Listings come from the
SDK: obstore rewrites keys ("a/" becomes "a") and stops at names it does not accept.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from paceline.storage.credentials import BucketAccess, find_bucket_access
from paceline.storage.store_errors import ChangedError, DeniedError, MissingError, StorageError, TransientError
from paceline.storage.stored_file import Data, StoredFile
from paceline.storage.stores.client_library import has_client, require_client
from paceline.storage.stores.obs import ObsStore
from paceline.storage.stores.obs_client import http_status_error
from paceline.storage.url import StorageUrl

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig, S3Config

T = TypeVar("T")

_LARGE = 1 << 20
"""Above this the SDK is faster, because it reads into our buffer; below, its overhead per request is too high."""
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_CAUSE = re.compile(r"HTTP error: ([\w ,':-]{1,120})")


def open_bucket(url: StorageUrl) -> ObsStore:
    """obstore supports only signature v4; buckets with another one are left to Huawei's SDK."""
    if find_bucket_access(url.scheme, url.host).signature != "v4":
        require_client("obs")
        return ObsStore(url)
    if not has_client("obstore"):
        require_client("obs", "obstore")
        return ObsStore(url)  # the SDK alone can do everything, slower with small objects; obstore needs Python 3.9
    return S3Store(url)


class S3Store(ObsStore):
    _obstore_client: tuple[BucketAccess, Any] | None = None

    def stat(self, key: str) -> StoredFile | None:
        if not _obstore_accepts(key):
            return super().stat(key)
        import obstore

        try:
            return self._item(self._request(key, lambda client: obstore.head(client, self._key(key))))
        except MissingError:
            return None

    def read(self, item: StoredFile, start: int, length: int, into: memoryview | None = None) -> Data:
        if not length:
            return b""
        if length > _LARGE or not _obstore_accepts(item.key):
            return super().read(item, start, length, into)
        import obstore

        options: GetOptions = {"range": (start, start + length), "if_match": f'"{item.version}"'}
        key = self._key(item.key)
        data = self._request(item.key, lambda client: memoryview(obstore.get(client, key, options=options).bytes()))
        return self.check_length(item, data, length)

    def write(self, key: str, data: Data, md5: str) -> StoredFile:
        if not _obstore_accepts(key):
            return super().write(key, data, md5)
        import obstore

        answer = self._request(key, lambda client: obstore.put(client, self._key(key), data, use_multipart=False))
        return self.verify_written(StoredFile(key, len(data), (answer["e_tag"] or "").strip('"')), md5)

    def _client_for(self, access: BucketAccess) -> Any:
        cached = self._obstore_client
        if cached is None or cached[0] is not access:
            self._obstore_client = cached = (access, _connect(access, self.bucket))
        return cached[1]

    def _item(self, meta: Any) -> StoredFile | None:
        key = meta["path"][len(self.prefix) :]
        return StoredFile(key, int(meta["size"]), (meta["e_tag"] or "").strip('"')) if key else None

    def _request(self, key: str, call: Callable[[Any], T]) -> T:
        """Run a call with the current client; its errors become storage errors."""
        from obstore.exceptions import BaseError

        access = self.access()
        try:
            answer = call(self._client_for(access))
        except ValueError as error:
            raise StorageError(f"{self.url}/{key}: obstore does not accept this name ({error})") from error
        except (BaseError, OSError) as error:
            failure = _to_storage_error(f"{self.url}/{key}", error)
            raise (self.denied_error(access, failure) if isinstance(failure, DeniedError) else failure) from error
        self.note_accepted(access)
        return answer


def _obstore_accepts(key: str) -> bool:
    """obstore rejects tabs and other control characters in names; the SDK does not."""
    return key.isprintable()


def _to_storage_error(where: str, error: Exception) -> StorageError:
    """Only status and code: obstore's messages hold the server's whole response and internals of its own."""
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    if status:
        return http_status_error(where, int(status[1]), code[1] if code else "")
    if isinstance(error, FileNotFoundError):
        return MissingError(f"{where}: no such object")
    if type(error).__name__ == "PreconditionError":
        return ChangedError(f"{where}: changed while it was read")
    if "certificate" in text.lower():
        return DeniedError(
            f"{where}: the server's certificate is not trusted",
            hint="set the right CA file (SSL_CERT_FILE or ca_file)",
        )
    cause = _CAUSE.search(text)
    return TransientError(f"{where}: {cause[1].strip() if cause else type(error).__name__}")


@lru_cache(maxsize=8)  # a new client reads all certificates of the system, and `transfer` opens a source twice
def _connect(access: BucketAccess, bucket: str) -> Any:
    try:
        from obstore.store import S3Store as Client
    except ImportError:
        raise StorageError("obstore is not installed", hint="pip install 'paceline[storage]'") from None
    endpoint = access.endpoint
    if not access.path_style:
        parts = urlsplit(endpoint)
        endpoint = f"{parts.scheme}://{bucket}.{parts.netloc}"
    options: ClientConfig = {"timeout": "300s", "connect_timeout": "10s", "allow_http": not access.secure}
    if access.ca_file:
        options["root_certificate"] = Path(access.ca_file).read_bytes()
    config: S3Config = {"session_token": access.token.reveal()} if access.token else {}
    return Client(
        bucket,
        config=config,
        endpoint=endpoint,
        region=access.region,
        access_key_id=access.key.reveal(),
        secret_access_key=access.secret.reveal(),
        virtual_hosted_style_request=not access.path_style,
        client_options=options,
        retry_config={"max_retries": 0},
    )
