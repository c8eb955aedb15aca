"""Credentials of the machine's agency: requested from the metadata service, cached, and renewed before they expire."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from obs import loadtoken

from paceline.storage.credentials import find_bucket_access
from paceline.storage.store_errors import DeniedError


class Metadata:
    """The metadata service at 169.254.169.254: credentials number 1, 2, 3, … that expire after `minutes`."""

    def __init__(self) -> None:
        self.given, self.minutes = 0, 60.0

    def keys(self) -> bytes:
        self.given += 1
        ends = datetime.now(UTC) + timedelta(minutes=self.minutes)
        keys = {
            "access": f"AK-{self.given}",
            "secret": f"machine-secret-{self.given}",
            "securitytoken": f"machine-token-{self.given}",
            "expires_at": ends.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        return json.dumps({"credential": keys}).encode()


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[Metadata]:
    made = Metadata()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def answer(self) -> None:
            body = b"a-session" if self.command == "PUT" else made.keys()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = answer

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    connection = http.client.HTTPConnection

    def elsewhere(host: str, **options: Any) -> http.client.HTTPConnection:
        assert host == "169.254.169.254"
        return connection("127.0.0.1", server.server_address[1], **options)

    monkeypatch.setattr(loadtoken.httplib, "HTTPConnection", elsewhere)
    monkeypatch.setattr(loadtoken.ECS, "expires", None)
    yield made
    server.shutdown()
    server.server_close()


@pytest.fixture
def access_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "access.json"
    place.write_text(json.dumps({"access_config": {"credentials": "ECS", "region_name": "cn-north-4"}}))
    place.chmod(0o600)
    monkeypatch.setenv("PACELINE_ACCESS", str(place))
    return place


def test_credentials_of_the_machine_are_requested_once_and_renewed_before_they_expire(
    metadata: Metadata, access_file: Path
) -> None:
    first = find_bucket_access("obs", "bucket")
    assert (first.key.reveal(), first.secret.reveal()) == ("AK-1", "machine-secret-1")
    assert first.token is not None and first.token.reveal() == "machine-token-1"
    assert first.endpoint == "https://obs.cn-north-4.myhuaweicloud.com"
    assert find_bucket_access("obs", "bucket") == first and metadata.given == 1
    loadtoken.ECS.expires -= timedelta(minutes=55)  # five minutes left
    assert find_bucket_access("obs", "bucket").key.reveal() == "AK-2"


def test_a_machine_without_credentials_is_an_error(access_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(loadtoken.httplib, "HTTPConnection", nobody)
    monkeypatch.setattr(loadtoken.ECS, "expires", None)
    with pytest.raises(DeniedError, match="no temporary credentials available"):
        find_bucket_access("obs", "bucket")


def test_an_unknown_credentials_source_is_an_error(access_file: Path) -> None:
    access_file.write_text(json.dumps({"access_config": {"credentials": "moon"}}))
    with pytest.raises(DeniedError, match="unknown value of 'credentials'"):
        find_bucket_access("obs", "bucket")
