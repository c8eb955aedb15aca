"""`collect_data`: what training scripts call in place of mox.file.copy_parallel, under its original signature."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from paceline.errors import UsageError

_DATA = ("ALL", "HCCL")
_Place = str | os.PathLike[str]


def collect_data(
    src_url: _Place | None = None,
    dst_url: _Place | None = None,
    data: str = "ALL",
    *,
    srt_url: _Place | None = None,
    file_list: Sequence[str] | None = None,
    threads: int = 16,
    is_processing: bool = True,
    use_queue: bool = True,
) -> None:
    """Copy a rank's profile out of the container: all of it, or (data="HCCL") what communication analysis needs.

    Unlike the original, "ALL" copies (in any spelling), everything is verified, running again moves only what is
    missing, and what could not be copied raises TransferError instead of being printed. `srt_url` is how the original
    documentation spells `src_url`. The last four are copy_parallel's: only these files, so many at a time; how moxing
    shares the work among processes does not matter here.

    >>> collect_data("/cache/profiler_data0", "obs://bucket/run1/0", data="HCCL")        # doctest: +SKIP
    """
    source, target = _places(src_url, srt_url, dst_url)
    if not isinstance(data, str) or data.upper() not in _DATA:
        raise UsageError(f"data={data!r}: not one of {', '.join(_DATA)}")

    # On first use only: a training job that never collects should not pay for the import.
    from paceline.storage.engine import Speed
    from paceline.storage.selection import everything, for_container
    from paceline.storage.transfer import Options, transfer

    rule = everything
    if data.upper() == "HCCL":
        source, target, rule = source.rstrip("/") + "/profiler", target.rstrip("/") + "/profiler", for_container
    listed = frozenset(file_list) if file_list is not None else None
    options = Options(
        rule=lambda key: rule(key) and (listed is None or key in listed),
        speed=Speed(max(1, min(int(threads), 256))),
    )
    report = transfer(source, target, options)
    report.raise_failures()
    if not report.present:
        raise UsageError(f"{source}: nothing to copy", hint="was the profiler analysed before collect_data was called?")
    if missing := (listed or frozenset()) - report.present:
        raise UsageError(f"{source}: {len(missing)} of file_list were not copied: {min(missing)}", hint="is it there?")
    print(f"paceline: {report.moved:,} files, {report.moved_bytes / 1e6:,.1f} MB → {target}", file=sys.stderr)


def _places(src_url: _Place | None, srt_url: _Place | None, dst_url: _Place | None) -> tuple[str, str]:
    if src_url and srt_url and os.fspath(src_url) != os.fspath(srt_url):
        raise UsageError("collect_data: src_url and srt_url are two spellings of one thing, and they differ")
    source = src_url or srt_url
    if not source or not dst_url:
        raise UsageError("collect_data needs src_url and dst_url")
    return os.fspath(source), os.fspath(dst_url)
