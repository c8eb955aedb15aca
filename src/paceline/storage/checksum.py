"""Checksums as S3 defines them: ETags (MD5 of the content, or of the parts' MD5s) and CRC32 of the content."""

from __future__ import annotations

import hashlib
import re
import sys
import zlib
from collections.abc import Sequence
from typing import Callable

from paceline.storage.stored_file import Data

Checksum = Callable[[Data], str]
"""A checksum in hexadecimal: `md5` or `crc32`."""
MIN_PART_SIZE = 8 << 20
_MAX_PARTS = 9_000
"""S3 and OBS allow 10,000."""
_MIB = 1 << 20
_POLYNOMIAL = 0xEDB88320
"""Of CRC32, with the lowest power in the highest bit."""
_ETAG = re.compile(r"[0-9a-f]{32}(-\d{1,5})?")


def new_md5(data: Data = b"") -> hashlib._Hash:
    """An MD5 to update: a checksum here, so FIPS builds of Python allow it where it can be marked as one (from 3.9 on)."""
    if sys.version_info >= (3, 9):
        return hashlib.md5(data, usedforsecurity=False)
    return hashlib.md5(data)


def md5(data: Data) -> str:
    return new_md5(data).hexdigest()


def crc32(data: Data) -> str:
    return f"{zlib.crc32(data):08x}"


def part_size(size: int) -> int:
    """Depends on the file size only, and must never change: an ETag can then be recomputed from the file alone."""
    least = -(-size // _MAX_PARTS)
    return max(MIN_PART_SIZE, -(-least // _MIB) * _MIB)


def common_part_sizes(size: int) -> tuple[int, ...]:
    """Part sizes that other tools use; an ETag shows the number of parts, not their size."""
    return tuple(mib * _MIB for mib in (5, 9, 10, 15, 16, 20, 25, 32, 50, 64, 100, 128) if mib * _MIB < size)


def part_count(size: int, part: int) -> int:
    return max(1, -(-size // part))


def multipart_etag(sums: Sequence[str]) -> str:
    """The ETag of an object uploaded in parts with these MD5s.

    >>> multipart_etag(["5d41402abc4b2a76b9719d911017c592"])
    '62109206880d38a4010a98e11243924a-1'
    """
    joined = b"".join(bytes.fromhex(each) for each in sums)
    return f"{md5(joined)}-{len(sums)}"


def checksum_of_etag(etag: str | None) -> str | None:
    """The ETag without quotes if it has the form of a checksum, else None."""
    text = (etag or "").strip('"').lower()
    return text if _ETAG.fullmatch(text) else None


def checksum_matches_parts(checksum: str, part: int | None, size: int) -> bool:
    """Whether a checksum is one of parts of this size (None: one of the whole content)."""
    _, dash, count = checksum.partition("-")
    if part is None:
        return not dash
    return bool(dash) and int(count) == part_count(size, part)


def combine_crc32(sums: Sequence[str], part: int, size: int) -> str:
    """CRC32 of the content from the CRC32s of its parts: crc(a + b) = crc(a) · x^(8 · len(b)) + crc(b) mod polynomial.

    >>> combine_crc32([crc32(b"hello "), crc32(b"world")], 6, 11) == crc32(b"hello world")
    True
    """
    last = size - (len(sums) - 1) * part
    shift, last_shift = _power_of_x(8 * part), _power_of_x(8 * last)
    combined = 0
    for number, each in enumerate(sums, 1):
        combined = _times(combined, last_shift if number == len(sums) else shift) ^ int(each, 16)
    return f"{combined:08x}"


def _power_of_x(exponent: int) -> int:
    result, square = 1 << 31, 1 << 30  # 1 and x
    while exponent:
        if exponent & 1:
            result = _times(result, square)
        square = _times(square, square)
        exponent >>= 1
    return result


def _times(left: int, right: int) -> int:
    product = 0
    for bit in range(31, -1, -1):
        if left >> bit & 1:
            product ^= right
        right = right >> 1 ^ (_POLYNOMIAL if right & 1 else 0)
    return product
