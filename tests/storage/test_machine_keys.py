"""Keys from the machine's agency: asked for at the metadata address, kept, and renewed before they end."""

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

from paceline.storage.access import find_access
from paceline.storage.store import DeniedError


class Metadata:
    """What a cloud answers at 169.254.169.254: keys number 1, 2, 3, … that end after `minutes`."""

    def __init__(self) -> None:
        self.given, self.minutes = 0, 60.0

    def keys(self) -> bytes:
        self.given += 1
        ends = datetime.now(UTC) + timedelta(minutes=self.minutes)
        keys = {"access": f"AK-{self.given}", "secret": f"machine-secret-{self.given}",
                "securitytoken": f"machine-token-{self.given}", "expires_at": ends.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}  # fmt: skip
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


def test_the_machines_keys_are_asked_for_once_and_renewed_before_they_end(
    metadata: Metadata, access_file: Path
) -> None:
    first = find_access("obs", "bucket")
    assert (first.key.reveal(), first.secret.reveal()) == ("AK-1", "machine-secret-1")
    assert first.token is not None and first.token.reveal() == "machine-token-1"
    assert first.endpoint == "https://obs.cn-north-4.myhuaweicloud.com"
    assert find_access("obs", "bucket") == first and metadata.given == 1
    loadtoken.ECS.expires -= timedelta(minutes=55)  # five minutes left
    assert find_access("obs", "bucket").key.reveal() == "AK-2"


def test_a_machine_without_keys_is_said(access_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(loadtoken.httplib, "HTTPConnection", nobody)
    monkeypatch.setattr(loadtoken.ECS, "expires", None)
    with pytest.raises(DeniedError, match="gives no temporary keys"):
        find_access("obs", "bucket")


def test_an_unknown_kind_is_named(access_file: Path) -> None:
    access_file.write_text(json.dumps({"access_config": {"credentials": "moon"}}))
    with pytest.raises(DeniedError, match="these credentials are not known"):
        find_access("obs", "bucket")
