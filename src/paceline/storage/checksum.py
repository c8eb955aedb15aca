"""Checksums as S3 keeps them: MD5 of the whole or of the parts' MD5s (ETags), and CRC32 of the whole."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Sequence

from paceline.storage.store import Data

PART = 8 << 20
_MOST_PARTS = 9_000
"""S3 and OBS allow 10,000."""
_MIB = 1 << 20
_POLYNOMIAL = 0xEDB88320
"""Of CRC32, lowest power in the highest bit."""
_TAG = re.compile(r"[0-9a-f]{32}(-\d{1,5})?")


def md5(data: Data) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def crc32(data: Data) -> str:
    return f"{zlib.crc32(data):08x}"


def part_size(size: int) -> int:
    """The same for the same size, for ever: a tag can be computed anew from the file alone."""
    least = -(-size // _MOST_PARTS)
    return max(PART, -(-least // _MIB) * _MIB)


def likely_parts(size: int) -> tuple[int, ...]:
    """Part sizes other tools use; an object's tag tells how many parts it had, not how large they were."""
    return tuple(mib * _MIB for mib in (5, 9, 10, 15, 16, 20, 25, 32, 50, 64, 100, 128) if mib * _MIB < size)


def part_count(size: int, part: int) -> int:
    return max(1, -(-size // part))


def composite(sums: Sequence[str]) -> str:
    """
    >>> composite(["5d41402abc4b2a76b9719d911017c592"])
    '62109206880d38a4010a98e11243924a-1'
    """
    joined = b"".join(bytes.fromhex(each) for each in sums)
    return f"{md5(joined)}-{len(sums)}"


def as_tag(etag: str | None) -> str | None:
    """An ETag that looks like a checksum, without quotes; None when it is something else."""
    text = (etag or "").strip('"').lower()
    return text if _TAG.fullmatch(text) else None


def tag_fits(tag: str, part: int | None, size: int) -> bool:
    """Whether a tag is of the kind asked for: whole, or parts of this size."""
    _, dash, count = tag.partition("-")
    if part is None:
        return not dash
    return bool(dash) and int(count) == part_count(size, part)


def joined_crc32(sums: Sequence[str], part: int, size: int) -> str:
    """CRC32 of the whole from those of its parts: crc(a + b) = crc(a) · x^(8 · len(b)) + crc(b), modulo the polynomial.

    >>> joined_crc32([crc32(b"hello "), crc32(b"world")], 6, 11) == crc32(b"hello world")
    True
    """
    last = size - (len(sums) - 1) * part
    shift, last_shift = _power_of_x(8 * part), _power_of_x(8 * last)
    whole = 0
    for number, each in enumerate(sums, 1):
        whole = _times(whole, last_shift if number == len(sums) else shift) ^ int(each, 16)
    return f"{whole:08x}"


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
