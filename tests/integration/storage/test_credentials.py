"""Credentials: sources, file permissions, renewal; and TLS."""

from __future__ import annotations

import json
import logging
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from paceline.storage.credentials import find_bucket_access
from paceline.storage.store_errors import DeniedError
from paceline.storage.stores.open_store import open_store
from paceline.storage.transfer.transfer import transfer
from support.storage.servers import S3Server
from support.storage.trees import QUICK, content, stored, write_tree

REGION = {"region_name": "cn-north-4"}


def write_access(path: Path, server: S3Server, *, secret: str | None = None, mode: int = 0o600) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = {
        "access_key": server.key,
        "secret_access_key": secret or server.secret,
        "server": "",
        "region_name": "us-east-1",
        "project_id": "",
        "iam_endpoint": "",
        "obs_endpoint": server.endpoint,
        "modelarts_endpoint": "",
    }
    path.write_text(json.dumps({"access_config": fields}))
    path.chmod(mode)


def test_missing_credentials_say_where_to_put_them() -> None:
    with pytest.raises(DeniedError, match="no credentials found") as caught:
        open_store("obs://bucket/x")
    assert "OBS_ACCESS_KEY_ID" in (caught.value.hint or "") and "access.json" in (caught.value.hint or "")


def test_the_users_file_is_rejected_when_others_can_read_it(s3: S3Server, tmp_path: Path) -> None:
    bucket, place = s3.bucket(), tmp_path / "home" / ".config" / "paceline" / "access.json"
    write_access(place, s3, mode=0o644)
    with pytest.raises(DeniedError, match="readable by other users") as caught:
        open_store(f"obs://{bucket}")
    assert "chmod 600" in (caught.value.hint or "")
    place.chmod(0o600)
    source = write_tree(tmp_path / "source")
    assert transfer(source, f"obs://{bucket}/x", QUICK).failures == []


def test_msadvisors_config_in_the_working_directory_works_with_a_warning(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    write_access(tmp_path / "obs_access_config.json", s3, mode=0o644)
    with caplog.at_level(logging.WARNING):
        assert stored(f"obs://{s3.bucket()}") == {}
    assert "credentials are readable by other users" in caplog.text and s3.secret not in caplog.text


def test_renewed_credentials_are_used_while_a_store_is_open(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "access.json"
    monkeypatch.setenv("PACELINE_ACCESS", str(place))
    write_access(place, s3, secret="expired-long-ago")
    store = open_store(f"s3://{s3.bucket()}")
    with pytest.raises(DeniedError):
        store.stat("x")
    write_access(place.with_name("new"), s3)
    place.with_name("new").replace(place)  # as the process that renews tokens should write it
    assert store.stat("x") is None and list(store.list_files()) == []
    store.close()


def test_a_bucket_may_have_its_own_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "access.json"
    monkeypatch.setenv("PACELINE_ACCESS", str(place))
    own = {"access_key": "own", "secret_access_key": "s1", "security_token": "t"}
    place.write_text(
        json.dumps({"access_config": {"access_key": "all", "secret_access_key": "s2", **REGION}, "buckets": {"b": own}})
    )
    place.chmod(0o600)
    assert find_bucket_access("obs", "b").key.reveal() == "own" and find_bucket_access("obs", "b").token is not None
    assert find_bucket_access("obs", "c").key.reveal() == "all"


@pytest.mark.parametrize(
    ("fields", "endpoint", "path_style"),
    [
        ({"region_name": "cn-north-4"}, "https://obs.cn-north-4.myhuaweicloud.com", False),
        ({"server": "obs.cn-central-221.ovaijisuan.com"}, "https://obs.cn-central-221.ovaijisuan.com", True),
        ({"obs_endpoint": "http://127.0.0.1:9000/"}, "http://127.0.0.1:9000", True),
    ],
)
def test_endpoints_from_msadvisors_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, str], endpoint: str, path_style: bool
) -> None:
    place = tmp_path / "access.json"
    monkeypatch.setenv("PACELINE_ACCESS", str(place))
    place.write_text(json.dumps({"access_config": {"access_key": "a", "secret_access_key": "b", **fields}}))
    place.chmod(0o600)
    found = find_bucket_access("obs", "bucket")
    assert (found.endpoint, found.path_style) == (endpoint, path_style)


def test_a_wrong_type_in_an_access_file_is_reported_without_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "access.json"
    monkeypatch.setenv("PACELINE_ACCESS", str(place))
    place.write_text('{"access_config": {"access_key": 12345678}}')
    place.chmod(0o600)
    with pytest.raises(DeniedError) as caught:
        find_bucket_access("obs", "b")
    assert "access_key" in str(caught.value) and "12345678" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"access_config": {"access_key": "\xff\xfe", "secret_access_key": "sssss"}}', "decode"),
        (
            b'{"access_config": {"access_key": "k", "secret_access_key": "sssss", "server": "http://["}}',
            "not a valid URL",
        ),
        (b'{"access_config": {"access_key": "k", "secret_access_key": "sssss", "server": "h:p"}}', "not a valid URL"),
        (
            b'{"access_config": {"access_key": "k", "secret_access_key": "sssss", "signature": "v9"}}',
            "unknown value of 'signature'",
        ),
        (b'{"access_key": "k", "secret_access_key": "sssss"}', "no credentials for bucket"),
        (None, "no such file"),
    ],
)
def test_an_invalid_access_file_is_one_sentence_without_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, said: str
) -> None:
    place = tmp_path / "access.json"
    monkeypatch.setenv("PACELINE_ACCESS", str(place))
    if content is not None:
        place.write_bytes(content)
        place.chmod(0o600)
    with pytest.raises(DeniedError, match=said) as caught:
        find_bucket_access("obs", "bucket")
    assert "sssss" not in str(caught.value) + str(caught.value.hint)


def test_an_access_file_with_a_byte_order_mark_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "access.json"
    monkeypatch.setenv("PACELINE_ACCESS", str(place))
    text = json.dumps({"access_config": {"access_key": "k", "secret_access_key": "s", **REGION}})
    place.write_text(text, encoding="utf-8-sig")
    place.chmod(0o600)
    assert find_bucket_access("obs", "bucket").key.reveal() == "k"


@pytest.fixture
def https(tmp_path: Path, s3: S3Server):  # type: ignore[no-untyped-def]
    """TLS in front of the S3 server, with a certificate that is not trusted yet."""
    from support.storage.faults import Proxy, _handler

    certificate = tmp_path / "cert.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=127.0.0.1",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            str(tmp_path / "key.pem"),
            "-out",
            str(certificate),
        ],
        check=True,
        capture_output=True,
    )
    inner = Proxy(s3.endpoint)
    handler: type[BaseHTTPRequestHandler] = _handler(inner)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, tmp_path / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that refuse our certificate
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_address[1]}", certificate
    server.shutdown()
    server.server_close()
    inner.close()


def test_tls_fails_until_the_ca_is_set(
    https: tuple[str, Path], bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, certificate = https
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(DeniedError, match="certificate"):  # obstore
        store = open_store(f"s3://{bucket}")
        try:
            store.stat("x")
        finally:
            store.close()
    with pytest.raises(DeniedError, match="self-signed certificate"):  # the SDK
        stored(f"s3://{bucket}")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    source = write_tree(tmp_path / "source", large=9)
    assert transfer(source, f"s3://{bucket}/x", QUICK).failures == []
    assert transfer(f"s3://{bucket}/x", tmp_path / "back", QUICK).failures == []
    assert content(tmp_path / "back") == content(source)
