"""CRC32 of a whole from the CRC32s of its parts, against zlib's own."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from paceline.storage.checksum import crc32, joined_crc32


@given(st.binary(min_size=1, max_size=500), st.integers(min_value=1, max_value=600))
def test_the_parts_sums_join_to_the_sum_of_the_whole(data: bytes, part: int) -> None:
    sums = [crc32(data[start : start + part]) for start in range(0, len(data), part)]
    assert joined_crc32(sums, part, len(data)) == f"{zlib.crc32(data):08x}"
