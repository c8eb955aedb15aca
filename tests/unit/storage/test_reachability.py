"""A host that does not resolve is named with what to check, also where the name server is silent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from paceline.jobs.doctor.network import resolve
from paceline.storage import reachability
from paceline.storage.cloud_endpoints import UnknownRegion, unknown_region
from paceline.storage.reachability import HostLookup, UnreachableError, require_answer

HOST = "obs.cn-north-4.myhuaweicloud.com"


@pytest.fixture
def silent_name_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    released = threading.Event()

    def ask(*_: object, **__: object) -> list[object]:
        released.wait(600)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    monkeypatch.setattr(reachability, "PATIENCE", 0.05)
    yield
    released.set()


def unknown_name(*_: object, **__: object) -> list[object]:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def failure_of(host: str) -> UnreachableError:
    with pytest.raises(UnreachableError) as caught:
        require_answer(f"https://{host}", what="obs://bucket")
    return caught.value


def test_a_silent_name_server_is_not_waited_for(silent_name_server: None) -> None:
    error = failure_of(HOST)
    assert f"obs://bucket: the host name {HOST} does not resolve (no answer of the name server" in str(error)
    assert error.hint and "/etc/resolv.conf" in error.hint


def test_doctor_waits_for_all_names_at_once(silent_name_server: None) -> None:
    (check,) = resolve({HOST: "", f"bucket.{HOST}": "", "modelarts.site": ""})
    assert check.found["en"].startswith("the name server does not answer") and "modelarts.site" in check.found["en"]
    assert check.advice and "/etc/resolv.conf" in check.advice["zh"]


def test_a_region_that_does_not_exist_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", unknown_name)
    hint = failure_of("bucket.obs.cn-nort-4.myhuaweicloud.com").hint
    assert hint and hint.startswith("unknown region 'cn-nort-4', did you mean 'cn-north-4'?")
    (check,) = resolve({"obs.cn-nort-4.myhuaweicloud.com": ""})
    assert check.advice and "most similar region: cn-north-4" in check.advice["en"]
    hint = failure_of(HOST).hint
    assert hint and hint.startswith("check the region or site")


@pytest.mark.parametrize(
    ("host", "found"),
    [
        (HOST, None),
        ("obs.cn-central-221.ovaijisuan.com", None),
        ("modelarts.mars.myhuaweicloud.com", UnknownRegion("mars", "")),
        ("b.obs.cn-noth-4.myhuaweicloud.com", UnknownRegion("cn-noth-4", "cn-north-4")),
    ],
)
def test_only_hosts_of_the_public_cloud_have_a_region(host: str, found: UnknownRegion | None) -> None:
    assert unknown_region(host) == found


def test_an_address_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.9", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)
    lookup = HostLookup("obs.private")
    lookup.wait()
    assert (lookup.addresses, lookup.failure) == (["10.0.0.9"], "")
