"""ResponseCache given before are remembered, within bounds."""

from __future__ import annotations

from paceline.web.paging import TablePage
from paceline.web.response_cache import MOST_BYTES, ResponseCache


def test_what_was_put_is_found_and_nothing_else() -> None:
    cache = ResponseCache()
    cache.put("a", b"1")
    cache.put("b", TablePage(1, [(2,)]))
    assert cache.get("a") == b"1" and cache.get("b") == TablePage(1, [(2,)]) and cache.get("c") is None


def test_the_longest_unasked_is_forgotten_first() -> None:
    cache, block = ResponseCache(), bytes(MOST_BYTES // 10)
    for name in "abcdefghi":
        cache.put(name, block)
    assert cache.get("a") is not None
    cache.put("j", block)
    assert cache.get("b") is None and cache.get("a") is not None and cache.get("j") is not None


def test_one_answer_cannot_push_out_all_others() -> None:
    cache = ResponseCache()
    cache.put("a", b"1")
    cache.put("large", bytes(MOST_BYTES // 2))
    assert cache.get("large") is None and cache.get("a") == b"1"
