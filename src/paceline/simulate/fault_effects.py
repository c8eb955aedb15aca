"""Effect of each fault on the state of the cluster, and the components it affects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from paceline.core.errors import UsageError
from paceline.simulate.cluster import Cluster, Floats
from paceline.simulate.cluster_state import ClusterState, healthy_state
from paceline.simulate.fault_arguments import FaultArguments, When
from paceline.simulate.program import stage_program


@dataclass(frozen=True)
class FaultLink:
    src: int
    dst: int
    transport: str


@dataclass(frozen=True)
class FaultSubject:
    """The components at fault, with the fields of a finding's subject."""

    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    links: tuple[FaultLink, ...] = ()
    operators: tuple[str, ...] = ()
    stages: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class FaultEffect:
    subject: FaultSubject
    apply: Callable[[ClusterState], ClusterState] = field(repr=False)
    amount: float | None = None  # the requested factor, milliseconds, …


def slow_rank(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    ranks, factor, when = arguments.ranks(), arguments.factor(1.3), arguments.when()
    return FaultEffect(
        replace(_subject_of(cluster, ranks), steps=when.steps),
        lambda state: replace(state, compute=_scaled(state.compute, ranks, factor, when)),
        factor,
    )


def slow_host(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    host, factor = arguments.host(), arguments.factor(1.2)
    ranks = tuple(rank for rank in range(cluster.spec.world) if cluster.host(rank) == host)
    return FaultEffect(
        _subject_of(cluster, ranks), lambda state: replace(state, compute=_scaled(state.compute, ranks, factor)), factor
    )


def slow_link(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    source, target = arguments.link(links_in_use(cluster))
    factor = arguments.factor(4.0)
    subject = FaultSubject(links=(FaultLink(source, target, cluster.transport(source, target)),))
    return FaultEffect(subject, lambda state: replace(state, links={**state.links, (source, target): factor}), factor)


def slow_nic(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    """The network card of a host: every link that leaves or enters it has less bandwidth."""
    host, factor = arguments.host(), arguments.factor(4.0)
    ranks = [rank for rank in range(cluster.spec.world) if cluster.host(rank) == host]
    subject = replace(_subject_of(cluster, ranks), links=_network_links(cluster, lambda a, b: host in (a, b)))
    return FaultEffect(subject, lambda state: _slower_links(state, subject.links, factor), factor)


def slow_network(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    """Every link between hosts has less bandwidth."""
    factor = arguments.factor(4.0)
    subject = FaultSubject(links=_network_links(cluster, lambda a, b: True))
    return FaultEffect(subject, lambda state: _slower_links(state, subject.links, factor), factor)


def small_packets(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    kilobytes = arguments.number(64, above=0.5, what="the packet size in KiB")
    size = int(kilobytes * 1024) // 512 * 512
    return FaultEffect(FaultSubject(), lambda state: replace(state, largest_packet=size), kilobytes)


def bandwidth_contention(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    factor = arguments.factor(3.0)
    return FaultEffect(FaultSubject(), lambda state: replace(state, contention=factor), factor)


def comm_exposed(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    return FaultEffect(FaultSubject(), lambda state: replace(state, overlap=False))


def load_imbalance(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    """In every step, each replica draws its share of the same total: roughly between 1/F and F times the mean."""
    factor = arguments.factor(1.5)
    spec = cluster.spec
    low = np.log(factor)
    replicas = np.exp(arguments.random.uniform(-low, low, (spec.steps, spec.dp, 1)))
    batches = np.exp(arguments.random.uniform(-low / 4, low / 4, (spec.steps, spec.dp, spec.micro_batches)))
    load = replicas * batches
    load /= load.mean(axis=(1, 2), keepdims=True)
    return FaultEffect(FaultSubject(), lambda state: replace(state, load=state.load * load), factor)


def expert_imbalance(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    """The experts of some ranks get `factor` times an even share of the tokens, their neighbours what is left."""
    ranks, factor = arguments.ranks(), arguments.factor(1.5)
    load = np.ones(cluster.spec.world)
    for rank in ranks:
        members = list(cluster.group("ep", rank).ranks)
        hot = [member for member in members if member in ranks]
        if len(hot) * factor >= len(members):
            raise UsageError(f"fault {arguments.text!r}: {len(members)} ranks share the experts; use a smaller factor")
        load[members] = (len(members) - len(hot) * factor) / (len(members) - len(hot))
        load[hot] = factor
    return FaultEffect(
        _subject_of(cluster, ranks), lambda state: replace(state, expert_load=state.expert_load * load[:, None]), factor
    )


def stage_imbalance(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    """The stage takes layers from the other stages, until it has about `factor` times its number."""
    stage, factor = arguments.stage(), arguments.factor(1.25)
    spec = cluster.spec
    layers = [spec.layers // spec.pp] * spec.pp
    for number in range(max(1, round((factor - 1) * layers[stage]))):
        donor = (stage + 1 + number % (spec.pp - 1)) % spec.pp
        if layers[donor] < 2:
            raise UsageError(f"fault {arguments.text!r}: stage {donor} has no layer to move; use more --layers")
        layers[donor] -= 1
        layers[stage] += 1
    ranks = tuple(rank for rank in range(spec.world) if cluster.stage(rank) == stage)
    subject = FaultSubject(ranks=ranks, stages=(stage,))
    return FaultEffect(subject, lambda state: replace(state, model=replace(state.model, layers=tuple(layers))), factor)


def pipeline_bubble(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    """Fewer, larger micro-batches: the same work, but the pipeline never fills."""
    planned = cluster.spec.micro_batches
    if cluster.spec.chunks > 1:
        raise UsageError(
            f"fault {arguments.text!r}: not with several chunks per stage, whose order needs every micro-batch"
        )
    wanted = int(arguments.number(max(1, planned // 4), above=0, what="the number of micro-batches"))
    if not 1 <= wanted < planned or planned % wanted:
        parts = [str(n) for n in range(1, planned) if planned % n == 0]
        raise UsageError(
            f"fault {arguments.text!r}: {wanted} micro-batches instead of {planned} is not possible; "
            f"possible: {', '.join(parts) or 'none, simulate more micro-batches'}"
        )
    return FaultEffect(
        FaultSubject(), lambda state: replace(state, model=replace(state.model, micro_batches=wanted)), wanted
    )


def input_bound(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    ranks, factor, when = arguments.ranks_or_all(), arguments.factor(50.0), arguments.when()
    return FaultEffect(
        replace(_subject_of(cluster, ranks), steps=when.steps),
        lambda state: replace(state, input_wait=_scaled(state.input_wait, ranks, factor, when)),
        factor,
    )


def host_bound(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    ranks, factor = arguments.ranks_or_all(), arguments.factor(15.0)
    return FaultEffect(
        _subject_of(cluster, ranks), lambda state: replace(state, gaps=_scaled(state.gaps, ranks, factor)), factor
    )


def slow_operator(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    program = stage_program(cluster.spec, healthy_state(cluster).model, 0)
    types = sorted({kernel.type for kernel in program.kernels})
    type = arguments.choice(types, "the operator type", default="FlashAttentionScoreGrad")
    ranks, factor = arguments.ranks(), arguments.factor(2.0)
    by_rank = _scaled(np.ones(cluster.spec.world), ranks, factor)
    subject = replace(_subject_of(cluster, ranks), operators=(type,))
    return FaultEffect(subject, lambda state: replace(state, operators={**state.operators, type: by_rank}), factor)


def cpu_operators(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    time = arguments.number(500, above=0, what="the time in µs")
    subject = FaultSubject(operators=("ArgSort",))
    return FaultEffect(
        subject, lambda state: replace(state, model=replace(state.model, cpu_operator=time * 1000)), time
    )


def frequency_drop(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    ranks, factor = arguments.ranks(), arguments.factor(1.25)
    first = arguments.step(default=1)
    steps = tuple(range(first, cluster.spec.steps + 1))

    def apply(state: ClusterState) -> ClusterState:
        frequency = state.frequency.copy()
        frequency[np.ix_(list(ranks), [step - 1 for step in steps])] *= factor
        return replace(state, frequency=frequency)

    return FaultEffect(replace(_subject_of(cluster, ranks), steps=steps if first > 1 else ()), apply, factor)


def memory_pressure(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    """Memory nearly full: the allocator frees and allocates blocks in every step, while the device is idle."""
    ranks, milliseconds = arguments.ranks_or_all(), arguments.number(12, above=0, what="the milliseconds lost per step")

    def apply(state: ClusterState) -> ClusterState:
        stalls = state.allocation_stalls.copy()
        stalls[list(ranks)] += milliseconds * 1e6
        return replace(state, allocation_stalls=stalls, memory=_scaled(state.memory, ranks, 2.6))

    return FaultEffect(_subject_of(cluster, ranks), apply, milliseconds)


def memory_imbalance(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    ranks, factor = arguments.ranks(), arguments.factor(1.6)
    return FaultEffect(
        _subject_of(cluster, ranks), lambda state: replace(state, memory=_scaled(state.memory, ranks, factor)), factor
    )


def one_off_stall(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    ranks, step, milliseconds = (
        arguments.ranks(),
        arguments.step(),
        arguments.number(150, above=0, what="the milliseconds"),
    )

    def apply(state: ClusterState) -> ClusterState:
        stalls = state.stalls.copy()
        stalls[list(ranks), step - 1] += milliseconds * 1e6
        return replace(state, stalls=stalls)

    return FaultEffect(replace(_subject_of(cluster, ranks), steps=(step,)), apply, milliseconds)


def periodic_stall(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    """Every few steps a rank, or all (a save, garbage collection), stands still."""
    ranks, every = arguments.ranks_or_all(), int(arguments.number(2, above=1, what="the number of steps"))
    milliseconds = arguments.number(100, above=0, what="the milliseconds")
    hit = np.arange(1, cluster.spec.steps + 1) % every == 0
    if hit.sum() < 2:
        raise UsageError(f"fault {arguments.text!r}: {cluster.spec.steps} steps hold no two periods of {every}")

    def apply(state: ClusterState) -> ClusterState:
        stalls = state.stalls.copy()
        stalls[np.ix_(np.array(ranks), hit)] += milliseconds * 1e6
        return replace(state, stalls=stalls)

    steps = tuple((np.flatnonzero(hit) + 1).tolist())
    return FaultEffect(replace(_subject_of(cluster, ranks), steps=steps), apply, milliseconds)


def jitter(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    ranks, spread = arguments.ranks_or_all(), arguments.number(0.15, above=0, what="the spread")

    def apply(state: ClusterState) -> ClusterState:
        spreads = state.jitter.copy()
        spreads[list(ranks)] = np.maximum(spreads[list(ranks)], spread)
        return replace(state, jitter=spreads)

    return FaultEffect(_subject_of(cluster, ranks), apply, spread)


def data_incomplete(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    kind = arguments.choice(("missing-rank", "truncated", "missing-step"), "what is missing")
    ranks, step = arguments.ranks(), arguments.step()

    def apply(state: ClusterState) -> ClusterState:
        damage = state.damage
        if kind == "missing-rank":
            damage = replace(damage, missing_ranks=tuple(sorted({*damage.missing_ranks, *ranks})))
        elif kind == "truncated":
            damage = replace(damage, truncated_ranks=tuple(sorted({*damage.truncated_ranks, *ranks})))
        else:
            damage = replace(damage, missing_steps={**damage.missing_steps, **dict.fromkeys(ranks, step)})
        return replace(state, damage=damage)

    if kind == "missing-step" and cluster.spec.steps < 2:
        raise UsageError(f"fault {arguments.text!r}: the only step cannot be missing; use more steps")
    return FaultEffect(replace(_subject_of(cluster, ranks), steps=(step,) if kind == "missing-step" else ()), apply)


def clock_skew(cluster: Cluster, arguments: FaultArguments) -> FaultEffect:
    host, milliseconds = arguments.host(), arguments.number(40, above=0, what="the milliseconds")
    ranks = [rank for rank in range(cluster.spec.world) if cluster.host(rank) == host]

    def apply(state: ClusterState) -> ClusterState:
        clock = state.clock.copy()
        clock[ranks] += milliseconds * 1e6
        return replace(state, clock=clock)

    return FaultEffect(_subject_of(cluster, ranks), apply, milliseconds)


def links_in_use(cluster: Cluster) -> list[tuple[int, int]]:
    """Links that carry much data: the rings of tp and dp, and both directions between pipeline neighbours."""
    axes = ("tp", "dp", "next", "previous")
    links = {
        (rank, cluster.group(axis, rank).following(rank))
        for rank in range(cluster.spec.world)
        for axis in axes
        if cluster.has_group(axis, rank)
    }
    return sorted(links)


def _network_links(cluster: Cluster, of: Callable[[int, int], bool]) -> tuple[FaultLink, ...]:
    """Links in use between hosts that `of` chooses by the hosts at their ends."""
    found = [
        (source, target) for source, target in links_in_use(cluster) if cluster.host(source) != cluster.host(target)
    ]
    chosen = [(source, target) for source, target in found if of(cluster.host(source), cluster.host(target))]
    return tuple(FaultLink(source, target, cluster.transport(source, target)) for source, target in chosen)


def _slower_links(state: ClusterState, links: Iterable[FaultLink], factor: float) -> ClusterState:
    slower = {(link.src, link.dst): factor * state.links.get((link.src, link.dst), 1.0) for link in links}
    return replace(state, links={**state.links, **slower})


def _subject_of(cluster: Cluster, ranks: Iterable[int]) -> FaultSubject:
    """The ranks, and the hosts all of whose ranks are affected (else the hosts of the ranks)."""
    named = tuple(ranks)
    devices = cluster.spec.devices
    by_host = [tuple(range(host * devices, (host + 1) * devices)) for host in range(cluster.spec.hosts)]
    whole = tuple(cluster.host_name(members[0]) for members in by_host if set(members) <= set(named))
    return FaultSubject(ranks=named, hosts=whole or tuple(sorted({cluster.host_name(rank) for rank in named})))


def _scaled(values: Floats, ranks: Iterable[int], factor: float, when: When | None = None) -> Floats:
    """Values by [rank, …] or, if a time is given, by [rank, step]."""
    scaled: Floats = values.copy()
    scaled[list(ranks)] *= factor if when is None else 1.0 + (factor - 1.0) * when.share
    return scaled
