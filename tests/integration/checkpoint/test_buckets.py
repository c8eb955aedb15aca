"""Sources and targets in a bucket: range reads, multipart uploads, resume, atomic writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from paceline.checkpoint.reshard import WriteOptions
from paceline.checkpoint.strategy.strategy import Strategy, encode_strategy
from paceline.checkpoint.strategy.tensor_layout import TensorLayout
from paceline.checkpoint.tensor_files import RemoteFile, open_listing
from paceline.checkpoint.transform import TransformRequest, transform
from paceline.checkpoint.verify import verify
from paceline.checkpoint.writers import RemoteWriter
from paceline.storage.stores.open_store import open_store
from paceline.storage.transfer.transfer import transfer
from support.checkpoint.making import random_array, read, same, write_ranks
from support.storage.servers import S3Server

COLUMNS, ROWS = TensorLayout((2,), ((), (0,))), TensorLayout((2,), ((0,), ()))
ARRAYS = {"w": random_array((3000, 1024), "float32", 0), "b": random_array((10, 2), "float16", 1)}
"""Two files of 6 MB, or one of 12 MB: one part and two."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    made = S3Server(tmp_path_factory.mktemp("weed") / "server")
    made.start()
    yield made
    made.stop(hard=True)


@pytest.fixture
def bucket(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    url = f"s3://{server.bucket()}"
    write_ranks(tmp_path / "a", ARRAYS, [{"w": COLUMNS, "b": COLUMNS}])
    for name, layout in (("columns", COLUMNS), ("rows", ROWS)):
        data = encode_strategy(Strategy(({"w": layout, "b": layout},)), merged=False, as_json=False)
        (tmp_path / "s").mkdir(exist_ok=True)
        (tmp_path / "s" / f"{name}.ckpt").write_bytes(data)
    transfer(tmp_path / "a", f"{url}/a").raise_failures()
    transfer(tmp_path / "s", f"{url}/s").raise_failures()
    return url


def test_source_target_and_strategies_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    strategies = f"{bucket}/s/columns.ckpt", f"{bucket}/s/rows.ckpt"
    request = TransformRequest(f"{bucket}/a", f"{bucket}/b", *strategies, format="safetensors", crc=False)
    assert transform(request).files == 2
    assert transform(request).same == 2
    with open_listing(f"{bucket}/b") as place:
        verdict = verify(place, None)
    assert (verdict.files, verdict.problems) == (2, [])
    transform(TransformRequest(f"{bucket}/b", str(tmp_path / "c"), strategies[1]))
    found = read(tmp_path / "c" / "rank_0" / "checkpoint_0.safetensors")
    assert all(same(found[name], array) for name, array in ARRAYS.items())


def test_an_interrupted_upload_resumes(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = TransformRequest(
        str(tmp_path / "a"),
        f"{bucket}/b",
        str(tmp_path / "s" / "columns.ckpt"),
        crc=True,
        options=WriteOptions(workers=1),
    )
    real, numbers = RemoteWriter.put, []

    def put(self: RemoteWriter, number: int, *rest: Any) -> str:
        if len(numbers) == 1:
            raise KeyboardInterrupt
        numbers.append(number)
        return real(self, number, *rest)

    monkeypatch.setattr(RemoteWriter, "put", put)
    with pytest.raises(KeyboardInterrupt):
        transform(request)
    with closing(open_store(f"{bucket}/b")) as store:
        assert store.stat("rank_0/checkpoint_0.ckpt") is None
    monkeypatch.setattr(RemoteWriter, "put", lambda self, n, *rest: numbers.append(n) or real(self, n, *rest))
    transform(request)
    assert sorted(numbers) == [0, 1]
    transfer(f"{bucket}/b", tmp_path / "back").raise_failures()
    made = tmp_path / "back" / "rank_0" / "checkpoint_0.ckpt"
    assert same(read(made)["w"], ARRAYS["w"])
    with open_listing(str(made)) as place:
        assert verify(place, None).problems == []


def test_source_bytes_shared_by_files_are_requested_once(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []
    real = RemoteFile._block

    def block(self: RemoteFile, number: int) -> Any:
        missing = (self.name, number) not in self._cache._blocks
        if missing:
            asked.append((self.name, number))
        return real(self, number)

    monkeypatch.setattr(RemoteFile, "_block", block)
    transform(
        TransformRequest(
            f"{bucket}/a",
            str(tmp_path / "c"),
            f"{bucket}/s/columns.ckpt",
            f"{bucket}/s/rows.ckpt",
            options=WriteOptions(workers=1),
        )
    )
    assert len(asked) == len(set(asked))
