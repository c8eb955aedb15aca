"""How one parameter is cut over the devices of a pipeline stage, in MindSpore's terms.

Devices stand in a matrix; rank r is its r-th cell, row by row. Each tensor axis names the matrix axes that cut it (none:
it is whole on every device), first one outermost. What axes no tensor axis names are replicas; with optimizer sharding
the first tensor axis is cut again among `shards` neighbouring replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from paceline.checkpoint.box import Box, Shape, whole
from paceline.errors import PacelineError


class LayoutError(PacelineError):
    """A parameter cannot be cut as its layout says."""


@dataclass(frozen=True)
class Layout:
    devices: Shape
    """The device matrix."""
    axes: tuple[Shape, ...]
    """For each tensor axis, the matrix axes (counted from the left) that cut it; none at all: whole, any number of axes."""
    shards: int = 0
    """Optimizer shards on top: 0 none, -1 as many as there are replicas."""
    step: int = 0
    """Distance between the ranks of two neighbouring shards, as the file says it."""

    @property
    def device_count(self) -> int:
        return prod(self.devices)

    @property
    def replica_axes(self) -> Shape:
        used = {axis for axes in self.axes for axis in axes}
        return tuple(axis for axis in range(len(self.devices)) if axis not in used)

    @property
    def shard_count(self) -> int:
        """How many ways the first axis is cut again."""
        if not self.shards or not self.step:
            return 1
        replicas = prod(self.devices[axis] for axis in self.replica_axes)
        return replicas if self.shards < 0 else self.shards

    @property
    def cuts(self) -> Shape:
        """Into how many parts each tensor axis is cut, optimizer shards included."""
        cuts = [prod(self.devices[axis] for axis in axes) for axes in self.axes]
        if self.shard_count > 1:
            cuts[0] *= self.shard_count
        return tuple(cuts)

    def full_shape(self, name: str, part: Shape) -> Shape:
        """Of the parameter whose part on any rank has this shape."""
        if not self.axes:
            return part
        self._check(name, len(part))
        return tuple(extent * cut for extent, cut in zip(part, self.cuts, strict=True))

    def box(self, name: str, rank: int, full: Shape) -> Box:
        """What a rank of the stage (counted from 0) holds."""
        if not self.axes:
            return whole(full)
        self._check(name, len(full))
        for axis, (extent, cut) in enumerate(zip(full, self.cuts, strict=True)):
            if extent % cut:
                raise LayoutError(
                    f"{name}: axis {axis} of {extent} cannot be cut into {cut} equal parts",
                    hint="this strategy does not fit this checkpoint",
                )
        shape = tuple(extent // cut for extent, cut in zip(full, self.cuts, strict=True))
        return Box(tuple(i * n for i, n in zip(self._indices(rank), shape, strict=True)), shape)

    def _indices(self, rank: int) -> list[int]:
        place = self._place(rank)
        indices = []
        for axes in self.axes:
            index = 0
            for axis in axes:
                index = index * self.devices[axis] + place[axis]
            indices.append(index)
        if self.shard_count > 1:
            replica = 0
            for axis in self.replica_axes:
                replica = replica * self.devices[axis] + place[axis]
            indices[0] = indices[0] * self.shard_count + replica % self.shard_count
        return indices

    def _place(self, rank: int) -> list[int]:
        place = []
        for extent in reversed(self.devices):
            rank, index = divmod(rank, extent)
            place.append(index)
        return place[::-1]

    def _check(self, name: str, rank: int) -> None:
        if len(self.axes) != rank:
            raise LayoutError(
                f"{name}: has {rank} axes, the strategy speaks of {len(self.axes)}",
                hint="this strategy belongs to another model",
            )
        replicas = prod(self.devices[axis] for axis in self.replica_axes)
        if self.shard_count > 1 and replicas % self.shard_count:
            raise LayoutError(f"{name}: {self.shard_count} optimizer shards do not fit {replicas} replicas")
