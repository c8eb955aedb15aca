"""Map a host's files to the cluster tree that MindInsight and our readers expect.

    <host_train_id>/<device_regex><N>/<output>*/profiler*/<file>   →   cluster_profiler/<number>/profiler/<file>

File names contain the device, so all devices share one directory. A file of the same name from a second device goes to
cluster_profiler/<number>/device_<N>/profiler/<file> instead of overwriting the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from paceline.core.errors import UsageError
from paceline.formats.file_selection import needed_for_diagnosis
from paceline.storage.file_selection import is_unfinished
from paceline.storage.stored_file import StoredFile

_PROFILER = re.compile(r"^profiler[^/]*/")
_PIECES = re.compile(r"(\D+)|(\d+)", re.ASCII)


@dataclass(frozen=True)
class ClusterLayout:
    """Source key → key below cluster_profiler/<number>, and the devices found."""

    targets: dict[str, str]
    devices: tuple[int, ...]


def device_pattern(device_regex: str, output: str) -> re.Pattern[str]:
    """msadvisor's shell pattern as a regular expression; `device_regex` may be a plain prefix, as there, or a regex."""
    try:
        re.compile(device_regex)
    except re.error:
        device_regex = re.escape(device_regex)
    inner = "/".join(part for part in output.split("/") if part not in ("", "."))
    middle = re.escape(inner) + "[^/]*/" if inner else "(?:[^/]+/)*?"
    try:
        return re.compile(rf"(?:{device_regex})(?P<device>\d+)/{middle}(?P<profiler>profiler[^/]*)/(?P<rest>.+)")
    except re.error as error:
        raise UsageError(f"device_regex {device_regex!r}: {error}") from error


def map_device_files(items: Iterable[StoredFile], pattern: re.Pattern[str]) -> ClusterLayout:
    targets: dict[str, tuple[int, StoredFile]] = {}
    found: dict[str, str] = {}
    devices: set[int] = set()
    # Of several profiler directories of a device the last one wins, as in msadvisor, which copies one after the other.
    for item in sorted(items, key=lambda item: _natural_order(item.key)):
        match = pattern.fullmatch(item.key)
        if not match:
            continue
        devices.add(int(match["device"]))
        if not needed_for_diagnosis(match["rest"]) or is_unfinished(item.key):
            continue
        device, target = int(match["device"]), f"profiler/{match['rest']}"
        if target in targets and targets[target][0] != device:
            target = f"device_{device}/{target}"
        elif target in targets:
            del found[targets[target][1].key]
        targets[target] = (device, item)
        found[item.key] = target
    return ClusterLayout(found, tuple(sorted(devices)))


def _natural_order(key: str) -> list[list[tuple[int, str]]]:
    """Sort key by directory, with numbers by their value: profiler, profiler-2, profiler-10."""
    return [
        [(int(digits), "") if digits else (-1, text) for text, digits in _PIECES.findall(name)]
        for name in key.split("/")
    ]


def map_unchanged(items: Iterable[StoredFile]) -> ClusterLayout:
    """For hosts without device directories: files that readers open, under their own names.

    Only profiler*/ becomes profiler/, as in msadvisor, because MindInsight looks nowhere else.
    """
    keys = sorted(item.key for item in items if needed_for_diagnosis(item.key) and not is_unfinished(item.key))
    targets, taken = {key: key for key in keys}, set(keys)
    for key in keys:
        target = _PROFILER.sub("profiler/", key)
        if target not in taken:
            targets[key] = target
            taken.add(target)
    return ClusterLayout(targets, ())
