"""Only who may, only what may, only below the directory."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest

from paceline import simulate
from paceline.web.security import MOST_BODY, host_name, rules_for
from support.web.servers import Serve, Server, get, post

TOKEN = "correct-horse-battery"


@pytest.fixture(scope="module")
def guarded(serve: Serve, base: Path) -> Server:
    """A server that other machines could reach: it wants a token."""
    server: Server = serve(base, "--host", "0.0.0.0", token=TOKEN)
    return server


def test_names_another_site_could_point_here_are_refused(server: Server) -> None:
    for host in (
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "[",
        "a b",
    ):
        answer = get(f"{server.url}/api/v1/runs", headers={"host": host})
        assert answer.status_code in (400, 421), host
    for host in ("localhost", "127.0.0.1:1", "LOCALHOST:80", "[::1]:8080"):
        assert get(f"{server.url}/api/v1/runs", headers={"host": host}).status_code == 200, host
    assert get(server.url, headers={"host": "10.0.0.1"}).status_code == 421


def test_numeric_addresses_are_fine_where_the_server_listens_on_all(guarded: Server) -> None:
    ok = {"authorization": f"Bearer {TOKEN}"}
    assert get(f"{guarded.url}/api/v1/runs", headers=ok | {"host": "10.1.2.3:8080"}).status_code == 200
    assert get(f"{guarded.url}/api/v1/runs", headers=ok | {"host": "evil.example"}).status_code == 421
    assert rules_for("0.0.0.0", token="x", names=("cluster.lan",)).allows_host("CLUSTER.lan:80")
    assert host_name("[::1]:8080") == "::1"


def test_without_the_right_token_nothing_is_told(guarded: Server) -> None:
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": TOKEN},
        {"cookie": "paceline=wrong"},
        {"cookie": f"paceline={TOKEN}"},
    ):
        for path in ("/api/v1/runs", "/api/v1/openapi.json", "/api/v1/runs/x/open"):
            answer = get(guarded.url + path, headers=headers)
            assert answer.status_code == 401 and "runs" not in answer.json(), (headers, path)
    page = get(f"{guarded.url}/runs/llama/overview")
    assert page.status_code == 303 and page.headers["location"] == "/login"
    assert get(f"{guarded.url}/?token=wrong").headers["location"] == "/login"


def test_the_printed_address_logs_in_and_leaves_no_token_behind(guarded: Server) -> None:
    with httpx.Client(base_url=guarded.url, timeout=600) as browser:
        first = browser.get("/runs/x/steps", params={"token": TOKEN, "step": "2"})
        assert first.status_code == 303 and first.headers["location"] == "/runs/x/steps?step=2"
        cookie = first.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie and TOKEN not in cookie
        assert browser.get("/api/v1/runs").status_code == 200


def test_the_login_form_takes_the_token_only(guarded: Server) -> None:
    with httpx.Client(base_url=guarded.url, timeout=600) as browser:
        assert "Token" in browser.get("/login").text
        assert browser.post("/login", data={"token": "wrong"}).status_code == 401
        assert browser.get("/api/v1/runs").status_code == 401
        assert browser.post("/login", data={"token": TOKEN}).status_code == 303
        assert browser.get("/api/v1/runs").status_code == 200


def test_a_redirect_stays_on_this_server(guarded: Server) -> None:
    answer = get(f"{guarded.url}//evil.example/", params={"token": TOKEN})
    assert answer.headers["location"].startswith("/") and not answer.headers["location"].startswith("//")


def test_a_token_is_made_up_and_printed_once(serve: Serve, base: Path) -> None:
    server: Server = serve(base, "--require-token")
    assert server.token is not None and len(server.token) > 30
    assert server.client.get("/runs").status_code == 401
    assert server.client.get("/runs", headers={"authorization": f"Bearer {server.token}"}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/assets/../../../../etc/passwd",
        "/assets/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/assets/..%2f..%2f..%2fpyproject.toml",
        "/runs/..%2f..%2fetc/overview",
        "/api/v1/runs/..%2f..%2f..%2fetc%2fpasswd",
        "/api/v1/runs/%2e%2e/overview",
        "/api/v1/runs/x%00y",
        "/assets//etc/passwd",
    ],
)
def test_no_path_leads_out_of_the_directory(server: Server, path: str) -> None:
    answer = _raw(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert "root:" not in answer and "[build-system]" not in answer
    status = int(answer.split(" ", 2)[1])
    assert status in (400, 404) or (status == 200 and "<!doctype html>" in answer)


def test_a_run_with_links_out_of_the_directory_is_not_read(serve: Serve, tmp_path: Path) -> None:
    spec = simulate.ClusterSpec(hosts=1, devices=2, dp=2, tp=1, pp=1, steps=1, layers=1, micro_batches=1)
    simulate.simulate(tmp_path / "secret", spec, [], "ascend-text")
    simulate.simulate(tmp_path / "served" / "run", spec, [], "ascend-text")
    rank = next((tmp_path / "secret").glob("*_ascend_pt"))
    (tmp_path / "served" / "run" / "other_ascend_pt").symlink_to(rank)
    server: Server = serve(tmp_path / "served")
    run = server.get("/runs")["runs"][0]["id"]
    server.client.post(f"/runs/{run}/open")
    for _ in range(100):
        state = server.get(f"/runs/{run}")["state"]
        if state["phase"] == "failed":
            break
    assert state["phase"] == "failed" and "leads outside" in state["message"]


def test_pages_may_load_and_send_nothing_elsewhere(server: Server) -> None:
    for path in ("/", "/api/v1/runs", "/assets/icon.svg", "/nothing"):
        headers = get(server.url + path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer" and "server" not in headers
    assert get(f"{server.url}/api/v1/runs").headers["cache-control"] == "no-store"


def test_oversized_and_malformed_requests_are_refused(server: Server) -> None:
    url = f"{server.url}/api/v1/runs"
    assert get(url, params={"q": "x" * 9000}).status_code == 414
    assert post(f"{url}/x/open", content=b"x" * (MOST_BODY + 1)).status_code == 413
    assert (
        _raw(server, "POST /api/v1/runs/x/open HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n").split()[1]
        == "400"
    )
    assert _raw(server, "nonsense\r\n\r\n").split()[1] == "400"
    assert _raw(server, "GET / HTTP/1.1\r\n\r\n").split()[1] in ("400", "421")
    assert httpx.request("DELETE", f"{url}/x", timeout=600).status_code == 405
    assert get(f"{url}?limit=999999999999999999999").status_code == 422
    assert get(f"{url}?limit=-1").status_code == 422


def test_other_pages_cannot_make_a_browser_ask(server: Server) -> None:
    url = f"{server.url}/api/v1/runs/x/open"
    assert post(url, headers={"origin": "http://evil.example"}).status_code == 403
    assert post(url, headers={"origin": "null"}).status_code == 403
    assert post(url, headers={"origin": server.url}).status_code == 404


def _raw(server: Server, request: str) -> str:
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(request.encode())
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer.decode("utf-8", "replace")
