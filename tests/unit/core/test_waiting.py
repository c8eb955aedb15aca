"""A wait is named after two seconds, the innermost one only, and in a library nothing is said."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from paceline.core import waiting
from paceline.core.waiting import note_wait, show_waits, waiting_for


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.setattr(waiting, "FIRST", 0.01)
    monkeypatch.setattr(waiting, "_shown", {})
    found: list[str] = []
    show_waits(found.append)
    yield found
    show_waits(None)


class PassesOnce(threading.Event):
    """An event that is not set at the first wait, and set at the second: no time passes."""

    def wait(self, timeout: float | None = None) -> bool:
        before = self.is_set()
        self.set()
        return before


def test_a_long_wait_is_named_and_a_short_one_is_not(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    heard = threading.Event()
    show_waits(lambda text: (said.append(text), heard.set())[0])
    with waiting_for("the bucket"):
        assert heard.wait(600)
    assert said[0].startswith("waiting for the bucket (")
    said.clear()
    monkeypatch.setattr(waiting, "FIRST", 60.0)
    with waiting_for("something quick"):
        pass
    assert not said


def test_only_the_innermost_wait_is_named(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FIRST", 60.0)
    with waiting_for("ModelArts at https://host"):
        outer = waiting._waits[-1]
        with waiting_for("the bucket"):
            waiting._tell(outer, "ModelArts at https://host", said.append, PassesOnce())
            waiting._tell(waiting._waits[-1], "the bucket", said.append, PassesOnce())
            assert said == ["waiting for the bucket (0 s)"]
        waiting._tell(outer, "ModelArts at https://host", said.append, PassesOnce())
    assert said[1:] == ["waiting for ModelArts at https://host (0 s)"]


def test_the_same_reason_is_noted_once(said: list[str]) -> None:
    for _ in range(3):
        note_wait("obs://b: HTTP 503; retrying for up to 300 s")
    assert len(said) == 1


def test_a_library_is_silent() -> None:
    show_waits(None)
    before = threading.active_count()
    with waiting_for("anybody"):
        assert threading.active_count() == before
    note_wait("nothing")
