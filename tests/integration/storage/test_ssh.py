"""SSH hosts with a real sshd: both directions, host keys verified, lost connections."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from paceline.core.errors import UsageError
from paceline.storage.store_errors import DeniedError, TransientError
from paceline.storage.stores.open_store import open_store
from paceline.storage.stores.ssh import SshStore
from paceline.storage.stores.ssh_connection import SshLogin
from paceline.storage.transfer.transfer import Prune, TransferOptions, transfer
from paceline.storage.url import parse_url
from support.storage.servers import SshHost, make_home, paceline
from support.storage.trees import IMPATIENT, ODD_NAMES, QUICK, content, stored, visible, write_tree


@pytest.fixture
def host(hosts: list[SshHost]) -> SshHost:
    return hosts[0]


def test_a_tree_is_unchanged_after_upload_and_download(host: SshHost, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=20, small=40)
    there = tmp_path / "there"
    up = transfer(source, host.url(there), QUICK)
    assert up.failures == [] and content(there) == content(source)
    down = transfer(host.url(there), tmp_path / "back", QUICK)
    assert down.failures == [] and content(tmp_path / "back") == content(source)
    again = transfer(host.url(there), tmp_path / "back", QUICK)
    assert (again.moved, again.same) == (0, len(ODD_NAMES) + 41)


def test_without_a_journal_the_hosts_md5sum_shows_what_is_unchanged(
    host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_tree(tmp_path / "source", large=9)
    transfer(source, host.url(tmp_path / "there"), QUICK)
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "another"))
    (tmp_path / "there" / "-dash").write_bytes(b"x" * (source / "-dash").stat().st_size)
    again = transfer(source, host.url(tmp_path / "there"), QUICK)
    assert (again.moved, again.failures) == (1, [])
    assert content(tmp_path / "there") == content(source)


def test_an_unknown_host_key_is_rejected(host: SshHost, tmp_path: Path) -> None:
    make_home(Path(os.environ["HOME"]), [])
    with pytest.raises(DeniedError, match="host key is not in known_hosts") as caught:
        stored(host.url(tmp_path))
    assert f"ssh-keyscan -p {host.port} {host.address}" in (caught.value.hint or "")


def test_a_changed_host_key_is_rejected(hosts: list[SshHost], tmp_path: Path) -> None:
    pretender = hosts[1].known.replace(f"[{hosts[1].address}]:{hosts[1].port}", f"[{hosts[0].address}]:{hosts[0].port}")
    (Path(os.environ["HOME"]) / ".ssh" / "known_hosts").write_text(pretender)
    with pytest.raises(DeniedError, match="differs from the one there"):
        stored(hosts[0].url(tmp_path))


def test_an_unauthorized_key_is_rejected(host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(make_home(tmp_path / "stranger", [host])))
    with pytest.raises(DeniedError, match="login refused"):
        stored(host.url(tmp_path))


def test_an_unreachable_host_is_one_sentence(hosts: list[SshHost], tmp_path: Path) -> None:
    hosts[2].stop()
    with pytest.raises(TransientError, match=r"127\.0\.0\.4"):
        transfer(hosts[2].url(tmp_path), tmp_path / "back", IMPATIENT)
    done = paceline("ls", hosts[2].url(tmp_path), "--patience", 0.5, env={"HOME": os.environ["HOME"]})
    assert done.returncode == 1 and "127.0.0.4" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("what", ["passphrase", "no key", "known hosts"])
def test_unusable_keys_and_known_hosts_are_one_sentence(host: SshHost, tmp_path: Path, what: str) -> None:
    (tmp_path / "file").write_text("nobody-should-see-this\n")
    if what == "passphrase":
        (tmp_path / "file").unlink()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "sesame", "-f", tmp_path / "file"], check=True)
    name = str(tmp_path / "file")
    login = SshLogin(known_hosts=name) if what == "known hosts" else SshLogin(key_file=name)
    with pytest.raises(DeniedError, match="cannot be") as caught:
        SshStore(parse_url(host.url(tmp_path)), login).stat("x")
    assert "nobody-should" not in str(caught.value)


@pytest.mark.parametrize("name", ["a..b", "a" * 300])
def test_an_invalid_host_name_is_one_sentence(name: str) -> None:
    with pytest.raises(DeniedError, match="name"):
        open_store(f"ssh://{name}/x").stat("x")
    with pytest.raises(UsageError, match="invalid port 99999"):
        parse_url("ssh://host:99999/x")


def test_an_ssh_url_of_this_machine_is_not_pruned(host: SshHost, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source")
    before = content(source)
    report = transfer(source, host.url(source), TransferOptions(prune=Prune.source, limits=QUICK.limits))
    assert len(report.failures) == len(before) and report.pruned == 0
    assert content(source) == before


def test_a_single_file_is_listed(host: SshHost, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text("{}")
    env = {"HOME": os.environ["HOME"]}
    done = paceline("ls", host.url(tmp_path / "one.json"), env=env)
    assert done.returncode == 0 and done.stdout.split() == ["2", "one.json"], done.stderr
    missing = paceline("ls", host.url(tmp_path / "two.json"), env=env)
    assert missing.returncode == 1 and "no such file" in missing.stderr


def test_killed_sessions_are_opened_again(host: SshHost, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=40, small=200)
    moved = threading.Event()
    seen: list[int] = []

    def watch(now: object) -> None:
        seen.append(1)
        if len(seen) == 3:
            assert host.process
            subprocess.run(["pkill", "-KILL", "-P", str(host.process.pid)], check=False)
            moved.set()

    from dataclasses import replace

    report = transfer(host.url(source), tmp_path / "back", replace(QUICK, progress=watch))
    assert moved.is_set() and report.failures == []
    assert content(tmp_path / "back") == content(source)


def test_a_growing_file_on_the_host_is_not_copied_incomplete(host: SshHost, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=24)
    from dataclasses import replace

    def grow(_: object) -> None:
        with (source / "large.bin").open("ab") as file:
            file.write(b"more")

    report = transfer(host.url(source), tmp_path / "back", replace(QUICK, progress=grow))
    assert [failure.key for failure in report.failures] == ["large.bin"]
    assert "large.bin" not in visible(tmp_path / "back")
    assert transfer(host.url(source), tmp_path / "back", QUICK).failures == []
    assert content(tmp_path / "back") == content(source)


def test_a_password_in_a_url_is_rejected_without_being_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        parse_url("ssh://root:hunter22@10.0.0.1/data")
    assert "hunter22" not in f"{caught.value} {caught.value.hint}"


def test_a_login_never_shows_its_password() -> None:
    from paceline.storage.secret import Secret

    assert "hunter22" not in repr(SshLogin(Secret("hunter22")))
