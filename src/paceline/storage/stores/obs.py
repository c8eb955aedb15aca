"""Buckets through Huawei's OBS SDK: native OBS signatures, and multipart uploads that can be resumed.

The SDK turns `bytes` content into text first, which is five times slower than passing a stream; so we pass streams.
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
from contextlib import suppress
from typing import Any

from paceline.storage.checksum import (
    Checksum,
    checksum_matches_parts,
    checksum_of_etag,
    common_part_sizes,
    md5,
    multipart_etag,
    part_size,
)
from paceline.storage.credentials import BucketAccess, find_bucket_access
from paceline.storage.store_errors import (
    ChangedError,
    CorruptError,
    DeniedError,
    MissingError,
    StorageError,
    TransientError,
    UnsupportedError,
)
from paceline.storage.stored_file import Data, FileContent, StoredFile
from paceline.storage.stores.base import UnfinishedUpload
from paceline.storage.stores.obs_client import create_client, http_status_error
from paceline.storage.stores.obs_listing import ListingPage
from paceline.storage.url import StorageUrl

_PAGE_SIZE = 1000
ABANDONED_AFTER = 24 * 3600.0
"""Seconds after which a multipart upload counts as abandoned: another machine may still be sending parts of a younger one."""
_NEED_BODY = frozenset(
    {"listObjects", "getObjectMetadata", "getObject", "initiateMultipartUpload", "listMultipartUploads", "listParts"}
)
"""SDK methods whose response body we use."""
_ACCESS_SECONDS = 1.0
"""How long credentials are used before they are looked up again; after a denied request they are at once."""


class ObsStore:
    is_local = False
    read_batch_size = 1
    verify_reads = True

    def __init__(self, url: StorageUrl) -> None:
        self.scheme = url.scheme
        self.url = url.text
        self.bucket = url.host
        self.prefix = f"{url.path}/" if url.path else ""
        self._clients: dict[BucketAccess, Any] = {}
        self._lock = threading.Lock()
        self._accepted: BucketAccess | None = None
        """Credentials the server has accepted."""
        self._cached_access: tuple[float, BucketAccess] | None = None
        self.server_checks_crc32 = self.access().signature == "v4"
        """Whether the server checks the CRC32 of parts; known after the first part."""

    # -- the Store interface -----------------------------------------------------------------------------------------

    def list_files(self, *, recursive: bool = True) -> Iterator[StoredFile]:
        marker = None
        while True:
            answer = self._call(
                "listObjects",
                prefix=self.prefix,
                marker=marker,
                max_keys=_PAGE_SIZE,
                delimiter=None if recursive else "/",
            )
            page: ListingPage = answer.body
            for name in () if recursive else page.prefixes:
                yield StoredFile(name[len(self.prefix) :], 0)
            for each in page.objects:
                key = each.key[len(self.prefix) :]
                if key and not key.endswith("/"):
                    yield StoredFile(key, each.size, each.etag)
            if page.next is None:
                return
            if page.next == marker:
                raise StorageError(f"{self.url}: the server returns the same page of the listing repeatedly")
            marker = page.next

    def stat(self, key: str) -> StoredFile | None:
        try:
            answer = self._call("getObjectMetadata", self._key(key))
        except MissingError:
            return None
        return StoredFile(key, int(answer.body.contentLength), answer.body.etag.strip('"'))

    def read(self, item: StoredFile, start: int, length: int, into: memoryview | None = None) -> Data:
        if not length:
            return b""
        from obs import GetObjectHeader

        # The ETag without quotes: the SDK would escape them.
        headers = GetObjectHeader(range=f"{start}-{start + length - 1}", if_match=item.version)
        answer = self._call("getObject", self._key(item.key), headers=headers)
        stream = answer.body.response
        data, filled = into if into is not None else memoryview(bytearray(length)), 0
        try:
            # From the socket into the target buffer: the SDK's own methods copy twice.
            while filled < length and (count := stream.readinto(data[filled:])):
                filled += count
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(f"{self.url}/{item.key}: response truncated ({type(error).__name__})") from error
        finally:
            # A connection can be reused only after the response was read to its end.
            stream.close() if filled == length else stream.conn.close()
        return self.check_length(item, data[:filled], length)

    def read_many(self, items: Sequence[StoredFile]) -> Iterator[tuple[StoredFile, Data]]:
        return ((item, self.read(item, 0, item.size)) for item in items)

    def write(self, key: str, data: Data, md5: str) -> StoredFile:
        from obs import PutObjectHeader

        headers = PutObjectHeader(md5=_base64(md5), contentLength=len(data))
        answer = self._call("putContent", self._key(key), content=io.BytesIO(data), headers=headers)
        return self.verify_written(StoredFile(key, len(data), answer.body.etag.strip('"')), md5)

    def write_many(self, files: Sequence[FileContent]) -> Iterator[StoredFile]:
        return (self.write(file.key, file.data, file.md5) for file in files)

    def begin_upload(
        self, key: str, size: int, *, part_size: int, resume: UnfinishedUpload | None = None, checksum: Checksum = md5
    ) -> ObsUpload:
        stored_parts = self._stored_parts(key, resume) if resume else None
        if resume and stored_parts is not None:
            return ObsUpload(self, key, size, resume.upload_id, stored_parts)
        self._abort_abandoned(self._key(key))
        # FULL_OBJECT: the server combines the parts' checksums and keeps the result for later reads.
        full_crc32 = {"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "FULL_OBJECT"}
        headers = full_crc32 if self.server_checks_crc32 else None
        try:
            answer = self._call("initiateMultipartUpload", self._key(key), extensionHeaders=headers)
        except UnsupportedError:
            self.server_checks_crc32 = False
            answer = self._call("initiateMultipartUpload", self._key(key))
        return ObsUpload(self, key, size, answer.body.uploadId, {})

    def crc32(self, item: StoredFile) -> str | None:
        if self.access().signature != "v4":
            return None
        request = {"x-amz-checksum-mode": "ENABLED"}
        header = dict(self._call("getObjectMetadata", self._key(item.key), extensionHeaders=request).header)
        if header.get("checksum-type") != "FULL_OBJECT" or header.get("etag", "").strip('"') != item.version:
            return None
        return base64.b64decode(header["checksum-crc32"]).hex() if "checksum-crc32" in header else None

    def digest(self, item: StoredFile, part: int | None) -> str | None:
        checksum = checksum_of_etag(item.version)
        return checksum if checksum and checksum_matches_parts(checksum, part, item.size) else None

    def uploaded_part_size(self, item: StoredFile) -> int | None:
        if self.digest(item, None) is not None:
            return item.size
        candidates = (part_size(item.size), *common_part_sizes(item.size))
        return next((part for part in candidates if self.digest(item, part) is not None), None)

    def etag_is_checksum(self, item: StoredFile) -> bool:
        body = self._call("getObjectMetadata", self._key(item.key)).body
        return not (body.sseKms or body.sseC)

    def remove(self, key: str) -> None:
        self._call("deleteObject", self._key(key))

    def close(self) -> None:
        with self._lock:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    # -- shared with S3Store -----------------------------------------------------------------------------------------

    def access(self) -> BucketAccess:
        """The current credentials; looked up every second, because temporary ones are renewed during long transfers."""
        now, cached = time.monotonic(), self._cached_access
        if cached is None or now - cached[0] > _ACCESS_SECONDS:
            self._cached_access = cached = (now, find_bucket_access(self.scheme, self.bucket))
        return cached[1]

    def note_accepted(self, used: BucketAccess) -> None:
        self._accepted = used

    def denied_error(self, used: BucketAccess, error: DeniedError) -> StorageError:
        """A TransientError when the credentials changed meanwhile, or when temporary ones may be renewed soon."""
        self._cached_access = None  # they may be renewed before the next request
        if find_bucket_access(self.scheme, self.bucket) != used:
            return TransientError(f"{error}; retrying with renewed credentials")
        if used.token and used.from_file and used == self._accepted:
            return TransientError(f"{error}; the temporary credentials have expired and were not renewed")
        return error

    def check_length(self, item: StoredFile, data: bytearray | Data, length: int) -> Data:
        if len(data) != length:
            raise TransientError(f"{self.url}/{item.key}: received {len(data):,} of {length:,} bytes")
        return memoryview(data)

    def verify_written(self, item: StoredFile, expected: str) -> StoredFile:
        """Compare with the ETag; where ETags are no checksums, with the content read back."""
        if checksum_of_etag(item.version) != expected and md5(self.read(item, 0, item.size)) != expected:
            raise TransientError(f"{self.url}/{item.key}: the stored object differs from the data sent")
        return item

    def _key(self, key: str) -> str:
        if not key.isascii():
            _check_is_utf8(self.url, key)
        return self.prefix + key

    def _client(self, access: BucketAccess) -> Any:
        with self._lock:
            if access not in self._clients:
                self._clients[access] = create_client(access)
            return self._clients[access]

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        where = f"{self.url} ({method})"
        access = self.access()
        try:
            answer = getattr(self._client(access), method)(self.bucket, *arguments, **options)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                raise DeniedError(
                    f"{where}: {error.verify_message}", hint="set the right CA file (SSL_CERT_FILE or ca_file)"
                ) from error
            raise TransientError(f"{where}: {type(error).__name__}: {error}") from error
        if answer.status >= 300:
            failure = http_status_error(where, answer.status, answer.errorCode or answer.reason or "")
            raise self.denied_error(access, failure) if isinstance(failure, DeniedError) else failure
        self.note_accepted(access)
        if answer.body is None and method in _NEED_BODY:
            raise TransientError(f"{where}: the response cannot be parsed")  # the SDK only logs bad XML
        return answer

    def _stored_parts(self, key: str, resume: UnfinishedUpload) -> dict[int, str] | None:
        """Parts that the server holds and the journal knows; None when the server no longer has this upload."""
        found: dict[int, str] = {}
        marker = None
        try:
            while True:
                body = self._call("listParts", self._key(key), resume.upload_id, 1000, marker).body
                for part in body.parts or []:
                    etag = part.etag.strip('"')
                    if resume.parts.get(int(part.partNumber) - 1) == etag:
                        found[int(part.partNumber) - 1] = etag
                if not body.isTruncated:
                    return found
                marker = body.nextPartNumberMarker
        except MissingError:
            return None

    def _abort_abandoned(self, key: str) -> None:
        """Abort uploads of this object that killed processes began and that were not resumed: their parts are paid for."""
        from obs import ListMultipartUploadsRequest

        with suppress(StorageError):  # who may not list uploads may still upload
            answer = self._call("listMultipartUploads", ListMultipartUploadsRequest(prefix=key))
            for upload in answer.body.upload or []:
                if upload.key == key and _age(upload.initiated) > ABANDONED_AFTER:
                    self._call("abortMultipartUpload", key, upload.uploadId)


def _age(initiated: str | None) -> float:
    """Seconds since a time as the SDK gives it: of this machine's time zone."""
    try:
        return time.time() - time.mktime(time.strptime(initiated or "", "%Y/%m/%d %H:%M:%S"))
    except ValueError:
        return 0.0


