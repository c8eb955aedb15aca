"""Buckets on a real S3 server: Huawei's SDK reads what we write and vice versa; wrong credentials are rejected."""

from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path

import pytest

from paceline.core.errors import UsageError
from paceline.storage.store_errors import DeniedError
from paceline.storage.stored_file import StoredFile
from paceline.storage.stores.local import FileStore, FileUpload
from paceline.storage.stores.open_store import open_store
from paceline.storage.transfer.transfer import transfer
from paceline.storage.url import parse_url
from support.storage.servers import S3Server, paceline
from support.storage.trees import IMPATIENT, MIB, ODD_NAMES, QUICK, content, stored, write_tree


def test_a_tree_is_unchanged_after_upload_and_download(bucket: str, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=20, small=60)
    up = transfer(source, f"s3://{bucket}/run", QUICK)
    assert (up.failures, up.moved) == ([], len(ODD_NAMES) + 61)
    down = transfer(f"s3://{bucket}/run", tmp_path / "back", QUICK)
    assert (down.failures, down.moved_bytes) == ([], up.moved_bytes)
    assert content(tmp_path / "back") == content(source)


def test_huaweis_sdk_reads_what_we_wrote(bucket: str, s3: S3Server, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=20)
    transfer(source, f"obs://{bucket}/run", QUICK).raise_failures()
    client = s3.client()
    for name, data in content(source).items():
        answer = client.getObject(bucket, f"run/{name}", loadStreamInMemory=True)
        assert answer.status == 200 and (answer.body.buffer or b"") == data, name


def test_we_read_what_huaweis_sdk_wrote(bucket: str, s3: S3Server, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=30)
    client = s3.client()
    client.putFile(bucket, "run", str(source))
    # Its resumable upload uses parts of 9 MiB, ours are 8 MiB: the ETag must be recognised all the same.
    assert client.uploadFile(bucket, "run/parts.bin", str(source / "large.bin"), taskNum=2).status == 200
    client.putContent(bucket, "run/folder/", content=None)  # a directory marker, as its tools write them
    back = transfer(f"obs://{bucket}/run", tmp_path / "back", QUICK)
    assert back.failures == []
    assert content(tmp_path / "back") == content(source) | {"parts.bin": (source / "large.bin").read_bytes()}


def test_parts_of_other_tools_are_verified_without_reading_the_file_again(
    bucket: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_tree(tmp_path / "source", large=30)
    for mib in (5, 15):  # others of this file would have as many parts as ours, and are guessed only in larger ones
        uploaded = s3.client().uploadFile(bucket, f"run/{mib}", str(source / "large.bin"), partSize=mib * MIB)
        assert uploaded.status == 200

    def never(self: FileUpload, part: int | None) -> str | None:
        raise AssertionError("read again")

    monkeypatch.setattr(FileUpload, "digest", never)
    assert transfer(f"obs://{bucket}/run", tmp_path / "back", QUICK).failures == []
    assert (tmp_path / "back" / "5").read_bytes() == (source / "large.bin").read_bytes()


@pytest.mark.parametrize("signature", ["v2", "v4"])
def test_everything_works_with_the_sdk_alone(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signature: str
) -> None:
    """What `"signature": "obs"` uses; the server here verifies v2, which is the same signature under another name."""
    from paceline.storage.stores.obs import ObsStore
    from paceline.storage.transfer.transfer import transfer_between

    monkeypatch.setenv("PACELINE_SIGNATURE", signature)
    source, where = write_tree(tmp_path / "source", large=20, small=5), parse_url(f"obs://{bucket}/run")
    assert transfer_between(FileStore(source), ObsStore(where), QUICK).failures == []
    assert transfer_between(ObsStore(where), FileStore(tmp_path / "back"), QUICK).failures == []
    assert content(tmp_path / "back") == content(source)
    if signature == "v2":
        assert type(open_store(where)) is ObsStore
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
    with pytest.raises(DeniedError):
        transfer_between(FileStore(source), ObsStore(where), QUICK)


def test_running_again_moves_nothing_and_a_change_moves_one(bucket: str, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=20, small=10)
    transfer(source, f"s3://{bucket}/run", QUICK)
    again = transfer(source, f"s3://{bucket}/run", QUICK)
    assert (again.moved, again.same) == (0, len(ODD_NAMES) + 11)
    (source / "many/0/3.bin").write_bytes(b"x" * 20_000)  # the same size, another content
    third = transfer(source, f"s3://{bucket}/run", QUICK)
    assert (third.moved, third.moved_bytes) == (1, 20_000)


def test_without_a_journal_checksums_show_that_nothing_changed(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_tree(tmp_path / "source", large=20, small=10)
    transfer(source, f"s3://{bucket}/run", QUICK)
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "another-machine"))
    again = transfer(source, f"s3://{bucket}/run", QUICK)
    assert (again.moved, again.same) == (0, len(ODD_NAMES) + 11)


