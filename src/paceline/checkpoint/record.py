"""What a saver notes beside its checkpoints: MindFormers' meta.json with sizes and checksums added; also file names.

rank_0/meta.json            {"last_epoch": 2, "last_step": 5, "last_ckpt_file": "gpt_rank_0-2_5.ckpt",
                             "paceline": {"world_size": 4, "files": {"gpt_rank_0-2_5.ckpt": {"size": …, "md5": …}}}}
iteration_…/rank_0000000.json   the inner part alone: what this rank wrote there
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from paceline.errors import FormatError

Told = TypeVar("Told", bound=msgspec.Struct)
META = "meta.json"
MOST = 16 << 20
"""Bytes a record may have."""
_NAME = re.compile(
    r"(?P<prefix>.+?)(?:_rank_(?P<rank>\d{1,7}))?(?:_(?P<run>\d{1,6}))?-(?P<epoch>\d{1,9})_(?P<step>\d{1,12})"
    r"\.(?P<format>ckpt|safetensors)"
)


@dataclass(frozen=True)
class CheckpointName:
    """{prefix}_rank_{rank}[_{run}]-{epoch}_{step}.{format}; a run begun in a directory with older files is numbered."""

    prefix: str
    rank: int | None
    run: int
    epoch: int
    step: int
    format: str

    @property
    def order(self) -> tuple[int, int, int]:
        return self.run, self.epoch, self.step

    def __str__(self) -> str:
        rank = f"_rank_{self.rank}" if self.rank is not None else ""
        return f"{self.prefix}{rank}{f'_{self.run}' if self.run else ''}-{self.epoch}_{self.step}.{self.format}"


def parse_name(name: str) -> CheckpointName | None:
    """
    >>> parse_name("gpt_rank_3_1-10_2.ckpt")
    CheckpointName(prefix='gpt', rank=3, run=1, epoch=10, step=2, format='ckpt')
    """
    found = _NAME.fullmatch(name)
    if not found or name.startswith("."):
        return None
    rank = int(found["rank"]) if found["rank"] else None
    return CheckpointName(
        found["prefix"], rank, int(found["run"] or 0), int(found["epoch"]), int(found["step"]), found["format"]
    )


class FileRecord(msgspec.Struct, frozen=True):
    size: int
    md5: str
    """As S3 tags it: see arrays.Written."""
    epoch: int = 0
    step: int = 0
    global_step: int = 0
    attempt: str = ""
    """Which start of the training wrote it: after a resume, files of the same step by different starts do not mix."""


class Record(msgspec.Struct, frozen=True):
    world_size: int = 0
    files: dict[str, FileRecord] = {}


class Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    last_epoch: int
    last_step: int
    last_ckpt_file: str
    paceline: Record | None = None


def read_meta(data: bytes, where: str) -> Meta:
    return _decoded(data, Meta, where)


def read_record(data: bytes, where: str) -> Record:
    return _decoded(data, Record, where)


def encode(record: Meta | Record) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=1)


def record_name(rank: int) -> str:
    """In iteration directories."""
    return f"rank_{rank:07d}.json"


def _decoded(data: bytes, kind: type[Told], where: str) -> Told:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{where}: cannot be read ({str(error)[:80]})") from None
