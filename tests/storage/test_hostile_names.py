"""Names from elsewhere: whatever a bucket, a host or a file system calls its files, nothing is lost, hidden or let out."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.storage.checksum import md5
from paceline.storage.file import FileStore
from paceline.storage.journal import Journal
from paceline.storage.location import parse
from paceline.storage.obs_page import Entry, read_page
from paceline.storage.plan import is_safe
from paceline.storage.store import Data, Item, Resume
from paceline.storage.transfer import transfer, transfer_between
from storage.servers import S3Server, SshHost, paceline
from storage.trees import QUICK, content, stored, visible


class Listed(FileStore):
    """A place that lists exactly these names, each with its own name as content, as a server may."""

    local = False

    def __init__(self, root: Path, *keys: str) -> None:
        super().__init__(root)
        self._keys = keys

    def items(self, *, shallow: bool = False) -> Iterator[Item]:
        for key in self._keys:
            yield Item(key, len(_bytes(key)), md5(_bytes(key)))

    def read(self, item: Item, start: int, length: int, into: memoryview | None = None) -> Data:
        return _bytes(item.key)[start : start + length]


def _bytes(key: str) -> bytes:
    return key.encode(errors="surrogateescape")


def arrived(target: Path) -> dict[str, bytes]:
    return content(target)


def test_names_that_lead_out_are_failures_and_the_rest_arrives(tmp_path: Path) -> None:
    bad = ("../out", "a/../../out", "/etc/paceline-was-here", "a//b", "./a", "nul\0", "..")
    report = transfer_between(
        Listed(tmp_path / "s", *bad, "good", "a/good"), FileStore(tmp_path / "in" / "side"), QUICK
    )
    assert {failure.key for failure in report.failures} == set(bad)
    assert content(tmp_path / "in") == {"side/good": b"good", "side/a/good": b"a/good"}
    assert not (tmp_path / "out").exists() and not Path("/etc/paceline-was-here").exists()


@pytest.mark.parametrize("keys", [("a", "a/b", "z"), ("a/b", "a", "z")])
def test_a_name_that_is_a_file_and_a_directory_fails_alone_and_says_so(tmp_path: Path, keys: tuple[str, ...]) -> None:
    report = transfer_between(Listed(tmp_path / "s", *keys), FileStore(tmp_path / "to"), QUICK)
    (failure,) = report.failures
    assert failure.key in ("a", "a/b") and "here it can be only one" in failure.reason
    assert report.moved == 2 and content(tmp_path / "to")["z"] == b"z"
    assert content(tmp_path / "to") == visible(tmp_path / "to"), "nothing half-written stays"


def test_names_that_differ_only_in_case_are_two_files(tmp_path: Path) -> None:
    keys = ("Net.ckpt", "net.ckpt", "NET.CKPT")
    assert transfer_between(Listed(tmp_path / "s", *keys), FileStore(tmp_path / "to"), QUICK).failures == []
    assert content(tmp_path / "to") == {key: key.encode() for key in keys}


def test_long_names_arrive_up_to_what_the_file_system_takes(tmp_path: Path) -> None:
    longest, too_long = "x" * 255, "y" * 256
    report = transfer_between(Listed(tmp_path / "s", longest, too_long), FileStore(tmp_path / "to"), QUICK)
    assert content(tmp_path / "to") == {longest: longest.encode()}
    assert [failure.key for failure in report.failures] == [too_long]


def test_names_that_are_no_text_are_copied_and_remembered(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / os.fsdecode(b"bad\xff.bin")).write_bytes(b"bytes")
    assert transfer(source, tmp_path / "to", QUICK).failures == []
    again = transfer(source, tmp_path / "to", QUICK)
    assert (again.moved, again.same) == (0, 1)


def test_a_bucket_refuses_a_name_that_is_no_text_and_takes_the_rest(bucket: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / os.fsdecode(b"bad\xff.bin")).write_bytes(b"bytes")
    (source / "ü.bin").write_bytes(b"text")
    done = paceline("copy", source, f"s3://{bucket}/run", env=dict(os.environ))
    assert done.returncode == 1 and "the name is not UTF-8" in done.stderr and "Traceback" not in done.stderr
    assert set(stored(f"s3://{bucket}/run")) == {"ü.bin"}


def test_odd_names_in_a_bucket_come_home_and_directories_are_no_files(
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


def test_links_are_followed_once_and_those_to_nowhere_are_named_or_left(tmp_path: Path) -> None:
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


def test_a_file_that_goes_while_the_directory_is_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert [item.key for item in FileStore(job).items()] == ["b"]


def test_a_path_on_another_host_may_hold_spaces_and_quotes(hosts: list[SshHost], tmp_path: Path) -> None:
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
    if is_safe(name):
        joined = os.path.normpath(os.path.join("/target", name))  # noqa: PTH118
        assert joined.startswith("/target/") and joined == f"/target/{name}"


@given(st.lists(NAMES, max_size=5), st.text(max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_the_journal_remembers_any_name_and_forgives_any_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], rubbish: str
) -> None:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    journal = Journal("from", "to")
    try:
        for name in names:
            journal.begun(Item(name, 1, "v"), f"state of {name}")
            journal.part(Item(name, 1, "v"), 0, "sum")
    finally:
        journal.close()
    with journal.path.open("ab") as out:
        out.write(rubbish.encode(errors="surrogatepass") + b'\n{"part": 5, "number": "x"}\n[]\n{"begun"')
    again = Journal("from", "to")
    try:
        for name in names:
            assert again.resume(Item(name, 1, "v")) == Resume(f"state of {name}", {0: "sum"})
    finally:
        again.close()
        journal.path.unlink()


@given(st.lists(st.tuples(NAMES, st.integers(0, 1 << 60)), max_size=5), st.booleans())
def test_a_listing_tells_every_key_and_where_it_goes_on(found: list[tuple[str, int]], more: bool) -> None:
    from xml.sax.saxutils import escape

    entries = [Entry(key, size, "5d41") for key, size in found if _is_xml(key)]
    inner = "".join(
        f"<Contents><Key>{escape(each.key)}</Key><ETag>&quot;5d41&quot;</ETag><Size>{each.size}</Size></Contents>"
        for each in entries
    )
    text = f"<R><IsTruncated>{str(more).lower()}</IsTruncated>{inner}</R>"
    if more and not entries:
        with pytest.raises(ValueError, match="not where"):
            read_page(text)
    else:
        page = read_page(text)
        assert page.objects == tuple(entries)
        assert page.next == (max(each.key for each in entries) if more else None)


def _is_xml(text: str) -> bool:
    return all(character.isprintable() for character in text)


@given(st.text(max_size=60))
def test_a_location_is_parsed_or_refused_with_a_sentence(text: str) -> None:
    from paceline.errors import UsageError

    for scheme in ("s3", "obs", "ssh", "file", ""):
        url = f"{scheme}://{text}" if scheme else text
        try:
            where = parse(url)
        except UsageError as error:
            assert str(error)
        else:
            assert where.scheme in ("file", "s3", "obs", "ssh")
