"""Buckets through Huawei's own SDK: native OBS signatures, and parts that can be resumed.

A trap of the SDK, seen: bytes as content are turned into text first (five times slower; a stream is not).
"""

from __future__ import annotations

import base64
import http.client
import io
import ssl
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from paceline.storage.access import Access, find_access
from paceline.storage.checksum import as_tag, composite, likely_parts, md5, part_size, tag_fits
from paceline.storage.location import Location
from paceline.storage.obs_client import connect, explain
from paceline.storage.obs_page import Page
from paceline.storage.store import (
    ChangedError,
    Content,
    CorruptError,
    Data,
    DeniedError,
    Item,
    MissingError,
    Resume,
    StorageError,
    Sum,
    TransientError,
    UnsupportedError,
)

_PAGE = 1000
_TELLING = frozenset({"listObjects", "getObjectMetadata", "getObject", "initiateMultipartUpload", "listParts"})
"""Calls whose answer is needed."""
_LOOK_AGAIN = 1.0
"""Seconds after which keys are looked up anew, unless a server refuses them before."""


class ObsStore:
    local = False
    batch = 1
    checks_on_read = True

    def __init__(self, location: Location) -> None:
        self.location = location
        self.url = location.url
        self.bucket = location.host
        self.prefix = f"{location.path}/" if location.path else ""
        self._clients: dict[Access, Any] = {}
        self._lock = threading.Lock()
        self._worked: Access | None = None
        """Keys the server has taken."""
        self._looked: tuple[float, Access] | None = None
        self.takes_crc = self.access().signature == "v4"
        """Whether the server checks CRC32 of parts; found out with the first."""

    # -- what the protocol asks for ----------------------------------------------------------------------------------

    def items(self, *, shallow: bool = False) -> Iterator[Item]:
        marker = None
        while True:
            answer = self._call(
                "listObjects", prefix=self.prefix, marker=marker, max_keys=_PAGE, delimiter="/" if shallow else None
            )
            page: Page = answer.body
            for name in page.prefixes if shallow else ():
                yield Item(name[len(self.prefix) :], 0)
            for each in page.objects:
                key = each.key[len(self.prefix) :]
                if key and not key.endswith("/"):
                    yield Item(key, each.size, each.etag)
            if page.next is None:
                return
            if page.next == marker:
                raise StorageError(f"{self.url}: the server lists the same names again and again")
            marker = page.next

    def stat(self, key: str) -> Item | None:
        try:
            answer = self._call("getObjectMetadata", self._key(key))
        except MissingError:
            return None
        return Item(key, int(answer.body.contentLength), answer.body.etag.strip('"'))

    def read(self, item: Item, start: int, length: int, into: memoryview | None = None) -> Data:
        if not length:
            return b""
        from obs import GetObjectHeader

        # Without quotes: the SDK would escape them.
        wanted = GetObjectHeader(range=f"{start}-{start + length - 1}", if_match=item.version)
        answer = self._call("getObject", self._key(item.key), headers=wanted)
        stream = answer.body.response
        data, filled = into if into is not None else memoryview(bytearray(length)), 0
        try:
            # Straight from the socket into its place: the SDK's own ways copy twice.
            while filled < length and (count := stream.readinto(data[filled:])):
                filled += count
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(f"{self.url}/{item.key}: answer cut off ({type(error).__name__})") from error
        finally:
            # Only an answer that was read whole leaves a connection that can be used again.
            stream.close() if filled == length else stream.conn.close()
        return self.checked(item, data[:filled], length)

    def read_many(self, items: Sequence[Item]) -> Iterator[tuple[Item, Data]]:
        return ((item, self.read(item, 0, item.size)) for item in items)

    def write(self, key: str, data: Data, md5: str) -> Item:
        from obs import PutObjectHeader

        headers = PutObjectHeader(md5=_base64(md5), contentLength=len(data))
        answer = self._call("putContent", self._key(key), content=io.BytesIO(data), headers=headers)
        return self.confirm(Item(key, len(data), answer.body.etag.strip('"')), md5)

    def write_many(self, files: Sequence[Content]) -> Iterator[Item]:
        return (self.write(file.key, file.data, file.md5) for file in files)

    def begin(self, key: str, size: int, part: int, resume: Resume | None, total: Sum = md5) -> ObsUpload:
        done = self._parts(key, resume) if resume else None
        if resume and done is not None:
            return ObsUpload(self, key, size, resume.state, done)
        # Of the whole: the server joins the parts' sums and keeps the result for those who read it.
        wanted = {"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "FULL_OBJECT"} if self.takes_crc else None
        try:
            answer = self._call("initiateMultipartUpload", self._key(key), extensionHeaders=wanted)
        except UnsupportedError:
            self.takes_crc = False
            answer = self._call("initiateMultipartUpload", self._key(key))
        return ObsUpload(self, key, size, answer.body.uploadId, {})

    def crc32(self, item: Item) -> str | None:
        if self.access().signature != "v4":
            return None
        ask = {"x-amz-checksum-mode": "ENABLED"}
        told = dict(self._call("getObjectMetadata", self._key(item.key), extensionHeaders=ask).header)
        whole = told.get("checksum-type") == "FULL_OBJECT" and told.get("etag", "").strip('"') == item.version
        return base64.b64decode(told["checksum-crc32"]).hex() if whole and "checksum-crc32" in told else None

    def digest(self, item: Item, part: int | None) -> str | None:
        tag = as_tag(item.version)
        return tag if tag and tag_fits(tag, part, item.size) else None

    def part(self, item: Item) -> int | None:
        if self.digest(item, None) is not None:
            return item.size
        usual = (part_size(item.size), *likely_parts(item.size))
        return next((part for part in usual if self.digest(item, part) is not None), None)

    def vouches(self, item: Item) -> bool:
        body = self._call("getObjectMetadata", self._key(item.key)).body
        return not (body.sseKms or body.sseC)

    def remove(self, key: str) -> None:
        self._call("deleteObject", self._key(key))

    def close(self) -> None:
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    # -- shared with the fast store ----------------------------------------------------------------------------------

    def access(self) -> Access:
        """Looked up again and again: temporary keys are renewed while a long transfer runs."""
        now, looked = time.monotonic(), self._looked
        if looked is None or now - looked[0] > _LOOK_AGAIN:
            self._looked = looked = (now, find_access(self.location.scheme, self.bucket))
        return looked[1]

    def taken(self, used: Access) -> None:
        self._worked = used

    def refused(self, used: Access, error: DeniedError) -> StorageError:
        """Worth another try when other keys are there by now, or temporary ones that did work may be renewed soon."""
        self._looked = None  # whoever renews them may do so before the next request
        if find_access(self.location.scheme, self.bucket) != used:
            return TransientError(f"{error}; there are new keys")
        if used.token and used.from_file and used == self._worked:
            return TransientError(f"{error}; the temporary keys have expired and nobody renewed them")
        return error

    def checked(self, item: Item, data: bytearray | Data, length: int) -> Data:
        if len(data) != length:
            raise TransientError(f"{self.url}/{item.key}: {len(data):,} of {length:,} bytes arrived")
        return memoryview(data)

    def confirm(self, item: Item, expected: str) -> Item:
        """A tag that is not the MD5 is either damage or a bucket whose tags are no checksums: read back and see."""
        if as_tag(item.version) != expected and md5(self.read(item, 0, item.size)) != expected:
            raise TransientError(f"{self.url}/{item.key}: the stored object is not what was sent")
        return item

    def _key(self, key: str) -> str:
        if not key.isascii():
            _refuse_undecodable(self.url, key)
        return self.prefix + key

    def _client(self, access: Access) -> Any:
        with self._lock:
            if access not in self._clients:
                self._clients[access] = connect(access)
            return self._clients[access]

    def _call(self, method: str, *words: Any, **options: Any) -> Any:
        where = f"{self.url} ({method})"
        access = self.access()
        try:
            answer = getattr(self._client(access), method)(self.bucket, *words, **options)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                raise DeniedError(
                    f"{where}: {error.verify_message}", hint="give the right CA file (SSL_CERT_FILE or ca_file)"
                ) from error
            raise TransientError(f"{where}: {type(error).__name__}: {error}") from error
        if answer.status >= 300:
            meaning = explain(where, answer.status, answer.errorCode or answer.reason or "")
            raise self.refused(access, meaning) if isinstance(meaning, DeniedError) else meaning
        self.taken(access)
        if answer.body is None and method in _TELLING:
            raise TransientError(f"{where}: the answer cannot be read")  # the SDK only logs bad XML
        return answer

    def _parts(self, key: str, resume: Resume) -> dict[int, str] | None:
        """Parts the server really holds and that are ours; None: it does not know this upload any more."""
        found: dict[int, str] = {}
        marker = None
        try:
            while True:
                body = self._call("listParts", self._key(key), resume.state, 1000, marker).body
                for part in body.parts or []:
                    tag = part.etag.strip('"')
                    if resume.parts.get(int(part.partNumber) - 1) == tag:
                        found[int(part.partNumber) - 1] = tag
                if not body.isTruncated:
                    return found
                marker = body.nextPartNumberMarker
        except MissingError:
            return None


class ObsUpload:
    """A multipart upload; the server keeps the parts until it is completed."""

    def __init__(self, store: ObsStore, key: str, size: int, state: str, done: dict[int, str]) -> None:
        self._store, self._key, self._size = store, key, size
        self.state, self.done = state, done
        self._tags = dict(done)

    def put(self, number: int, data: Data) -> str:
        """Checked by the server: with CRC32 where it says it did (a fifth of MD5's cost here), else with MD5."""
        store, crc = self._store, _crc32(data) if self._store.takes_crc else ""
        check = {"extensionHeaders": {"x-amz-checksum-crc32": crc}} if crc else {"md5": _base64(md5(data))}
        answer = store._call(
            "uploadPart", store._key(self._key), number + 1, self.state,
            content=io.BytesIO(data), partSize=len(data), **check,
        )  # fmt: skip
        tag = str(answer.body.etag).strip('"')
        if crc and crc not in dict(answer.header).values():
            store.takes_crc = False
            if tag != md5(data):
                raise TransientError(f"{store.url}/{self._key}: the stored part is not what was sent")
        self._tags[number] = tag
        return tag

    def finish(self, sums: Sequence[str]) -> Item:
        from obs import CompleteMultipartUploadRequest, CompletePart

        parts = [CompletePart(n + 1, f'"{self._tags[n]}"') for n in range(len(sums))]
        request = CompleteMultipartUploadRequest(parts)
        try:
            self._store._call("completeMultipartUpload", self._store._key(self._key), self.state, request)
        except MissingError:
            # The answer to an earlier try was lost: the upload is gone because it was completed.
            pass
        return self._verified(sums)

    def digest(self, part: int | None) -> str | None:
        return None

    def leave(self) -> None:
        pass

    def _verified(self, sums: Sequence[str]) -> Item:
        item = self._store.stat(self._key)
        if item is None:
            raise ChangedError(f"{self._store.url}/{self._key}: vanished while it was completed")
        # Every part was checked by the server; the tag tells whether they are together in order.
        wrong = as_tag(item.version) not in (None, composite(sums)) and self._store.vouches(item)
        if item.size != self._size or wrong:
            raise CorruptError(f"{self._store.url}/{self._key}: the stored object is not what was sent")
        return item


def _refuse_undecodable(url: str, key: str) -> None:
    """File systems take any bytes as a name, buckets only UTF-8."""
    try:
        key.encode()
    except UnicodeEncodeError as error:
        shown = key.encode(errors="backslashreplace").decode()
        raise StorageError(f"{url}/{shown}: the name is not UTF-8", hint="rename the file") from error


def _base64(hex_digest: str) -> str:
    return base64.b64encode(bytes.fromhex(hex_digest)).decode()


def _crc32(data: Data) -> str:
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
