"""`collect_data`: upload a rank's profile from a training container, with the signature of mox.file.copy_parallel."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Union

from paceline.core.errors import UsageError

_DATA = ("ALL", "HCCL")
_PathOrUrl = Union[str, "os.PathLike[str]"]


def collect_data(
    src_url: _PathOrUrl | None = None,
    dst_url: _PathOrUrl | None = None,
    data: str = "ALL",
    *,
    srt_url: _PathOrUrl | None = None,
    file_list: Sequence[str] | None = None,
    threads: int = 16,
    is_processing: bool = True,
    use_queue: bool = True,
) -> None:
    """Copy a rank's profile out of the container: all of it, or (data="HCCL") what communication analysis needs.

    Unlike msadvisor's function, data="ALL" works (in upper or lower case), everything is verified, a second run copies
    only what is missing, and files that could not be copied raise TransferError instead of being printed. `srt_url` is
    the spelling of `src_url` in msadvisor's documentation. The last four parameters are those of copy_parallel:
    `file_list` and `threads` work as there, `is_processing` and `use_queue` have no effect.

    >>> collect_data("/cache/profiler_data0", "obs://bucket/run1/0", data="HCCL")        # doctest: +SKIP
    """
    source, target = _source_and_target(src_url, srt_url, dst_url)
    if not isinstance(data, str) or data.upper() not in _DATA:
        raise UsageError(f"data={data!r}: must be one of {', '.join(_DATA)}")

    # Imported on first use: a training job that never collects should not pay for it.
    from paceline.collect.container_files import needed_outside_container
    from paceline.storage.file_selection import everything
    from paceline.storage.transfer.transfer import TransferOptions, transfer
    from paceline.storage.transfer.transfer_pool import TransferLimits

    selected = everything
    if data.upper() == "HCCL":
        source, target = source.rstrip("/") + "/profiler", target.rstrip("/") + "/profiler"
        selected = needed_outside_container
    listed = frozenset(file_list) if file_list is not None else None
    options = TransferOptions(
        file_filter=lambda key: selected(key) and (listed is None or key in listed),
        limits=TransferLimits(max(1, min(int(threads), 256))),
    )
    report = transfer(source, target, options)
    report.raise_failures()
    if not report.present:
        raise UsageError(f"{source}: nothing to copy", hint="call collect_data after the profiler has been analysed")
    if missing := (listed or frozenset()) - report.present:
        raise UsageError(
            f"{source}: {len(missing)} files of file_list were not copied: {min(missing)}", hint="check that they exist"
        )
    print(f"paceline: {report.moved:,} files, {report.moved_bytes / 1e6:,.1f} MB → {target}", file=sys.stderr)


def _source_and_target(
    src_url: _PathOrUrl | None, srt_url: _PathOrUrl | None, dst_url: _PathOrUrl | None
) -> tuple[str, str]:
    if src_url and srt_url and os.fspath(src_url) != os.fspath(srt_url):
        raise UsageError("collect_data: src_url and srt_url (an alias of it) have different values")
    source = src_url or srt_url
    if not source or not dst_url:
        raise UsageError("collect_data: src_url and dst_url are required")
    return os.fspath(source), os.fspath(dst_url)
