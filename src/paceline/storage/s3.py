"""Buckets with obstore for everything small or many, and the SDK's parts for what is large.

obstore (Rust) is the fastest at many small objects and at ranges; it cannot resume a multipart upload, the SDK can.
Only obstore's synchronous calls are used, from threads: its asynchronous ones abort at exit. Listing is the SDK's:
obstore rewrites keys ("a/" becomes "a") and stops at names it does not like.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from paceline.storage.access import Access
from paceline.storage.obs import ObsStore
from paceline.storage.obs_client import explain
from paceline.storage.store import ChangedError, Data, DeniedError, Item, MissingError, StorageError, TransientError

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig, S3Config

T = TypeVar("T")

_LARGE = 1 << 20
"""Above, the SDK reads straight into place; below, its own work for each request is too much."""
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_CAUSE = re.compile(r"HTTP error: ([\w ,':-]{1,120})")


class S3Store(ObsStore):
    _connected: tuple[Access, Any] | None = None

    def stat(self, key: str) -> Item | None:
        if not _takes(key):
            return super().stat(key)
        import obstore

        try:
            return self._item(self._ask(key, lambda store: obstore.head(store, self._key(key))))
        except MissingError:
            return None

    def read(self, item: Item, start: int, length: int, into: memoryview | None = None) -> Data:
        if not length:
            return b""
        if length > _LARGE or not _takes(item.key):
            return super().read(item, start, length, into)
        import obstore

        wanted: GetOptions = {"range": (start, start + length), "if_match": f'"{item.version}"'}
        key = self._key(item.key)
        data = self._ask(item.key, lambda store: memoryview(obstore.get(store, key, options=wanted).bytes()))
        return self.checked(item, data, length)

    def write(self, key: str, data: Data, md5: str) -> Item:
        if not _takes(key):
            return super().write(key, data, md5)
        import obstore

        answer = self._ask(key, lambda store: obstore.put(store, self._key(key), data, use_multipart=False))
        return self.confirm(Item(key, len(data), (answer["e_tag"] or "").strip('"')), md5)

    def _fast(self, access: Access) -> Any:
        used = self._connected
        if used is None or used[0] is not access:
            self._connected = used = (access, _connect(access, self.bucket))
        return used[1]

    def _item(self, meta: Any) -> Item | None:
        key = meta["path"][len(self.prefix) :]
        return Item(key, int(meta["size"]), (meta["e_tag"] or "").strip('"')) if key else None

    def _ask(self, what: str, question: Callable[[Any], T]) -> T:
        """Ask about an object; the client's errors as what they mean for a transfer."""
        from obstore.exceptions import BaseError

        access = self.access()
        try:
            answer = question(self._fast(access))
        except ValueError as error:
            raise StorageError(f"{self.url}/{what}: the name cannot be asked for ({error})") from error
        except (BaseError, OSError) as error:
            meaning = _meaning(f"{self.url}/{what}", error)
            raise (self.refused(access, meaning) if isinstance(meaning, DeniedError) else meaning) from error
        self.taken(access)
        return answer


def _takes(key: str) -> bool:
    """obstore refuses tabs and other control characters in names; the SDK does not."""
    return key.isprintable()


def _meaning(where: str, error: Exception) -> StorageError:
    """obstore's errors carry the server's whole answer and its own insides: keep the status and the code."""
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    if status:
        return explain(where, int(status[1]), code[1] if code else "")
    if isinstance(error, FileNotFoundError):
        return MissingError(f"{where}: no such object")
    if type(error).__name__ == "PreconditionError":
        return ChangedError(f"{where}: changed while it was read")
    if "certificate" in text.lower():
        return DeniedError(
            f"{where}: the server's certificate is not trusted",
            hint="give the right CA file (SSL_CERT_FILE or ca_file)",
        )
    cause = _CAUSE.search(text)
    return TransientError(f"{where}: {cause[1].strip() if cause else type(error).__name__}")


@lru_cache(maxsize=8)  # each reads all certificates of the system, and `transfer` opens a source twice
def _connect(access: Access, bucket: str) -> Any:
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
