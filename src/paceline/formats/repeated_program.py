"""Steps of a program that marks none: recovered from what it repeats.

A loop launches the same work again and again. Some of it once per step; between two such launches lies one whole program. So a
name is sought whose executions cut the sequence into windows with the same content:

    content     how often each name occurs in a window; typical is the median over the windows
    alike       sum |content − typical| ≤ 10 % of typical
    accepted    alike windows hold 90 % of all launches, 90 % of all names occur in 90 % of the windows, and three names
                occur once in each: one that repeats may be a loop inside a step

The second condition tells a step from a layer: the layers of one step are alike, but embedding and loss are in few of them. Of
all accepted cuts the finest is taken; it begins where the host paused longest, or where the recording begins if it holds
whole steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.formats.intervals import Times

ALIKE = 0.1
COVERED = 0.9
_FEWEST = 2
"""Windows that must be alike."""
_WITNESSES = 3
"""Names that occur once per step."""
_MOST_CUTS = 200
_LARGEST_CONTENT = 20_000_000
"""Windows × names: a finer cut is no step."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class RepeatedProgram:
    bounds: Times
    """Position of the first launch of each whole step, and the one behind the last."""


@dataclass(frozen=True)
class _Cut:
    starts: Times
    """Where a window begins; the last window ends with the sequence."""
    alike: Bools
    typical: Times


def repeated_program(names: Times, times: Times) -> RepeatedProgram | None:
    """`names`: number of the name of each launch, from 0 and without gaps; `times`: when. None if nothing repeats."""
    if not len(names):
        return None
    present, first, counts = np.unique(names, return_index=True, return_counts=True)
    earliest = np.argsort(first, kind="stable")
    for count in sorted(set(counts[counts >= _FEWEST].tolist()), reverse=True)[-_MOST_CUTS:]:
        if count * len(counts) > _LARGEST_CONTENT:
            continue
        cut = _cut_at(int(present[earliest[counts[earliest] == count][0]]), names)
        if cut is not None:
            best = _at_longest_pause(cut, names, times)
            return _whole_steps(best, len(names)) if best else None
    return None


def _cut_at(name: int, names: Times) -> _Cut | None:
    """The windows that begin with a name, if they are steps."""
    starts = np.flatnonzero(names == name)
    width = int(names.max()) + 1
    window = np.searchsorted(starts, np.arange(len(names)), side="right")
    content = np.bincount(window * width + names, minlength=(len(starts) + 1) * width).reshape(-1, width)
    head, windows = content[0], content[1:]
    # The last window may end early: it counts if it is whole, and must not have more than the others if it is not.
    inner = windows[:-1] if len(windows) > _FEWEST else windows
    typical = np.median(inner, axis=0)
    size = typical.sum()
    if not size:
        return None
    difference = np.abs(windows - typical).sum(axis=1)
    alike = difference <= ALIKE * size
    beyond = [np.maximum(edge - typical, 0).sum() for edge in (head, windows[-1])]
    covered = windows[alike].sum() + sum(
        edge.sum() for edge, more in zip((head, windows[-1]), beyond, strict=True) if more <= ALIKE * size
    )
    if alike[-1]:
        covered -= windows[-1].sum()
    everywhere = (windows[alike] > 0).mean(axis=0) >= COVERED if alike.any() else np.zeros(width, dtype=np.bool_)
    if (
        (typical == 1).sum() < _WITNESSES
        or alike.sum() < _FEWEST
        or covered < COVERED * len(names)
        or everywhere.mean() < COVERED
    ):
        return None
    return _Cut(starts, alike, typical)


def _at_longest_pause(cut: _Cut, names: Times, times: Times) -> _Cut | None:
    """The same windows, begun at the launch of once per step before which the host paused longest."""
    once = np.flatnonzero(cut.typical == 1)
    if not len(once):
        return cut
    first = _cut_at(int(names[0]), names) if cut.typical[names[0]] == 1 else None
    if first is not None and first.alike.all():
        return first
    gaps = np.diff(times, prepend=times[0])
    counts = np.bincount(names)
    mean = np.bincount(names, weights=gaps, minlength=len(counts)) / np.maximum(counts, 1)
    for name in once[np.argsort(-mean[once], kind="stable")][:_FEWEST]:
        found = _cut_at(int(name), names)
        if found is not None:
            return found
    return cut


def _whole_steps(cut: _Cut, length: int) -> RepeatedProgram | None:
    """Windows that are alike; those at the ends that are not are unfinished steps."""
    alike = np.flatnonzero(cut.alike)
    low, high = int(alike[0]), int(alike[-1])
    bounds = np.append(cut.starts, length)[low : high + 2]
    return RepeatedProgram(bounds) if len(bounds) > _FEWEST else None
