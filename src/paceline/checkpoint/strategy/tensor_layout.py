"""TensorLayout: how a parameter is sharded over the devices of a pipeline stage, in MindSpore's terms.

Devices form a matrix; rank r is its r-th cell in row-major order. Each tensor axis lists the matrix axes that shard it,
outermost first (none: every device holds the full axis). Matrix axes that no tensor axis lists are replicas. With
optimizer sharding the first tensor axis is sharded again among `shards` neighbouring replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from paceline.checkpoint.tensors.tensor_slice import Shape, TensorSlice, full_slice
from paceline.core.errors import PacelineError
from paceline.core.zip_strict import zip_strict


class LayoutError(PacelineError):
    """A parameter cannot be sharded as its layout requires."""


@dataclass(frozen=True)
class TensorLayout:
    devices: Shape
    """The device matrix."""
    axes: tuple[Shape, ...]
    """For each tensor axis, the matrix axes (counted from the left) that shard it; empty: not sharded, any number of axes."""
    shards: int = 0
    """Additional optimizer shards: 0 none, -1 one per replica."""
    step: int = 0
    """Distance between the ranks of neighbouring shards, as in the strategy file."""

    @property
    def device_count(self) -> int:
        return prod(self.devices)

    @property
    def replica_axes(self) -> Shape:
        used = {axis for axes in self.axes for axis in axes}
        return tuple(axis for axis in range(len(self.devices)) if axis not in used)

    @property
    def shard_count(self) -> int:
        """Number of optimizer shards of the first axis."""
        if not self.shards or not self.step:
            return 1
        replicas = prod(self.devices[axis] for axis in self.replica_axes)
        return replicas if self.shards < 0 else self.shards

    @property
    def cuts(self) -> Shape:
        """Number of slices along each tensor axis, including optimizer shards."""
        cuts = [prod(self.devices[axis] for axis in axes) for axes in self.axes]
        if self.shard_count > 1:
            cuts[0] *= self.shard_count
        return tuple(cuts)

    def full_shape(self, name: str, part: Shape) -> Shape:
        """Full shape of a parameter whose slice on a rank has the shape `part`."""
        if not self.axes:
            return part
        self._check(name, len(part))
        return tuple(extent * cut for extent, cut in zip_strict(part, self.cuts))

    def rank_slice(self, name: str, rank: int, full: Shape) -> TensorSlice:
        """The slice that a rank of the stage (counted from 0) holds."""
        if not self.axes:
            return full_slice(full)
        self._check(name, len(full))
        for axis, (extent, cut) in enumerate(zip_strict(full, self.cuts)):
            if extent % cut:
                raise LayoutError(
                    f"{name}: axis {axis} of size {extent} cannot be split into {cut} equal slices",
                    hint="this strategy does not match this checkpoint",
                )
        shape = tuple(extent // cut for extent, cut in zip_strict(full, self.cuts))
        return TensorSlice(tuple(i * n for i, n in zip_strict(self._indices(rank), shape)), shape)

    def _indices(self, rank: int) -> list[int]:
        position = self._position(rank)
        indices = []
        for axes in self.axes:
            index = 0
            for axis in axes:
                index = index * self.devices[axis] + position[axis]
            indices.append(index)
        if self.shard_count > 1:
            replica = 0
            for axis in self.replica_axes:
                replica = replica * self.devices[axis] + position[axis]
            indices[0] = indices[0] * self.shard_count + replica % self.shard_count
        return indices

    def _position(self, rank: int) -> list[int]:
        position = []
        for extent in reversed(self.devices):
            rank, index = divmod(rank, extent)
            position.append(index)
        return position[::-1]

    def _check(self, name: str, rank: int) -> None:
        if len(self.axes) != rank:
            raise LayoutError(
                f"{name}: has {rank} axes, but {len(self.axes)} in the strategy",
                hint="this strategy belongs to another model",
            )
        replicas = prod(self.devices[axis] for axis in self.replica_axes)
        if self.shard_count > 1 and replicas % self.shard_count:
            raise LayoutError(f"{name}: {replicas} replicas cannot be divided into {self.shard_count} optimizer shards")
