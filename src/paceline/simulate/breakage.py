"""What each fault does to the conditions, and who is to blame for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from paceline.errors import UsageError
from paceline.simulate.arguments import Arguments
from paceline.simulate.cluster import Cluster, Floats
from paceline.simulate.conditions import Conditions, healthy
from paceline.simulate.program import stage_program


@dataclass(frozen=True)
class Link:
    src: int
    dst: int
    transport: str


@dataclass(frozen=True)
class Subject:
    """Who or what is at fault, in the words of a finding."""

    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    operators: tuple[str, ...] = ()
    stages: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()


@dataclass(frozen=True)
class Broken:
    subject: Subject
    apply: Callable[[Conditions], Conditions] = field(repr=False)
    amount: float | None = None  # the factor, milliseconds, … that was asked for


def slow_rank(cluster: Cluster, words: Arguments) -> Broken:
    ranks, factor = words.ranks(), words.factor(1.3)
    return Broken(_on(cluster, ranks), lambda now: replace(now, compute=_scaled(now.compute, ranks, factor)), factor)


def slow_host(cluster: Cluster, words: Arguments) -> Broken:
    host, factor = words.host(), words.factor(1.2)
    ranks = tuple(rank for rank in range(cluster.spec.world) if cluster.host(rank) == host)
    return Broken(_on(cluster, ranks), lambda now: replace(now, compute=_scaled(now.compute, ranks, factor)), factor)


def slow_link(cluster: Cluster, words: Arguments) -> Broken:
    source, target = words.link(links_in_use(cluster))
    factor = words.factor(4.0)
    subject = Subject(links=(Link(source, target, cluster.transport(source, target)),))
    return Broken(subject, lambda now: replace(now, links={**now.links, (source, target): factor}), factor)


def small_packets(cluster: Cluster, words: Arguments) -> Broken:
    kilobytes = words.number(64, above=0.5, what="the packet size in KiB")
    size = int(kilobytes * 1024) // 512 * 512
    return Broken(Subject(), lambda now: replace(now, largest_packet=size), kilobytes)


def bandwidth_contention(cluster: Cluster, words: Arguments) -> Broken:
    factor = words.factor(3.0)
    return Broken(Subject(), lambda now: replace(now, contention=factor), factor)


def comm_exposed(cluster: Cluster, words: Arguments) -> Broken:
    return Broken(Subject(), lambda now: replace(now, overlap=False))


def load_imbalance(cluster: Cluster, words: Arguments) -> Broken:
    """Every step, each replica draws its share of the same total: between 1/F and F of the mean, roughly."""
    factor = words.factor(1.5)
    spec = cluster.spec
    low = np.log(factor)
    replicas = np.exp(words.random.uniform(-low, low, (spec.steps, spec.dp, 1)))
    batches = np.exp(words.random.uniform(-low / 4, low / 4, (spec.steps, spec.dp, spec.micro_batches)))
    load = replicas * batches
    load /= load.mean(axis=(1, 2), keepdims=True)
    return Broken(Subject(), lambda now: replace(now, load=now.load * load), factor)


def stage_imbalance(cluster: Cluster, words: Arguments) -> Broken:
    """The stage gets a share of its neighbours' layers: about `factor` times its own number."""
    stage, factor = words.stage(), words.factor(1.25)
    spec = cluster.spec
    layers = [spec.layers // spec.pp] * spec.pp
    for number in range(max(1, round((factor - 1) * layers[stage]))):
        donor = (stage + 1 + number % (spec.pp - 1)) % spec.pp
        if layers[donor] < 2:
            raise UsageError(f"fault {words.text!r}: stage {donor} has no layer to give away; use more --layers")
        layers[donor] -= 1
        layers[stage] += 1
    ranks = tuple(rank for rank in range(spec.world) if cluster.stage(rank) == stage)
    subject = Subject(ranks=ranks, stages=(stage,))
    return Broken(subject, lambda now: replace(now, model=replace(now.model, layers=tuple(layers))), factor)


def pipeline_bubble(cluster: Cluster, words: Arguments) -> Broken:
    """Fewer, bigger micro-batches: the same work in a pipeline that never fills."""
    usual = cluster.spec.micro_batches
    wanted = int(words.number(max(1, usual // 4), above=0, what="the number of micro-batches"))
    if not 1 <= wanted < usual or usual % wanted:
        parts = [str(n) for n in range(1, usual) if usual % n == 0]
        raise UsageError(
            f"fault {words.text!r}: {wanted} micro-batches instead of {usual} is not possible; "
            f"possible: {', '.join(parts) or 'none, simulate more micro-batches'}"
        )
    return Broken(Subject(), lambda now: replace(now, model=replace(now.model, micro_batches=wanted)), wanted)


def input_bound(cluster: Cluster, words: Arguments) -> Broken:
    ranks, factor = words.ranks_or_all(), words.factor(50.0)
    return Broken(
        _on(cluster, ranks), lambda now: replace(now, input_wait=_scaled(now.input_wait, ranks, factor)), factor
    )


def host_bound(cluster: Cluster, words: Arguments) -> Broken:
    ranks, factor = words.ranks_or_all(), words.factor(15.0)
    return Broken(_on(cluster, ranks), lambda now: replace(now, gaps=_scaled(now.gaps, ranks, factor)), factor)


def slow_operator(cluster: Cluster, words: Arguments) -> Broken:
    program = stage_program(cluster.spec, healthy(cluster).model, 0)
    types = sorted({kernel.type for kernel in program.kernels})
    type = words.choice(types, "the operator type", default="FlashAttentionScoreGrad")
    ranks, factor = words.ranks(), words.factor(2.0)
    by_rank = _scaled(np.ones(cluster.spec.world), ranks, factor)
    subject = replace(_on(cluster, ranks), operators=(type,))
    return Broken(subject, lambda now: replace(now, operators={**now.operators, type: by_rank}), factor)


def cpu_operators(cluster: Cluster, words: Arguments) -> Broken:
    time = words.number(500, above=0, what="the time in µs")
    subject = Subject(operators=("ArgSort",))
    return Broken(subject, lambda now: replace(now, model=replace(now.model, cpu_operator=time * 1000)), time)


def frequency_drop(cluster: Cluster, words: Arguments) -> Broken:
    ranks, factor = words.ranks(), words.factor(1.25)
    first = words.step(default=1)
    steps = tuple(range(first, cluster.spec.steps + 1))

    def apply(now: Conditions) -> Conditions:
        frequency = now.frequency.copy()
        frequency[np.ix_(list(ranks), [step - 1 for step in steps])] *= factor
        return replace(now, frequency=frequency)

    return Broken(replace(_on(cluster, ranks), steps=steps if first > 1 else ()), apply, factor)


def memory_pressure(cluster: Cluster, words: Arguments) -> Broken:
    """Memory at the brim: the allocator gives blocks back and asks again, and the device stands still meanwhile."""
    ranks, milliseconds = words.ranks_or_all(), words.number(12, above=0, what="the milliseconds lost per step")

    def apply(now: Conditions) -> Conditions:
        stalls = now.allocation_stalls.copy()
        stalls[list(ranks)] += milliseconds * 1e6
        return replace(now, allocation_stalls=stalls, memory=_scaled(now.memory, ranks, 2.6))

    return Broken(_on(cluster, ranks), apply, milliseconds)


def memory_imbalance(cluster: Cluster, words: Arguments) -> Broken:
    ranks, factor = words.ranks(), words.factor(1.6)
    return Broken(_on(cluster, ranks), lambda now: replace(now, memory=_scaled(now.memory, ranks, factor)), factor)


def one_off_stall(cluster: Cluster, words: Arguments) -> Broken:
    ranks, step, milliseconds = words.ranks(), words.step(), words.number(150, above=0, what="the milliseconds")

    def apply(now: Conditions) -> Conditions:
        stalls = now.stalls.copy()
        stalls[list(ranks), step - 1] += milliseconds * 1e6
        return replace(now, stalls=stalls)

    return Broken(replace(_on(cluster, ranks), steps=(step,)), apply, milliseconds)


def jitter(cluster: Cluster, words: Arguments) -> Broken:
    ranks, spread = words.ranks_or_all(), words.number(0.15, above=0, what="the spread")

    def apply(now: Conditions) -> Conditions:
        wild = now.jitter.copy()
        wild[list(ranks)] = np.maximum(wild[list(ranks)], spread)
        return replace(now, jitter=wild)

    return Broken(_on(cluster, ranks), apply, spread)


def data_incomplete(cluster: Cluster, words: Arguments) -> Broken:
    kind = words.choice(("missing-rank", "truncated", "missing-step"), "what is missing")
    ranks, step = words.ranks(), words.step()

    def apply(now: Conditions) -> Conditions:
        damage = now.damage
        if kind == "missing-rank":
            damage = replace(damage, missing_ranks=tuple(sorted({*damage.missing_ranks, *ranks})))
        elif kind == "truncated":
            damage = replace(damage, truncated_ranks=tuple(sorted({*damage.truncated_ranks, *ranks})))
        else:
            damage = replace(damage, missing_steps={**damage.missing_steps, **dict.fromkeys(ranks, step)})
        return replace(now, damage=damage)

    if kind == "missing-step" and cluster.spec.steps < 2:
        raise UsageError(f"fault {words.text!r}: the only step cannot be missing; simulate more steps")
    return Broken(replace(_on(cluster, ranks), steps=(step,) if kind == "missing-step" else ()), apply)


def clock_skew(cluster: Cluster, words: Arguments) -> Broken:
    host, milliseconds = words.host(), words.number(40, above=0, what="the milliseconds")
    ranks = [rank for rank in range(cluster.spec.world) if cluster.host(rank) == host]

    def apply(now: Conditions) -> Conditions:
        clock = now.clock.copy()
        clock[ranks] += milliseconds * 1e6
        return replace(now, clock=clock)

    return Broken(_on(cluster, ranks), apply, milliseconds)


def links_in_use(cluster: Cluster) -> list[tuple[int, int]]:
    """Every link that carries weight: the rings of tp and dp, and both directions between pipeline neighbours."""
    axes = ("tp", "dp", "next", "previous")
    links = {
        (rank, cluster.group(axis, rank).following(rank))
        for rank in range(cluster.spec.world)
        for axis in axes
        if cluster.has_group(axis, rank)
    }
    return sorted(links)


def _on(cluster: Cluster, ranks: Iterable[int]) -> Subject:
    """The ranks and the hosts that are meant as a whole."""
    named = tuple(ranks)
    devices = cluster.spec.devices
    by_host = [tuple(range(host * devices, (host + 1) * devices)) for host in range(cluster.spec.hosts)]
    whole = tuple(cluster.host_name(members[0]) for members in by_host if set(members) <= set(named))
    return Subject(ranks=named, hosts=whole or tuple(sorted({cluster.host_name(rank) for rank in named})))


def _scaled(values: Floats, ranks: Iterable[int], factor: float) -> Floats:
    scaled: Floats = values.copy()
    scaled[list(ranks)] *= factor
    return scaled
