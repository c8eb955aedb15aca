"""Plug-ins found through entry points: readers, stores, executors, job backends, rules and writers.

A package registers a plug-in in its pyproject.toml, and ours do it in the same way:

    [project.entry-points."paceline.stores"]
    hdfs = "my_package.hdfs:HdfsStore"

The group names the kind of plug-in, the name on the left is what users type (a URL scheme, a `--format`), and the
value on the right is `module:attribute`, imported only when it is used.

The files entry_points.txt are read directly: every command that opens a source needs the readers, and
importlib.metadata takes 30 ms of CPU for what takes 3 ms here (120 distributions).
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.core.errors import PacelineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OURS = "paceline"
_OUR_GROUPS = "[paceline."


@dataclass(frozen=True)
class Plugin:
    """One entry point."""

    group: str
    name: str
    value: str
    """module:attribute"""
    distribution: str

    def load(self) -> Any:
        module, _, attribute = self.value.partition(":")
        found: Any = import_module(module)
        for part in attribute.split(".") if attribute else ():
            found = getattr(found, part)
        return found


def plugins(group: str) -> dict[str, Plugin]:
    """All plug-ins of a group by name, ours first; on a name clash ours win and the other is reported in the log."""
    return _by_name(group, [*our_plugins(group).values(), *other_plugins(group).values()])


def our_plugins(group: str) -> dict[str, Plugin]:
    """The plug-ins of a group that Paceline registers itself."""
    installed = _registered().get(_OURS)
    found = {point.name: point for point in installed or () if point.group == group} or _of_checkout(group)
    if found:
        return found
    if installed is None:
        raise PacelineError("paceline is not installed: pip install -e .")
    raise PacelineError(
        f"the installed metadata of paceline has no entry points of group '{group}': pip install -e .",
        hint="entry points are read when a package is installed; install again after pyproject.toml has changed",
    )


def other_plugins(group: str) -> dict[str, Plugin]:
    """The plug-ins of a group that other installed distributions register; empty when there are none."""
    others = (point for name, points in sorted(_registered().items()) if name != _OURS for point in points)
    return _by_name(group, (point for point in others if point.group == group))


def load_plugin(group: str, name: str) -> Any:
    """The object that a plug-in's entry point names, imported now."""
    known = plugins(group)
    if name not in known:
        raise UsageError(
            f"no plug-in '{name}' in entry-point group '{group}'", hint=f"known: {', '.join(sorted(known))}"
        )
    return load_entry_point(known[name])


def load_entry_point(point: Plugin) -> Any:
    """The object an entry point names; a broken plug-in is an error that names its distribution."""
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise PacelineError(
            f"the plug-in '{point.name}' ({point.value}, group '{point.group}') of {point.distribution} "
            f"could not be loaded: {error}",
            hint="install what it needs, or uninstall it",
        ) from error


def _by_name(group: str, points: Iterable[Plugin]) -> dict[str, Plugin]:
    named: dict[str, Plugin] = {}
    for point in points:
        first = named.setdefault(point.name, point)
        if first is not point:
            _warn_of_clash(group, first, point)
    return named


def _warn_of_clash(group: str, used: Plugin, ignored: Plugin) -> None:
    import logging

    logging.getLogger(__name__).warning(
        "%s is registered twice in entry-point group %s: using %s of %s, ignoring %s of %s",
        *(used.name, group, used.value, used.distribution, ignored.value, ignored.distribution),
    )


@lru_cache(maxsize=None)
def _registered() -> dict[str, list[Plugin]]:
    """Distribution → its entry points in our groups; of two with one name the first on sys.path, as in Python itself."""
    found: dict[str, list[Plugin]] = {}
    for place in sys.path:
        here: dict[str, list[Plugin]] = {}
        for distribution, text in _entry_point_files(place or "."):
            here.setdefault(distribution, []).extend(_parsed(distribution, text) if _OUR_GROUPS in text else ())
        found = {**here, **found}
    return found


def _entry_point_files(place: str) -> Iterator[tuple[str, str]]:
    """(distribution, content of its entry_points.txt) of everything installed in one entry of sys.path."""
    try:
        with os.scandir(place) as entries:
            names = [entry.name for entry in entries]
    except NotADirectoryError:
        yield from _in_archive(place)
        return
    except OSError:
        return
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            yield _normalised(name.rpartition(".")[0].partition("-")[0]), _read(f"{place}/{name}/entry_points.txt")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  a Path per distribution costs a millisecond in all
            return file.read()
    except OSError:
        return ""  # most distributions register nothing


def _in_archive(place: str) -> Iterator[tuple[str, str]]:
    from importlib.metadata import distributions

    for each in distributions(path=[place]):
        yield _normalised(each.metadata["Name"]), each.read_text("entry_points.txt") or ""


def _normalised(distribution: str) -> str:
    return distribution.lower().replace("-", "_").replace(".", "_")


def _parsed(distribution: str, text: str) -> Iterator[Plugin]:
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[]")
        elif "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield Plugin(group, name.strip(), value.partition("[")[0].strip(), distribution)


@lru_cache(maxsize=None)
def _of_checkout(group: str) -> dict[str, Plugin]:
    """Our entry points as a source checkout declares them: it may be newer than the installation, or not installed."""
    project = _pyproject().get("project", {})
    entries = project.get("entry-points", {}).get(group, {}) if project.get("name") == _OURS else {}
    return {name: Plugin(group, name, value, _OURS) for name, value in entries.items()}


def _pyproject() -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib

        try:
            return tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}  # an installed package
    return {}  # no tomllib: Python 3.10 has the package installed