def test_one_file_goes_into_a_directory_or_to_a_name(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"{}")
    transfer(tmp_path / "a.json", f"s3://{bucket}/x/", QUICK).raise_failures()
    transfer(tmp_path / "a.json", f"s3://{bucket}/y/b.json", QUICK).raise_failures()
    assert list(stored(f"s3://{bucket}")) == ["x/a.json", "y/b.json"]
    transfer(f"s3://{bucket}/y/b.json", tmp_path / "c.json", QUICK).raise_failures()
    assert (tmp_path / "c.json").read_bytes() == b"{}"


def test_from_bucket_to_bucket(bucket: str, s3: S3Server, tmp_path: Path) -> None:
    source, other = write_tree(tmp_path / "source", large=20), s3.bucket()
    transfer(source, f"s3://{bucket}/run", QUICK)
    assert transfer(f"s3://{bucket}/run", f"obs://{other}/copy", QUICK).failures == []
    transfer(f"s3://{other}/copy", tmp_path / "back", QUICK)
    assert content(tmp_path / "back") == content(source)


@pytest.mark.parametrize("wrong", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_wrong_keys_are_rejected_at_once(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setenv(wrong, "not-the-key-at-all")
    with pytest.raises(DeniedError) as caught:
        transfer(write_tree(tmp_path / "source"), f"s3://{bucket}/run", QUICK)
    assert "HTTP 403" in str(caught.value) and "not-the-key" not in str(caught.value)


def test_names_that_point_outside_the_target_are_rejected(bucket: str, s3: S3Server, tmp_path: Path) -> None:
    assert not any(map(_safe, ("../out", "a/../../out", "/etc/x", "a//b", "./a", "nul\0")))
    s3.client().putContent(bucket, "run/ok.txt", content="fine")
    report = transfer(f"s3://{bucket}/run", tmp_path / "in" / "side", QUICK)
    assert report.failures == [] and content(tmp_path / "in") == {"side/ok.txt": b"fine"}


def _safe(key: str) -> bool:
    from paceline.storage.transfer.transfer_plan import is_safe_key

    return is_safe_key(key)


def test_sync_prunes_the_bucket_only_after_everything_was_transferred(bucket: str, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", small=3)
    transfer(source, f"s3://{bucket}/run", QUICK)
    (source / "-dash").unlink()
    env = {"PACELINE_CACHE": str(tmp_path / "cache")}
    done = paceline("sync", source, f"s3://{bucket}/run", "--prune", env=_keys() | env)
    assert done.returncode == 0 and "1 pruned" in done.stdout, done
    assert set(stored(f"s3://{bucket}/run")) == set(content(source))


def test_sync_prunes_nothing_when_the_source_is_empty_or_missing(bucket: str, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source")
    transfer(source, f"s3://{bucket}/run", QUICK)
    (tmp_path / "void").mkdir()
    done = paceline("sync", tmp_path / "void", f"s3://{bucket}/run", "--prune", env=_keys())
    assert "pruned" not in done.stdout
    assert len(stored(f"s3://{bucket}/run")) == len(ODD_NAMES)


@pytest.mark.parametrize("target", ["run/", "run/one"])
def test_sync_of_one_file_prunes_no_other_file(bucket: str, tmp_path: Path, target: str) -> None:
    source = write_tree(tmp_path / "source", large=0, small=3)
    (source / "one").write_text("1")
    transfer(source, f"s3://{bucket}/run", QUICK)
    done = paceline("sync", source / "one", f"s3://{bucket}/{target}", "--prune", env=_keys())
    assert done.returncode == 0 and "pruned" not in done.stdout, done
    assert set(stored(f"s3://{bucket}/run")) == set(content(source))


def test_a_bucket_under_two_names_is_not_pruned(bucket: str, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=0)
    transfer(source, f"s3://{bucket}/run", QUICK)
    done = paceline("copy", f"s3://{bucket}/run", f"obs://{bucket}/run", "--prune", env=_keys())
    assert done.returncode == 1 and "source and target are the same file" in done.stderr
    assert set(stored(f"s3://{bucket}/run")) == set(content(source))


def test_copy_with_prune_removes_source_files_after_verifying(bucket: str, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", large=17, small=5)
    before = content(source)
    done = paceline("copy", source, f"s3://{bucket}/run", "--prune", env=_keys())
    assert done.returncode == 0, done.stderr
    assert content(source) == {}
    transfer(f"s3://{bucket}/run", tmp_path / "back", QUICK)
    assert content(tmp_path / "back") == before


def test_ls_shows_one_level_or_all_as_text_or_json(bucket: str, tmp_path: Path) -> None:
    transfer(write_tree(tmp_path / "source", small=2), f"s3://{bucket}/run", QUICK)
    one = paceline("ls", f"s3://{bucket}/run", env=_keys())
    assert one.returncode == 0 and "many/" in one.stdout and "1.bin" not in one.stdout
    all_of_it = paceline("ls", f"s3://{bucket}/run", "-r", "--json", env=_keys())
    assert '{"key": "many/0/1.bin", "size": 20000}' in all_of_it.stdout.splitlines()
    nothing = paceline("ls", f"s3://{bucket}/nowhere", env=_keys())
    assert nothing.returncode == 2 and "no such file, object or prefix" in nothing.stderr


def test_an_empty_prefix_is_an_error_not_an_empty_copy(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such object or prefix"):
        transfer(f"s3://{bucket}/typo", tmp_path / "back", QUICK)


def test_a_missing_bucket_is_named(bucket: str, tmp_path: Path) -> None:
    done = paceline("copy", write_tree(tmp_path / "s"), "s3://no-such-bucket-here/run", env=_keys())
    assert done.returncode != 0 and "no-such-bucket-here" in done.stderr and "Traceback" not in done.stderr


def test_our_etag_of_a_large_object_equals_that_of_s3(bucket: str, tmp_path: Path) -> None:
    data = write_tree(tmp_path / "s", large=20)
    transfer(data, f"s3://{bucket}/run", QUICK)
    item = stored(f"s3://{bucket}/run")["large.bin"]
    whole = (data / "large.bin").read_bytes()
    parts = [hashlib.md5(whole[n : n + 8 * MIB]).digest() for n in range(0, len(whole), 8 * MIB)]
    assert item == StoredFile("large.bin", len(whole), f"{hashlib.md5(b''.join(parts)).hexdigest()}-3")


def test_giving_up_is_reported_per_file(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_tree(tmp_path / "source")
    transfer(source, f"s3://{bucket}/run", IMPATIENT).raise_failures()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(Exception, match=r"s3://test-.*"):
        transfer(source, f"s3://{bucket}/run", IMPATIENT)


def _keys() -> dict[str, str]:
    import os

    return {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "PACELINE_"))}


def test_uploads_that_killed_processes_began_are_aborted_by_a_later_one(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from obs import ListMultipartUploadsRequest

    from paceline.storage.stores import obs

    listed = ListMultipartUploadsRequest(prefix="run/")
    with closing(obs.ObsStore(parse_url(f"obs://{bucket}/run"))) as store:
        for key in ("large.bin", "large.bin.2", "large.bin"):
            store.begin_upload(key, 20 << 20, part_size=5 << 20)
        # Younger than a day: somebody may still send parts.
        assert len(store._call("listMultipartUploads", listed).body.upload) == 3
        monkeypatch.setattr(obs, "ABANDONED_AFTER", -86400.0)
        kept = store.begin_upload("large.bin", 20 << 20, part_size=5 << 20)
        left = {(each.key, each.uploadId) for each in store._call("listMultipartUploads", listed).body.upload}
    assert ("run/large.bin", kept.upload_id) in left
    assert sorted(key for key, _ in left) == ["run/large.bin", "run/large.bin.2"]
