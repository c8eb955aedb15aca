"""Temporary credentials that expire during a transfer: new ones are read from the file, and the transfer continues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from paceline.storage.transfer.retry import Backoff
from paceline.storage.transfer.transfer import transfer
from paceline.storage.transfer.transfer_pool import TransferLimits
from support.storage.faults import Proxy, Request, Status
from support.storage.servers import S3Server
from support.storage.trees import QUICK, content, write_tree


class Tokens:
    """A cloud whose tokens expire: after `lasting` requests the old one is rejected; then `renew` is called once."""

    def __init__(self, server: S3Server, file: Path) -> None:
        self.proxy = Proxy(server.endpoint)
        # Only this proxy checks tokens; the server behind it accepts all requests.
        self.proxy.withheld = frozenset({"authorization", "x-amz-security-token"})
        self.proxy.fault = self._answer
        self.file, self.valid, self.lasting = file, "token-one", 10**9
        self.used: dict[str, int] = {}
        self.refused, self.enough = 0, Event()
        self.renew: Any = lambda: self.issue("token-two")
        self.issue("token-one")

    def issue(self, token: str) -> None:
        self.valid = token
        fields = {
            "access_key": "AKIDTEMPORARY",
            "secret_access_key": "temporary-secret",
            "security_token": token,
            "obs_endpoint": self.proxy.endpoint,
        }
        fresh = self.file.with_name("fresh")
        fresh.write_text(json.dumps({"access_config": fields}))
        fresh.chmod(0o600)
        fresh.replace(self.file)

    def _answer(self, request: Request) -> Status | None:
        if self.valid == "token-one" and self.used.get("token-one", 0) >= self.lasting:
            self.valid = ""
        if request.token != self.valid:
            self.refused += 1
            if self.refused == 1:
                self.renew()
            if self.refused == 12:
                self.enough.set()
            return Status(403 if self.refused % 2 else 400, "ExpiredToken")
        self.used[request.token] = self.used.get(request.token, 0) + 1
        return None


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(tmp_path_factory.mktemp("open") / "server", anonymous=True)
    server.start()
    yield server
    server.stop(hard=True)


@pytest.fixture
def tokens(open_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tokens]:
    made = Tokens(open_server, tmp_path / "access.json")
    monkeypatch.setenv("PACELINE_ACCESS", str(made.file))
    yield made
    made.proxy.close()


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_token_that_expires_during_a_transfer_is_read_again(
    open_server: S3Server, tokens: Tokens, tmp_path: Path, way: str
) -> None:
    bucket, source = open_server.bucket(), write_tree(tmp_path / "source", large=40)
    if way == "down":
        assert transfer(source, f"obs://{bucket}/x", QUICK).failures == []
        tokens.used.clear()
    tokens.lasting = 6
    if way == "up":
        assert transfer(source, f"obs://{bucket}/x", QUICK).failures == []
    assert transfer(f"obs://{bucket}/x", tmp_path / "back", QUICK).failures == []
    assert content(tmp_path / "back") == content(source)
    assert tokens.refused and tokens.used["token-one"] == 6 and tokens.used["token-two"] > 6


def test_requests_wait_for_a_token_that_is_renewed_late(open_server: S3Server, tokens: Tokens, tmp_path: Path) -> None:
    bucket, source = open_server.bucket(), write_tree(tmp_path / "source", large=20)
    tokens.lasting = 4

    def late() -> None:
        def issue() -> None:
            tokens.enough.wait(600)
            tokens.issue("token-two")

        Thread(target=issue, daemon=True).start()

    tokens.renew = late
    assert transfer(source, f"obs://{bucket}/x", QUICK).failures == []
    assert transfer(f"obs://{bucket}/x", tmp_path / "back", QUICK).failures == []
    assert content(tmp_path / "back") == content(source)


def test_a_token_that_is_not_renewed_is_an_error_after_a_while(
    open_server: S3Server, tokens: Tokens, tmp_path: Path
) -> None:
    tokens.lasting, tokens.renew = 4, lambda: None
    impatient = replace(QUICK, limits=TransferLimits(4, Backoff(first_wait=0.01, longest_wait=0.05, patience=0.5)))
    report = transfer(write_tree(tmp_path / "source", large=20), f"obs://{open_server.bucket()}/x", impatient)
    assert report.failures and all("expired" in failure.reason for failure in report.failures)
    assert "token-one" not in str(report.failures)
