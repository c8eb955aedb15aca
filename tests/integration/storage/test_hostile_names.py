"""Hostile file names of buckets, hosts and file systems: no file is lost, hidden or written outside the target."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from paceline.storage.checksum import md5
from paceline.storage.stored_file import Data, StoredFile
from paceline.storage.stores.base import UnfinishedUpload
from paceline.storage.stores.local import FileStore
from paceline.storage.stores.obs_listing import ListedObject, parse_listing_page
from paceline.storage.transfer.journal import Journal
from paceline.storage.transfer.transfer import transfer, transfer_between
from paceline.storage.transfer.transfer_plan import is_safe_key
from paceline.storage.url import parse_url
from support.storage.servers import S3Server, SshHost, paceline
from support.storage.trees import QUICK, content, stored, visible


class Listed(FileStore):
    """A store that lists exactly these names, each with its own name as content."""

    is_local = False

    def __init__(self, root: Path, *keys: str) -> None:
        super().__init__(root)
        self._keys = keys

    def list_files(self, *, recursive: bool = True) -> Iterator[StoredFile]:
        for key in self._keys:
            yield StoredFile(key, len(_bytes(key)), md5(_bytes(key)))

    def read(self, item: StoredFile, start: int, length: int, into: memoryview | None = None) -> Data:
        return _bytes(item.key)[start : start + length]


def _bytes(key: str) -> bytes:
    return key.encode(errors="surrogateescape")


def arrived(target: Path) -> dict[str, bytes]:
    return content(target)


def test_unsafe_names_fail_and_the_rest_is_transferred(tmp_path: Path) -> None:
    bad = ("../out", "a/../../out", "/etc/paceline-was-here", "a//b", "./a", "nul\0", "..")
    report = transfer_between(
        Listed(tmp_path / "s", *bad, "good", "a/good"), FileStore(tmp_path / "in" / "side"), QUICK
    )
    assert {failure.key for failure in report.failures} == set(bad)
    assert content(tmp_path / "in") == {"side/good": b"good", "side/a/good": b"a/good"}
    assert not (tmp_path / "out").exists() and not Path("/etc/paceline-was-here").exists()


@pytest.mark.parametrize("keys", [("a", "a/b", "z"), ("a/b", "a", "z")])
def test_a_name_that_is_both_file_and_directory_fails_alone_with_a_reason(
    tmp_path: Path, keys: tuple[str, ...]
) -> None:
    report = transfer_between(Listed(tmp_path / "s", *keys), FileStore(tmp_path / "to"), QUICK)
    (failure,) = report.failures
    assert failure.key in ("a", "a/b") and "only one can exist here" in failure.reason
    assert report.moved == 2 and content(tmp_path / "to")["z"] == b"z"
    assert content(tmp_path / "to") == visible(tmp_path / "to"), "nothing half-written stays"


def test_names_that_differ_only_in_case_are_two_files(tmp_path: Path) -> None:
    keys = ("Net.ckpt", "net.ckpt", "NET.CKPT")
    assert transfer_between(Listed(tmp_path / "s", *keys), FileStore(tmp_path / "to"), QUICK).failures == []
    assert content(tmp_path / "to") == {key: key.encode() for key in keys}


def test_names_up_to_the_limit_of_the_file_system_are_transferred(tmp_path: Path) -> None:
    longest, too_long = "x" * 255, "y" * 256
    report = transfer_between(Listed(tmp_path / "s", longest, too_long), FileStore(tmp_path / "to"), QUICK)
    assert content(tmp_path / "to") == {longest: longest.encode()}
    assert [failure.key for failure in report.failures] == [too_long]


def test_names_that_are_not_utf8_are_copied_and_kept_in_the_journal(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / os.fsdecode(b"bad\xff.bin")).write_bytes(b"bytes")
    assert transfer(source, tmp_path / "to", QUICK).failures == []
    again = transfer(source, tmp_path / "to", QUICK)
    assert (again.moved, again.same) == (0, 1)


def test_a_bucket_rejects_a_name_that_is_not_utf8_and_takes_the_rest(bucket: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / os.fsdecode(b"bad\xff.bin")).write_bytes(b"bytes")
    (source / "ü.bin").write_bytes(b"text")
    done = paceline("copy", source, f"s3://{bucket}/run", env=dict(os.environ))
    assert done.returncode == 1 and "the name is not UTF-8" in done.stderr and "Traceback" not in done.stderr
    assert set(stored(f"s3://{bucket}/run")) == {"ü.bin"}


def test_odd_names_are_downloaded_and_directory_objects_are_not_files(
    bucket: str, s3: S3Server, tmp_path: Path
) -> None:
    client, keys = (
        s3.client(),
        ("run/a+b", "run/a b", "run/a%20b", "run/tab\tnew\nline", "run/e\u0301", "run/\u00e9", "run/~"),
    )
    for key in (*keys, "run/directory/"):
        assert client.putContent(bucket, key, content=key).status < 300
    assert transfer(f"s3://{bucket}/run", tmp_path / "back", QUICK).failures == []
    assert content(tmp_path / "back") == {key.removeprefix("run/"): key.encode() for key in keys}


def test_links_are_followed_once_and_broken_ones_reported_or_skipped(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "data").write_bytes(b"data")
    (source / "file").symlink_to(source / "inner" / "data")
    (source / "inner" / "round").symlink_to(source)
    (source / "self").symlink_to("self")
    (source / "dangling").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as pipe:
        pipe.bind(str(source / "socket"))
        report = transfer(source, tmp_path / "to", QUICK)
    assert [failure.key for failure in report.failures] == ["self"]
    assert content(tmp_path / "to") == {"inner/data": b"data", "file": b"data"}


def test_a_file_removed_during_the_listing_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for name in ("a.tmp", "b"):
        (job / name).write_text(name)
    scandir = os.scandir

    class Renaming:
        """A job that finishes a file between the listing of its directory and the look at the file."""

        def __init__(self, path: Path) -> None:
            with scandir(path) as found:
                self._entries = list(found)
            (path / "a.tmp").rename(path / "a")

        def __enter__(self) -> list[os.DirEntry[str]]:
            return self._entries

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(os, "scandir", Renaming)
    assert [item.key for item in FileStore(job).list_files()] == ["b"]


def test_a_path_on_an_ssh_host_may_contain_spaces_and_quotes(hosts: list[SshHost], tmp_path: Path) -> None:
    there = tmp_path / 'it\'s a "dir" $(touch x) `y`; -z'
    source = tmp_path / "source"
    source.mkdir()
    long = "n" * 250
    for name in ("plain", "it's", "-rf", "new\nline", long):
        (source / name).write_bytes(name.encode())
    assert transfer(source, hosts[0].url(there), QUICK).failures == []
    assert content(there) == content(source)
    assert transfer(hosts[0].url(there), tmp_path / "back", QUICK).failures == []
    assert content(tmp_path / "back") == content(source)


NAMES = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=40)


@given(NAMES)
def test_a_name_that_is_safe_stays_below_the_target(name: str) -> None:
    if is_safe_key(name):
        joined = os.path.normpath(os.path.join("/target", name))  # noqa: PTH118
        assert joined.startswith("/target/") and joined == f"/target/{name}"


@given(st.lists(NAMES, max_size=5), st.text(max_size=20))
@example(["\ud800"], "")  # a lone surrogate that is no undecodable byte
@example([os.fsdecode(b"caf\xe9"), "\udcff\ud83d"], "")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=40)
def test_the_journal_keeps_any_name_and_ignores_invalid_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], rubbish: str
) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    journal = Journal("from", "to")
    try:
        for name in names:
            journal.record_upload(StoredFile(name, 1, "v"), f"state of {name}")
            journal.record_part(StoredFile(name, 1, "v"), 0, "sum")
    finally:
        journal.close()
    with journal.path.open("ab") as out:
        out.write(rubbish.encode(errors="surrogatepass") + b'\n{"part": 5, "number": "x"}\n[]\n{"begun"')
    again = Journal("from", "to")
    try:
        for name in names:
            assert again.unfinished_upload(StoredFile(name, 1, "v")) == UnfinishedUpload(f"state of {name}", {0: "sum"})
    finally:
        again.close()
        journal.path.unlink()


@given(st.lists(st.tuples(NAMES, st.integers(0, 1 << 60)), max_size=5), st.booleans())
def test_a_listing_page_has_every_key_and_the_next_marker(found: list[tuple[str, int]], more: bool) -> None:
    from xml.sax.saxutils import escape

    entries = [ListedObject(key, size, "5d41") for key, size in found if _is_xml(key)]
    inner = "".join(
        f"<Contents><Key>{escape(each.key)}</Key><ETag>&quot;5d41&quot;</ETag><Size>{each.size}</Size></Contents>"
        for each in entries
    )
    text = f"<R><IsTruncated>{str(more).lower()}</IsTruncated>{inner}</R>"
    if more and not entries:
        with pytest.raises(ValueError, match="no marker of the next page"):
            parse_listing_page(text)
    else:
        page = parse_listing_page(text)
        assert page.objects == tuple(entries)
        assert page.next == (max(each.key for each in entries) if more else None)


def _is_xml(text: str) -> bool:
    return all(character.isprintable() for character in text)


@given(st.text(max_size=60))
def test_any_text_is_parsed_as_a_url_or_rejected_with_a_message(text: str) -> None:
    from paceline.core.errors import UsageError

    for scheme in ("s3", "obs", "ssh", "file", ""):
        url = f"{scheme}://{text}" if scheme else text
        try:
            where = parse_url(url)
        except UsageError as error:
            assert str(error)
        else:
            assert where.scheme in ("file", "s3", "obs", "ssh")
