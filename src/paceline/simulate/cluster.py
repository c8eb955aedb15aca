"""The simulated cluster: size, parallel layout, hosts of the ranks, and communication groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from paceline.core.errors import UsageError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MAX_RANKS = 1 << 20
_COUNTS = (
    "hosts", "devices", "dp", "tp", "pp", "steps", "layers", "micro_batches", "hidden", "sequence", "experts",
    "cards_per_nic", "chunks",
)  # fmt: skip
TICK = 10  # ns; every recorded time is a multiple, so that the 10 ns tick formats lose nothing


def ticks(values: Floats) -> Ints:
    """Nanoseconds rounded to whole ticks."""
    rounded: Ints = (np.rint(values / TICK) * TICK).astype(np.int64)
    return rounded


@dataclass(frozen=True)
class ClusterSpec:
    """What to simulate. Ranks are numbered as in Megatron: tp fastest, then dp, then pp."""

    hosts: int = 2
    devices: int = 8
    dp: int = 4
    tp: int = 2
    pp: int = 2
    steps: int = 5
    layers: int = 8
    micro_batches: int = 8
    hidden: int = 2048
    sequence: int = 1024
    seed: int = 1
    noise: float = 0.007  # relative spread of one kernel or one transfer
    heavy_tails: bool = False  # kernels and transfers vary as Student's t with 3 degrees of freedom
    sequence_parallel: bool = False  # tp uses reduce_scatter + all_gather instead of all_reduce
    sharded: bool = (
        False  # weights are spread over dp (FSDP, ZeRO-3): gathered ahead of each layer, on a stream of their own
    )
    experts: int = 1  # dp neighbours that share the experts of a layer: all_to_all before and after each MLP
    chunks: int = 1  # parts of the model per stage, which take turns (interleaved 1F1B)
    buffered_sends: bool = False  # a send ends when its data has left, whether or not the receiver is there
    cards_per_nic: int = 1  # cards of a host that share the bandwidth of one network card
    clock_skew: bool = True  # clocks of hosts differ by milliseconds
    declare_groups: bool = True  # the recording lists the members of each group
    detail_ranks: int | None = None  # how many ranks get the large files (traces, kernels, memory); None = all
    start: int = 1_763_208_000_000_000_000  # ns since 1970 of the first step

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.world > MAX_RANKS:
            raise UsageError(f"{self.hosts} hosts × {self.devices} devices are more than {MAX_RANKS:,} ranks")
        if self.seed < 0 or (self.detail_ranks or 0) < 0:
            raise UsageError("the seed and the number of detail ranks cannot be negative")
        if not 0 <= self.noise <= 0.1:
            raise UsageError(f"noise is a fraction between 0 and 0.1, not {self.noise}")
        if self.dp * self.tp * self.pp != self.world:
            raise UsageError(
                f"dp {self.dp} × tp {self.tp} × pp {self.pp} = {self.dp * self.tp * self.pp} ranks, "
                f"but {self.hosts} hosts × {self.devices} devices = {self.world}"
            )
        if self.layers % self.pp:
            raise UsageError(f"{self.layers} layers cannot be split evenly into {self.pp} stages")
        if self.dp % self.experts:
            raise UsageError(f"{self.experts} ranks that share experts do not divide dp {self.dp}")
        if self.chunks > 1 and (self.pp == 1 or self.layers % (self.pp * self.chunks) or self.micro_batches % self.pp):
            raise UsageError(
                f"{self.chunks} chunks per stage need a pipeline (pp {self.pp}), layers ({self.layers}) that fill all "
                f"chunks and micro-batches ({self.micro_batches}) in multiples of pp"
            )
        if self.sharded and (self.pp > 1 or self.dp == 1):
            raise UsageError("sharded weights need data parallelism (dp of 2 or more) and no pipeline (pp 1)")
        if self.hidden % (64 * self.tp):
            raise UsageError(f"hidden size {self.hidden} must be a multiple of 64 × tp ({64 * self.tp})")

    @property
    def world(self) -> int:
        return self.hosts * self.devices

    @property
    def stage_size(self) -> int:
        return self.dp * self.tp


@dataclass(frozen=True)
class Group:
    """A communicator. The index of a rank in it is its position in `ranks`."""

    id: str
    kind: str  # as frameworks call it: default_group, dp, tp, pp, mp (tp × pp of one replica) or ep
    ranks: tuple[int, ...]

    def index(self, rank: int) -> int:
        return self.ranks.index(rank)

    def following(self, rank: int) -> int:
        """The next rank in the ring."""
        return self.ranks[(self.index(rank) + 1) % len(self.ranks)]


@dataclass(frozen=True)
class Cluster:
    """Coordinates, hosts and communicators of every rank."""

    spec: ClusterSpec

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """(dp, tp, pp) of a rank."""
        spec = self.spec
        return rank // spec.tp % spec.dp, rank % spec.tp, rank // spec.stage_size

    def rank(self, dp: int, tp: int, pp: int) -> int:
        return (pp * self.spec.dp + dp) * self.spec.tp + tp

    def host(self, rank: int) -> int:
        return rank // self.spec.devices

    def device(self, rank: int) -> int:
        return rank % self.spec.devices

    def stage(self, rank: int) -> int:
        return rank // self.spec.stage_size

    def host_name(self, rank: int) -> str:
        return f"node{self.host(rank) + 1}"

    def host_address(self, rank: int) -> str:
        return f"10.0.{self.host(rank) // 250}.{self.host(rank) % 250 + 1}"

    def transport(self, source: int, target: int) -> str:
        return "HCCS" if self.host(source) == self.host(target) else "RDMA"

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Every communicator of the job, the world first."""
        return tuple(
            Group(f"10.0.0.1%eth0_60000_{number}_1763207000000000", kind, ranks)
            for number, (kind, ranks) in enumerate(self._members())
        )

    @cached_property
    def _by_axis(self) -> dict[tuple[str, int], Group]:
        found = {}
        for group in self.groups:
            for rank in group.ranks:
                found[(_axis(self, group, rank), rank)] = group
        return found

    def group(self, axis: str, rank: int) -> Group:
        """The communicator of a rank along an axis: tp, dp, mp, ep, next or previous (the pipeline neighbours)."""
        return self._by_axis[(axis, rank)]

    def has_group(self, axis: str, rank: int) -> bool:
        return (axis, rank) in self._by_axis

    def groups_of(self, rank: int) -> list[Group]:
        axes = ("default_group", "dp", "tp", "mp", "ep", "previous", "next")
        return [self._by_axis[(axis, rank)] for axis in axes if (axis, rank) in self._by_axis]

    def _members(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        spec = self.spec
        dps, tps, pps = range(spec.dp), range(spec.tp), range(spec.pp)
        yield "default_group", tuple(range(spec.world))
        if spec.tp > 1:
            yield from (("tp", tuple(self.rank(d, t, p) for t in tps)) for p in pps for d in dps)
        if spec.dp > 1:
            yield from (("dp", tuple(self.rank(d, t, p) for d in dps)) for p in pps for t in tps)
        # torch opens one communicator per pair of pipeline neighbours
        pairs = [(p, p + 1) for p in range(spec.pp - 1)] + [(spec.pp - 1, 0)] * (spec.chunks > 1)
        yield from (("pp", (self.rank(d, t, a), self.rank(d, t, b))) for a, b in pairs for d in dps for t in tps)
        if spec.tp * spec.pp > 1:
            yield from (("mp", tuple(self.rank(d, t, p) for p in pps for t in tps)) for d in dps)
        if spec.experts > 1:
            blocks = [dps[first : first + spec.experts] for first in range(0, spec.dp, spec.experts)]
            yield from (("ep", tuple(self.rank(d, t, p) for d in block)) for p in pps for block in blocks for t in tps)


def _axis(cluster: Cluster, group: Group, rank: int) -> str:
    """A pp pair is the `next` of its first member and the `previous` of its second."""
    if group.kind != "pp":
        return group.kind
    return "next" if rank == group.ranks[0] else "previous"
