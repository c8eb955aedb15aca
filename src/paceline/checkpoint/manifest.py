"""Files a saver writes next to its checkpoints: MindFormers' meta.json, extended with sizes and checksums.

rank_0/meta.json            {"last_epoch": 2, "last_step": 5, "last_ckpt_file": "gpt_rank_0-2_5.ckpt",
                             "paceline": {"world_size": 4, "files": {"gpt_rank_0-2_5.ckpt": {"size": …, "md5": …}}}}
iteration_…/rank_0000000.json   only the inner part: the files of this rank
"""

from __future__ import annotations

from typing import Dict, Optional, TypeVar

import msgspec

from paceline.core.errors import FormatError

StructT = TypeVar("StructT", bound=msgspec.Struct)
META = "meta.json"
MAX_RECORD_BYTES = 16 << 20
"""Largest meta.json or record that is read."""


class FileRecord(msgspec.Struct, frozen=True):
    size: int
    md5: str
    """In the form of an S3 ETag: see write_checkpoint.WrittenFile."""
    epoch: int = 0
    step: int = 0
    global_step: int = 0
    attempt: str = ""
    """Which start of the training wrote it: files of the same step from different starts must not be mixed."""
    world_size: int = 0
    """Ranks that saved this step; the job may have had another number before and after. 0: not recorded."""


class RankRecord(msgspec.Struct, frozen=True):
    world_size: int = 0
    files: Dict[str, FileRecord] = {}


class RankMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    last_epoch: int
    last_step: int
    last_ckpt_file: str
    paceline: Optional[RankRecord] = None


def read_meta(data: bytes, where: str) -> RankMeta:
    return _decode(data, RankMeta, where)


def read_record(data: bytes, where: str) -> RankRecord:
    return _decode(data, RankRecord, where)


def encode(record: RankMeta | RankRecord) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record), indent=1)


def record_name(rank: int) -> str:
    """File name of a rank's record in an iteration directory."""
    return f"rank_{rank:07d}.json"


def _decode(data: bytes, kind: type[StructT], where: str) -> StructT:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{where}: cannot be read ({str(error)[:80]})") from None
