"""What the pages offer to fix, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.web.api import what_ifs


class LockedRun:
    """A run in the cache whose replay may be used by one thread at a time."""

    def __init__(self) -> None:
        self.locked = False

    def report(self, language: str) -> bytes:
        return b""

    def findings(self, language: str) -> tuple[()]:
        return ()

    @property
    def context(self) -> str:
        assert self.locked, "the connection may be busy with what the server prepares"
        return "context"

    def cached_result(self, key: tuple[str, ...], work: Callable[[], Any]) -> Any:
        self.locked = True
        try:
            return work()
        finally:
            self.locked = False


def test_possible_fixes_are_asked_of_a_locked_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(request: object, work: Callable[[], Any]) -> Any:
        return work()

    monkeypatch.setattr(what_ifs, "get_service", lambda request: SimpleNamespace(limiter=SimpleNamespace(run=run)))
    monkeypatch.setattr(what_ifs, "possible_fixes", lambda context: ["overlap", "input"])
    answer = asyncio.run(what_ifs.fixes(None, LockedRun()))  # type: ignore[arg-type]
    assert [each.fix for each in answer.fixes] == ["overlap", "input"]
