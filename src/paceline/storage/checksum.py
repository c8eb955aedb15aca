"""Checksums as S3 writes them into ETags: MD5 of the whole, or MD5 of the parts' MD5s and "-count"."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from paceline.storage.store import Data

PART = 8 << 20
_MOST_PARTS = 9_000
"""S3 and OBS allow 10,000."""
_MIB = 1 << 20
_TAG = re.compile(r"[0-9a-f]{32}(-\d{1,5})?")


def md5(data: Data) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


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
