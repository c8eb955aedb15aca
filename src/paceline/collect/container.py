"""`collect_data`: what training scripts call in place of mox.file.copy_parallel, under its original signature."""

from __future__ import annotations

import sys

from paceline.errors import UsageError

_DATA = ("ALL", "HCCL")


def collect_data(
    src_url: str | None = None, dst_url: str | None = None, data: str = "ALL", *, srt_url: str | None = None
) -> None:
    """Copy a rank's profile out of the container: all of it, or (data="HCCL") what communication analysis needs.

    Unlike the original, "ALL" copies (in any spelling), everything is verified, running again moves only what is
    missing, and what could not be copied raises TransferError instead of being printed. `srt_url` is how the original
    documentation spells `src_url`.

    >>> collect_data("/cache/profiler_data0", "obs://bucket/run1/0", data="HCCL")        # doctest: +SKIP
    """
    source = src_url or srt_url
    if not source or not dst_url:
        raise UsageError("collect_data needs src_url and dst_url")
    if data.upper() not in _DATA:
        raise UsageError(f"data={data!r}: not one of {', '.join(_DATA)}")

    # On first use only: a training job that never collects should not pay for the import.
    from paceline.storage.selection import everything, for_container
    from paceline.storage.transfer import Options, transfer

    if data.upper() == "HCCL":
        source, dst_url = source.rstrip("/") + "/profiler", dst_url.rstrip("/") + "/profiler"
    rule = for_container if data.upper() == "HCCL" else everything
    report = transfer(source, dst_url, Options(rule=rule))
    report.raise_failures()
    if not report.present:
        raise UsageError(f"{source}: nothing to copy", hint="was the profiler analysed before collect_data was called?")
    print(f"paceline: {report.moved:,} files, {report.moved_bytes / 1e6:,.1f} MB → {dst_url}", file=sys.stderr)
