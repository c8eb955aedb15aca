"""Fetch a remote source into the cache directory: only files that readers open, in parallel, only what changed."""

from __future__ import annotations

from pathlib import Path

from paceline.core.errors import UsageError
from paceline.storage.cache_dir import cache_name, cache_part
from paceline.storage.file_selection import FileFilter
from paceline.storage.partial_files import PARTIAL_SUFFIX
from paceline.storage.transfer.transfer_report import OnProgress, TransferReport
from paceline.storage.url import is_remote, parse_url


def fetch_source(source: str | Path, needed: FileFilter, *, progress: OnProgress | None = None) -> Path:
    """The path itself for a local source; for a URL a copy in the cache, brought up to date."""
    if not is_remote(source):
        text = str(source)
        return Path(parse_url(text).path) if text.startswith("file:") else Path(source)
    url = parse_url(source)
    target = cache_part("remote") / cache_name(url.text) / url.name
    report = download_source(source, target, needed, progress=progress)
    if target.is_dir():
        _remove_stale_files(target, report.present)
    return target


def download_source(
    source: str | Path, target: Path, needed: FileFilter, *, progress: OnProgress | None = None
) -> TransferReport:
    """Bring `target` up to date with the files of a URL that readers open; what else is there stays."""
    # Imported here: most sources are local, and opening them should not load asyncio and TLS.
    from paceline.storage.reachability import require_reachable
    from paceline.storage.transfer.transfer import TransferOptions, transfer

    url = parse_url(source)
    require_reachable(url)
    report = transfer(url.text, target, TransferOptions(file_filter=needed, progress=progress))
    report.raise_failures()
    if not target.exists():
        raise UsageError(f"{url.text}: no profile found", hint="none of its files is one that readers open")
    return report


def _remove_stale_files(directory: Path, present: frozenset[str]) -> None:
    """Remove from our cache what the source no longer has, so that no stale rank is shown."""
    for path in directory.rglob("*"):
        relative = path.relative_to(directory).as_posix()
        if path.is_file() and relative not in present and not path.name.endswith(PARTIAL_SUFFIX):
            path.unlink()
