"""CRC32 of the content from the CRC32s of its parts, compared with zlib."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from paceline.storage.checksum import combine_crc32, crc32


@given(st.binary(min_size=1, max_size=500), st.integers(min_value=1, max_value=600))
def test_crc32_of_the_content_from_those_of_its_parts(data: bytes, part: int) -> None:
    sums = [crc32(data[start : start + part]) for start in range(0, len(data), part)]
    assert combine_crc32(sums, part, len(data)) == f"{zlib.crc32(data):08x}"
