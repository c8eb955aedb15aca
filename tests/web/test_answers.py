"""Answers given before are remembered, within bounds."""

from __future__ import annotations

from paceline.web.answers import MOST_BYTES, Answers
from paceline.web.paging import Page


def test_what_was_put_is_found_and_nothing_else() -> None:
    answers = Answers()
    answers.put("a", b"1")
    answers.put("b", Page(1, [(2,)]))
    assert answers.get("a") == b"1" and answers.get("b") == Page(1, [(2,)]) and answers.get("c") is None


def test_the_longest_unasked_is_forgotten_first() -> None:
    answers, block = Answers(), bytes(MOST_BYTES // 10)
    for name in "abcdefghi":
        answers.put(name, block)
    assert answers.get("a") is not None
    answers.put("j", block)
    assert answers.get("b") is None and answers.get("a") is not None and answers.get("j") is not None


def test_one_answer_cannot_push_out_all_others() -> None:
    answers = Answers()
    answers.put("a", b"1")
    answers.put("large", bytes(MOST_BYTES // 2))
    assert answers.get("large") is None and answers.get("a") == b"1"
