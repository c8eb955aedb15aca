"""OBS's native signature, recomputed by a small server from the published rule, because no OBS is available to tests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from paceline.storage.store_errors import DeniedError
from paceline.storage.stores.obs import ObsStore
from paceline.storage.stores.open_store import open_store
from paceline.storage.transfer.transfer import transfer
from support.storage.trees import QUICK, content, write_tree

KEY, SECRET, BUCKET = "native-key", "native-secret-key", "bucket-one"


class Obs(BaseHTTPRequestHandler):
    """Put, get, head and list of one bucket; the signature of every request is checked first."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]
    signed: list[str]

    def log_message(self, *_: object) -> None:
        pass

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        key, query = unquote(url.path.lstrip("/")), parse_qs(url.query, keep_blank_values=True)
        if "apiversion" in query:
            self._say(200, headers={"x-obs-api": "3.0"})
        elif self.headers.get("Authorization") != f"OBS {KEY}:{self._signature(key)}":
            self._say(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        else:
            self.signed.append(self.command)
            self._serve(key, query, body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = do_any

    def _serve(self, key: str, query: dict[str, list[str]], body: bytes) -> None:
        if self.command == "PUT":
            self.objects[key] = body
            self._say(200, headers={"ETag": _tag(body)})
        elif not key:
            self._say(200, self._listing(query.get("prefix", [""])[0]))
        elif key not in self.objects:
            self._say(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            data = self.objects[key]
            start, _, end = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
            piece = data[int(start) : int(end or len(data)) + 1]
            self._say(206 if "Range" in self.headers else 200, piece, {"ETag": _tag(data)})

    def _signature(self, key: str) -> str:
        names = sorted(name for name in map(str.lower, self.headers) if name.startswith("x-obs-"))
        lines = [
            self.command,
            self.headers.get("Content-MD5", ""),
            self.headers.get("Content-Type", ""),
            "" if "x-obs-date" in names else self.headers["Date"],
            *(f"{name}:{self.headers[name]}" for name in names),
            urlsplit(f"/{BUCKET}/" + self.path.lstrip("/")).path,
        ]
        digest = hmac.new(SECRET.encode(), "\n".join(lines).encode(), hashlib.sha1).digest()
        return base64.b64encode(digest).decode()

    def _listing(self, prefix: str) -> bytes:
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>{_tag(data)}</ETag></Contents>"
            for key, data in sorted(self.objects.items())
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()

    def _say(self, status: int, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


@pytest.fixture
def obs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Obs]]:
    handler = type("Handler", (Obs,), {"objects": {}, "signed": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    resolve = socket.getaddrinfo

    def local(host: object, *words: object, **options: object) -> object:
        return resolve("127.0.0.1" if str(host).endswith("obs.test") else host, *words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", local)
    place = tmp_path / "access.json"
    fields = {
        "access_key": KEY,
        "secret_access_key": SECRET,
        "signature": "obs",
        "obs_endpoint": f"http://obs.test:{server.server_address[1]}",
    }
    place.write_text(json.dumps({"access_config": fields}))
    place.chmod(0o600)
    monkeypatch.setenv("PACELINE_ACCESS", str(place))
    yield handler
    server.shutdown()
    server.server_close()


def test_native_signatures_follow_the_published_rule(obs: type[Obs], tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", small=3)
    store = open_store(f"obs://{BUCKET}/run")
    assert type(store) is ObsStore
    store.close()
    assert transfer(source, f"obs://{BUCKET}/run", QUICK).failures == []
    assert {key.removeprefix("run/"): data for key, data in obs.objects.items()} == content(source)
    assert transfer(f"obs://{BUCKET}/run", tmp_path / "back", QUICK).failures == []
    assert content(tmp_path / "back") == content(source)
    assert {"PUT", "GET", "HEAD"} <= set(obs.signed)


def test_a_wrong_native_key_is_rejected(obs: type[Obs], tmp_path: Path) -> None:
    place = tmp_path / "access.json"
    place.write_text(place.read_text().replace(SECRET, "wrong-" + SECRET[::-1]))
    with pytest.raises(DeniedError):
        transfer(write_tree(tmp_path / "source"), f"obs://{BUCKET}/run", QUICK)
    assert obs.objects == {}
