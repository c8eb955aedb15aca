"""A remote source as a local directory: only what readers open, fetched in parallel, once."""

from __future__ import annotations

from pathlib import Path

from paceline.errors import UsageError
from paceline.storage.cache import cache_name, cache_root
from paceline.storage.location import is_remote, parse
from paceline.storage.report import OnProgress
from paceline.storage.selection import Rule, for_diagnosis
from paceline.storage.store import PARTIAL


def localize(source: str | Path, needed: Rule = for_diagnosis, *, progress: OnProgress | None = None) -> Path:
    """The path itself for a local source; for s3://, obs:// and ssh:// a copy in the cache, brought up to date."""
    if not is_remote(source):
        text = str(source)
        return Path(parse(text).path) if text.startswith("file:") else Path(source)
    # Most sources are local, and opening them should not load asyncio and TLS.
    from paceline.storage.transfer import Options, transfer

    url = parse(source).url
    target = cache_root() / "remote" / cache_name(url)
    report = transfer(url, target / parse(url).name, Options(rule=needed, progress=progress))
    report.raise_failures()
    found = target / parse(url).name
    if not found.exists():
        raise UsageError(f"{url}: no profile there", hint="nothing of it is a file that readers open")
    if found.is_dir():
        _forget_removed(found, report.present)
    return found


def _forget_removed(directory: Path, present: frozenset[str]) -> None:
    """What the source no longer has goes from the cache (which is ours), so that no stale rank is shown."""
    for path in directory.rglob("*"):
        relative = path.relative_to(directory).as_posix()
        if path.is_file() and relative not in present and not path.name.endswith(PARTIAL):
            path.unlink()
