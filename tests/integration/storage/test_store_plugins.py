"""A store from another package: registered with an entry point, then used by every command like one of ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.storage.servers import paceline

TOY_STORE = '''
"""A read-only store with the files of a class attribute: the part of the Store interface that reading needs."""

from paceline.storage.checksum import md5
from paceline.storage.stored_file import StoredFile


class ToyStore:
    is_local, read_batch_size, verify_reads = False, 1, True
    content = {"shelf/a.txt": b"kite", "shelf/box/b.txt": b"ball", "large/file": bytes(9 << 20)}

    def __init__(self, url):
        self.url, self._prefix = url.text, f"{url.path}/" if url.path else ""

    def list_files(self, *, recursive=True):
        for key, data in self.content.items():
            below = key.removeprefix(self._prefix)
            if key.startswith(self._prefix) and (recursive or "/" not in below):
                yield StoredFile(below, len(data), md5(data))

    def stat(self, key):
        data = self.content.get(self._prefix + key)
        return None if data is None else StoredFile(key, len(data), md5(data))

    def read(self, item, start, length, into=None):
        return self.content[self._prefix + item.key][start : start + length]

    def read_many(self, items):
        return ((item, self.read(item, 0, item.size)) for item in items)

    def digest(self, item, part):
        return item.version if part is None else None

    def crc32(self, item):
        return None

    def uploaded_part_size(self, item):
        return None

    def etag_is_checksum(self, item):
        return True

    def close(self):
        pass
'''


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment whose Python path holds the toy package and its metadata."""
    packages = tmp_path / "packages"
    metadata = packages / "toybox-1.0.dist-info"
    metadata.mkdir(parents=True)
    (packages / "toybox.py").write_text(TOY_STORE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toybox\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[paceline.stores]\ntoy = toybox:ToyStore\nbroken = toybox:NoSuchStore\n"
    )
    path = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path), "PACELINE_CACHE": str(tmp_path / "cache")}


def test_ls_lists_a_store_of_another_package(env: dict[str, str]) -> None:
    done = paceline("ls", "toy://room/shelf", "--recursive", "--json", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ['{"key": "a.txt", "size": 4}', '{"key": "box/b.txt", "size": 4}']


def test_copy_reads_from_a_store_of_another_package(env: dict[str, str], tmp_path: Path) -> None:
    done = paceline("copy", "toy://room/shelf", tmp_path / "here", env=env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "box" / "b.txt").read_bytes() == b"ball"
    single = paceline("copy", "toy://room/shelf/a.txt", tmp_path / "single.txt", env=env)
    assert single.returncode == 0, single.stderr
    assert (tmp_path / "single.txt").read_bytes() == b"kite"
    large = paceline("copy", "toy://room/large", tmp_path / "large", env=env)  # in parts
    assert large.returncode == 0, large.stderr
    assert (tmp_path / "large" / "file").read_bytes() == bytes(9 << 20)


def test_an_unknown_scheme_is_one_line_with_the_known_ones(env: dict[str, str]) -> None:
    done = paceline("ls", "hdfs://name/path", env=env)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "unknown URL scheme 'hdfs://' (known: broken, file, obs, s3, ssh, toy)" in done.stderr


def test_a_broken_plugin_is_named_with_its_package(env: dict[str, str]) -> None:
    done = paceline("ls", "broken://room/shelf", env=env)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "the plug-in 'broken' (toybox:NoSuchStore, group 'paceline.stores') of toybox" in done.stderr
