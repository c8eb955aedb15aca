"""communication.json and communication_matrix.json: what every Ascend profiler tells about its collectives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.simulate.layouts.dialect import TORCH, Dialect
from paceline.simulate.layouts.spelling import MATRIX, group_hash, hcom_name, micros
from paceline.simulate.recording import Recording
from paceline.simulate.wires import Wire

LARGE_PACKET = {"HCCS": 32 << 20, "RDMA": 1 << 19}
KINDS = ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")
SECTIONS = ("p2p", "collective")
LOCAL_RATE = 400.0  # bytes per ns of a copy inside the card
_NOTHING = (
    '{"Transit Size(MB)": 0, "Transit Time(ms)": 0, "Bandwidth(GB/s)": 0, "Large Packet Ratio": 0, '
    '"Size Distribution": {}}'
)


@dataclass(frozen=True)
class Talk:
    """One communication operator, times in ns."""

    name: str
    wire: Wire
    message: int
    start: int
    duration: int
    transit: int
    wait: int
    sync: int

    @property
    def group(self) -> str:
        return group_hash(self.wire.group.id)

    @property
    def pairwise(self) -> bool:
        return self.wire.op in ("send", "receive")

    def section(self, dialect: Dialect = TORCH) -> str:
        return "p2p" if self.pairwise and dialect.files_p2p else "collective"


def talks_of(recording: Recording, step: int) -> Iterator[Talk]:
    talks, wires = recording.talks.of(step), recording.wires
    columns = (talks.template, talks.sequence, talks.start, talks.duration, talks.transit, talks.wait, talks.sync)
    for message, sequence, *times in zip(*(column.tolist() for column in columns), strict=True):
        wire = wires[message]
        yield Talk(hcom_name(wire, sequence), wire, message, *times)


def communication_json(recording: Recording, dialect: Dialect) -> str:
    """{"step1": {"p2p": {…}, "collective": {name@group: {…}, "Total Op Info": {…}}}}"""
    steps = []
    for step in recording.steps.number.tolist():
        talks = list(talks_of(recording, step))
        filed = {section: [talk for talk in talks if talk.section(dialect) == section] for section in SECTIONS}
        parts = ", ".join(f'"{section}": {{{_section(chosen)}}}' for section, chosen in filed.items())
        steps.append(f'"step{step}": {{{parts}}}')
    return "{" + ", ".join(steps) + "}"


def _section(talks: list[Talk]) -> str:
    return ", ".join([_operator(talk) for talk in talks] + [_total(talks)]) if talks else ""


def _operator(talk: Talk) -> str:
    return (
        f'"{talk.name}@{talk.group}": {{"Communication Time Info": {{"Start Timestamp(us)": {micros(talk.start)}, '
        f"{_times(talk.duration, talk.transit, talk.wait, talk.sync)}}}, "
        f'"Communication Bandwidth Info": {{{_bandwidths(talk)}}}}}'
    )


def _times(duration: int, transit: int, wait: int, sync: int) -> str:
    return (
        f'"Elapse Time(ms)": {duration / 1e6}, "Transit Time(ms)": {transit / 1e6}, "Wait Time(ms)": {wait / 1e6}, '
        f'"Synchronization Time(ms)": {sync / 1e6}, "Idle Time(ms)": {(duration - transit - wait) / 1e6}, '
        f'"Wait Time Ratio": {_ratio(wait, wait + transit)}, '
        f'"Synchronization Time Ratio": {_ratio(sync, sync + transit)}'
    )


def _ratio(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole else 0.0


def _bandwidths(talk: Talk) -> str:
    """HCCS traffic is told twice, as HCCS and in the sum called SDMA."""
    told = dict.fromkeys(KINDS, _NOTHING)
    if talk.wire.sends:
        name = talk.wire.transport.name
        told[name] = _bandwidth(talk, large_packet_ratio(talk.wire), _distribution(talk))
        if name == "HCCS":
            told["SDMA"] = _bandwidth(talk, 0, "{}")
    return ", ".join(f'"{kind}": {text}' for kind, text in told.items())


def _bandwidth(talk: Talk, large: float, distribution: str) -> str:
    return (
        f'{{"Transit Size(MB)": {talk.wire.bytes / 1e6}, "Transit Time(ms)": {talk.transit / 1e6}, '
        f'"Bandwidth(GB/s)": {round(talk.wire.bytes / talk.transit, 4)}, "Large Packet Ratio": {large}, '
        f'"Size Distribution": {distribution}}}'
    )


def large_packet_ratio(wire: Wire) -> float:
    limit = LARGE_PACKET[wire.transport.name]
    return _ratio(sum(count for size, count in wire.packets.sizes if size >= limit), wire.packets.count)


def _distribution(talk: Talk) -> str:
    pairs = (f'"{size / 1e6}": [{count}, {time / 1e6}]' for size, count, time in talk.wire.packet_times(talk.transit))
    return "{" + ", ".join(pairs) + "}"


def _total(talks: list[Talk]) -> str:
    times = [sum(getattr(talk, name) for talk in talks) for name in ("duration", "transit", "wait", "sync")]
    told = dict.fromkeys(KINDS, '{"Transit Time(ms)": 0, "Transit Size(MB)": 0, "Size Distribution": {}}')
    for kind in ("RDMA", "HCCS"):
        chosen = [talk for talk in talks if talk.wire.sends and talk.wire.transport.name == kind]
        if chosen:
            told[kind] = _total_bandwidth(chosen, _total_distribution(chosen))
            if kind == "HCCS":
                told["SDMA"] = _total_bandwidth(chosen, "{}")
    bandwidths = ", ".join(f'"{kind}": {text}' for kind, text in told.items())
    return (
        f'"Total Op Info": {{"Communication Time Info": {{{_times(*times)}}}, '
        f'"Communication Bandwidth Info": {{{bandwidths}}}}}'
    )


def _total_bandwidth(talks: list[Talk], distribution: str) -> str:
    size, time = sum(talk.wire.bytes for talk in talks), sum(talk.transit for talk in talks)
    return (
        f'{{"Transit Time(ms)": {time / 1e6}, "Transit Size(MB)": {size / 1e6}, "Size Distribution": {distribution}}}'
    )


def _total_distribution(talks: list[Talk]) -> str:
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for talk in talks:
        for size, count, time in talk.wire.packet_times(talk.transit):
            sums[size][0] += count
            sums[size][1] += time
    return "{" + ", ".join(f'"{size / 1e6}": [{count}, {time / 1e6}]' for size, (count, time) in sums.items()) + "}"


@dataclass(frozen=True)
class Link:
    """One row of the matrix; size in bytes, time in ns."""

    source: int
    target: int
    transport: str
    size: int
    time: int
    op_name: str

    @property
    def bandwidth(self) -> float:
        return round(self.size / self.time, 4)


def matrix_rows(recording: Recording, step: int, dialect: Dialect = TORCH) -> Iterator[tuple[str, str, str, Link]]:
    """(p2p | collective, <type>-<place>, group, link): per type the fastest, middle and slowest ones, and the sum."""
    by_kind: dict[tuple[str, str, str, int], list[Link]] = defaultdict(list)
    for talk in talks_of(recording, step):
        for link in _links(talk):
            by_kind[(talk.section(dialect), MATRIX[talk.wire.op], talk.group, link.target)].append(link)
    for (section, kind, group, _), links in by_kind.items():
        ranked = sorted(links, key=lambda link: -link.bandwidth)
        places = {"top1": 0, "middle": len(ranked) // 2, "bottom1": -1, "bottom2": -2, "bottom3": -3}
        for place, position in places.items():
            yield section, f"{kind}-{place}", group, ranked[max(position, -len(ranked))]
        yield section, f"{kind}-total", group, _sum(links)


def _links(talk: Talk) -> Iterator[Link]:
    """The ring link, and for collectives the copy inside the card that real recordings show as a link to oneself."""
    wire = talk.wire
    if wire.sends:
        yield Link(wire.source, wire.target, wire.transport.name, wire.bytes, talk.transit, talk.name)
    if not talk.pairwise:
        size = wire.message.payload // len(wire.group.ranks)
        yield Link(wire.source, wire.source, "LOCAL", size, max(10, round(size / LOCAL_RATE / 10) * 10), talk.name)


def _sum(links: list[Link]) -> Link:
    first = links[0]
    size, time = sum(link.size for link in links), sum(link.time for link in links)
    return Link(first.source, first.target, first.transport, size, time, "")


def matrix_json(recording: Recording, dialect: Dialect) -> str:
    steps = []
    for step in recording.steps.number.tolist():
        tree: dict[str, dict[str, list[str]]] = {"p2p": {}, "collective": {}}
        for section, kind, group, link in matrix_rows(recording, step, dialect):
            tree[section].setdefault(f"{kind}@{group}", []).append(_link_json(link, dialect))
        parts = (
            f'"{section}": {{' + ", ".join(f'"{key}": {{{", ".join(links)}}}' for key, links in kinds.items()) + "}"
            for section, kinds in tree.items()
        )
        steps.append(f'"step{step}": {{{", ".join(parts)}}}')
    return "{" + ", ".join(steps) + "}"


def _link_json(link: Link, dialect: Dialect) -> str:
    op = f', "{dialect.op_name_key}": "{link.op_name}"' if link.op_name else ""
    return (
        f'"{link.source}-{link.target}": {{"Transport Type": "{link.transport}", '
        f'"Transit Size(MB)": {link.size / 1e6}, "Transit Time(ms)": {link.time / 1e6}, '
        f'"Bandwidth(GB/s)": {link.bandwidth}{op}}}'
    )
