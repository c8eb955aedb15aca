"""Where a host's files go in the cluster tree that MindInsight and our readers expect.

    <host_train_id>/<device_regex><N>/<output>*/profiler*/<file>   →   cluster_profiler/<number>/profiler/<file>

Files are named by device there, so that all devices share one directory. A name that two devices use with different
contents goes to cluster_profiler/<number>/device_<N>/profiler/<file> instead of being overwritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from paceline.errors import UsageError
from paceline.storage.selection import for_diagnosis, is_unfinished
from paceline.storage.store import Item

_PROFILER = re.compile(r"^profiler[^/]*/")
_PIECES = re.compile(r"(\D+)|(\d+)", re.ASCII)


@dataclass(frozen=True)
class Layout:
    """Source key → key below cluster_profiler/<number>, and the devices that were found."""

    targets: dict[str, str]
    devices: tuple[int, ...]


def device_pattern(device_regex: str, output: str) -> re.Pattern[str]:
    """The original's shell pattern; `device_regex` was a plain prefix there, a real expression works too."""
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


def lay_out(items: Iterable[Item], pattern: re.Pattern[str]) -> Layout:
    targets: dict[str, tuple[int, Item]] = {}
    found: dict[str, str] = {}
    devices: set[int] = set()
    # Later profiler directories win over earlier ones of the same device, as when the original copies one after the other.
    for item in sorted(items, key=lambda item: _in_order(item.key)):
        match = pattern.fullmatch(item.key)
        if not match:
            continue
        devices.add(int(match["device"]))
        if not for_diagnosis(match["rest"]) or is_unfinished(item.key):
            continue
        device, target = int(match["device"]), f"profiler/{match['rest']}"
        if target in targets and targets[target][0] != device:
            target = f"device_{device}/{target}"
        elif target in targets:
            del found[targets[target][1].key]
        targets[target] = (device, item)
        found[item.key] = target
    return Layout(found, tuple(sorted(devices)))


def _in_order(key: str) -> list[list[tuple[int, str]]]:
    """Directory by directory, numbers by their value: profiler, profiler-2, profiler-10."""
    return [
        [(int(digits), "") if digits else (-1, text) for text, digits in _PIECES.findall(name)]
        for name in key.split("/")
    ]


def as_it_is(items: Iterable[Item]) -> Layout:
    """Hosts without device directories: what readers open, under the names it has.

    But for profiler*/, which is profiler/ in the cluster tree: the original does so, and MindInsight looks nowhere else.
    """
    keys = sorted(item.key for item in items if for_diagnosis(item.key) and not is_unfinished(item.key))
    targets, taken = {key: key for key in keys}, set(keys)
    for key in keys:
        target = _PROFILER.sub("profiler/", key)
        if target not in taken:
            targets[key] = target
            taken.add(target)
    return Layout(targets, ())
