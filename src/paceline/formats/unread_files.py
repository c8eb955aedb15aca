"""What is in a source that no reader reads: profiles of other tools and unfinished ones, by name and by content.

Each kind says what the files are and which tool reads them, for the message "no profile found".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from paceline.core.i18n import Language, text
from paceline.formats.chrome_trace.trace_events import read_head
from paceline.storage.archive_names import is_archive
from paceline.storage.file_tree import File

_HEAD = 8192
_MOST_LOOKED_AT = 2000
"""Files whose content is looked at: a source without a profile may be a dataset."""
_MOST_SHOWN = 4


@dataclass(frozen=True)
class FileKind:
    """A kind of file; its text is formats.unread.<key>."""

    key: str
    name: str = ""
    """Regular expression on the path, lower case; "" = any."""
    content: bytes = b""
    """Regular expression on the first bytes, after decompression; b"" = any."""


_KINDS = tuple(
    (kind, re.compile(kind.name), re.compile(kind.content, re.DOTALL))
    for kind in (
        FileKind("nsys_report", r"\.nsys-rep$"),
        FileKind("nsys_old_report", r"\.qdrep$"),
        FileKind("nsight_compute", r"\.ncu-rep$"),
        FileKind("ascend_raw", r"(^|/)prof_[^/]*/(device_\d+|host)/(data|sqlite)/|\.slice_\d+(\.done)?$"),
        FileKind("msprof_sqlite", r"(^|/)sqlite/[^/]*\.db$"),
        FileKind("xplane", r"\.xplane\.pb$"),
        FileKind("tensorboard", r"(^|/)events\.out\.tfevents"),
        FileKind("perfetto", r"\.(pftrace|perfetto-trace|perfetto)$"),
        FileKind("memory_snapshot", r"\.(pickle|pkl)$", rb"^\x80.*(segments|device_traces)"),
        FileKind("flight_recorder", r"", rb"^\x80.*(pg_config|nccl_version|collective_seq_id)"),
        FileKind("pickle", r"\.(pickle|pkl)$"),
        FileKind("execution_trace", r"\.json(\.gz)?$", rb'^\s*\{.*"schema"\s*:\s*"1\.\d\.\d.*"nodes"\s*:'),
        FileKind("execution_trace", r"\.json(\.gz)?$", rb'^\s*\{.*"nodes"\s*:\s*\[.*"(rf_id|ctrl_deps|op_schema)"'),
        FileKind("chakra", r"\.et$|chakra"),
        FileKind("rocprof", r"", rb'"rocprofiler-sdk-tool"'),
        FileKind("speedscope", r"\.json$", rb"speedscope\.app"),
        FileKind("chrome_trace", r"\.json(\.gz)?$", rb'"ph"\s*:\s*"'),
        FileKind("json", r"\.json(\.gz)?$"),
        FileKind("checkpoint", r"\.(ckpt|safetensors|pth?|bin|onnx|mindir|om)$"),
        FileKind("archive", r"\.(zip|tar|tgz|zst|7z|rar)$|\.tar\.(gz|zst|xz|bz2)$"),
        FileKind("sqlite", r"", rb"^SQLite format 3"),
        FileKind("log", r"\.(log|txt|out|err)$"),
    )
)


def describe_unread(files: Iterable[File], language: Language = "en") -> list[str]:
    """One line per kind, the most frequent first: "3 files … (for example run/x.pb): …"."""
    found: Counter[str] = Counter()
    example: dict[str, str] = {}
    for at, file in enumerate(files):
        kind = kind_of(file, look=at < _MOST_LOOKED_AT)
        found[kind] += 1
        example.setdefault(kind, file.relative)
    shown = sorted(found, key=lambda kind: (kind == "other", -found[kind]))[:_MOST_SHOWN]
    return [text(f"formats.unread.{kind}", language, count=f"{found[kind]:,}", example=example[kind]) for kind in shown]


def kind_of(file: File, *, look: bool = True) -> str:
    """Key of the kind of a file; "other" if it is none that we know."""
    if not file.size:
        return "empty"
    head = _head(file) if look else b""
    lower = file.relative.lower()
    for kind, name, content in _KINDS:
        if name.search(lower) and (not kind.content or content.search(head)):
            return kind.key
    return "other"


def _head(file: File) -> bytes:
    if is_archive(file.name):
        return b""
    return read_head(file.path, _HEAD)