class ObsUpload:
    """A multipart upload; the server keeps the parts until it is completed."""

    def __init__(self, store: ObsStore, key: str, size: int, upload_id: str, stored_parts: dict[int, str]) -> None:
        self._store, self._key, self._size = store, key, size
        self.upload_id, self.stored_parts = upload_id, stored_parts
        self._etags = dict(stored_parts)

    def put_part(self, number: int, data: Data) -> str:
        """Verified by the server: with CRC32 where it confirms that (a fifth of the cost of MD5 here), else with MD5."""
        store, crc = self._store, _crc32(data) if self._store.server_checks_crc32 else ""
        check = {"extensionHeaders": {"x-amz-checksum-crc32": crc}} if crc else {"md5": _base64(md5(data))}
        answer = store._call(
            "uploadPart",
            store._key(self._key),
            number + 1,
            self.upload_id,
            content=io.BytesIO(data),
            partSize=len(data),
            **check,
        )
        etag = str(answer.body.etag).strip('"')
        if crc and crc not in dict(answer.header).values():
            store.server_checks_crc32 = False
            if etag != md5(data):
                raise TransientError(f"{store.url}/{self._key}: the stored part differs from the data sent")
        self._etags[number] = etag
        return etag

    def complete(self, sums: Sequence[str]) -> StoredFile:
        from obs import CompleteMultipartUploadRequest, CompletePart

        parts = [CompletePart(n + 1, f'"{self._etags[n]}"') for n in range(len(sums))]
        request = CompleteMultipartUploadRequest(parts)
        try:
            self._store._call("completeMultipartUpload", self._store._key(self._key), self.upload_id, request)
        except MissingError:
            # The response to an earlier attempt was lost: the upload is gone because it was completed.
            pass
        return self._verified(sums)

    def digest(self, part: int | None) -> str | None:
        return None

    def abort(self) -> None:
        pass

    def _verified(self, sums: Sequence[str]) -> StoredFile:
        item = self._store.stat(self._key)
        if item is None:
            raise ChangedError(f"{self._store.url}/{self._key}: removed while the upload was completed")
        # The server verified every part; the ETag shows whether they were joined in order.
        wrong = checksum_of_etag(item.version) not in (None, multipart_etag(sums)) and self._store.etag_is_checksum(
            item
        )
        if item.size != self._size or wrong:
            raise CorruptError(f"{self._store.url}/{self._key}: the stored object differs from the data sent")
        return item


def _check_is_utf8(url: str, key: str) -> None:
    """File systems accept any bytes as a name, buckets only UTF-8."""
    try:
        key.encode()
    except UnicodeEncodeError as error:
        shown = key.encode(errors="backslashreplace").decode()
        raise StorageError(f"{url}/{shown}: the name is not UTF-8", hint="rename the file") from error


def _base64(hex_digest: str) -> str:
    return base64.b64encode(bytes.fromhex(hex_digest)).decode()


def _crc32(data: Data) -> str:
    return base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
