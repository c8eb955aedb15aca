"""communication.json and communication_matrix.json: the collectives in the output of Ascend profilers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.simulate.layouts.ascend_names import MATRIX, group_hash, hcom_name, micros
from paceline.simulate.layouts.dialect import TORCH, Dialect
from paceline.simulate.recording import Recording
from paceline.simulate.routing import MessageRoute

LARGE_PACKET = {"HCCS": 32 << 20, "RDMA": 1 << 19}
KINDS = ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")
SECTIONS = ("p2p", "collective")
LOCAL_RATE = 400.0  # bytes per ns of a copy inside the card
_NOTHING = (
    '{"Transit Size(MB)": 0, "Transit Time(ms)": 0, "Bandwidth(GB/s)": 0, "Large Packet Ratio": 0, '
    '"Size Distribution": {}}'
)


@dataclass(frozen=True)
class CommOp:
    """One communication operator, times in ns."""

    name: str
    route: MessageRoute
    message: int
    start: int
    duration: int
    transit: int
    wait: int
    sync: int

    @property
    def group(self) -> str:
        return group_hash(self.route.group.id)

    @property
    def pairwise(self) -> bool:
        return self.route.op in ("send", "receive")

    def section(self, dialect: Dialect = TORCH) -> str:
        return "p2p" if self.pairwise and dialect.files_p2p else "collective"


def comm_ops_of(recording: Recording, step: int) -> Iterator[CommOp]:
    comm_ops, routes = recording.comm_ops.of(step), recording.routes
    columns = (
        comm_ops.template,
        comm_ops.sequence,
        comm_ops.start,
        comm_ops.duration,
        comm_ops.transit,
        comm_ops.wait,
        comm_ops.sync,
    )
    for message, sequence, *times in zip(*(column.tolist() for column in columns), strict=True):
        route = routes[message]
        yield CommOp(hcom_name(route, sequence), route, message, *times)


def communication_json(recording: Recording, dialect: Dialect) -> str:
    """{"step1": {"p2p": {…}, "collective": {name@group: {…}, "Total Op Info": {…}}}}"""
    steps = []
    for step in recording.steps.number.tolist():
        comm_ops = list(comm_ops_of(recording, step))
        filed = {
            section: [comm_op for comm_op in comm_ops if comm_op.section(dialect) == section] for section in SECTIONS
        }
        parts = ", ".join(f'"{section}": {{{_section(chosen)}}}' for section, chosen in filed.items())
        steps.append(f'"step{step}": {{{parts}}}')
    return "{" + ", ".join(steps) + "}"


def _section(comm_ops: list[CommOp]) -> str:
    return ", ".join([_operator(comm_op) for comm_op in comm_ops] + [_total(comm_ops)]) if comm_ops else ""


def _operator(comm_op: CommOp) -> str:
    return (
        f'"{comm_op.name}@{comm_op.group}": {{"Communication Time Info": {{"Start Timestamp(us)": {micros(comm_op.start)}, '
        f"{_times(comm_op.duration, comm_op.transit, comm_op.wait, comm_op.sync)}}}, "
        f'"Communication Bandwidth Info": {{{_bandwidths(comm_op)}}}}}'
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


def _bandwidths(comm_op: CommOp) -> str:
    """HCCS traffic is listed twice, as HCCS and in the sum called SDMA."""
    entries = dict.fromkeys(KINDS, _NOTHING)
    if comm_op.route.sends:
        name = comm_op.route.transport.name
        entries[name] = _bandwidth(comm_op, large_packet_ratio(comm_op.route), _distribution(comm_op))
        if name == "HCCS":
            entries["SDMA"] = _bandwidth(comm_op, 0, "{}")
    return ", ".join(f'"{kind}": {text}' for kind, text in entries.items())


def _bandwidth(comm_op: CommOp, large: float, distribution: str) -> str:
    return (
        f'{{"Transit Size(MB)": {comm_op.route.bytes / 1e6}, "Transit Time(ms)": {comm_op.transit / 1e6}, '
        f'"Bandwidth(GB/s)": {round(comm_op.route.bytes / comm_op.transit, 4)}, "Large Packet Ratio": {large}, '
        f'"Size Distribution": {distribution}}}'
    )


def large_packet_ratio(route: MessageRoute) -> float:
    limit = LARGE_PACKET[route.transport.name]
    return _ratio(sum(count for size, count in route.packets.sizes if size >= limit), route.packets.count)


def _distribution(comm_op: CommOp) -> str:
    pairs = (
        f'"{size / 1e6}": [{count}, {time / 1e6}]' for size, count, time in comm_op.route.packet_times(comm_op.transit)
    )
    return "{" + ", ".join(pairs) + "}"


def _total(comm_ops: list[CommOp]) -> str:
    times = [sum(getattr(comm_op, name) for comm_op in comm_ops) for name in ("duration", "transit", "wait", "sync")]
    entries = dict.fromkeys(KINDS, '{"Transit Time(ms)": 0, "Transit Size(MB)": 0, "Size Distribution": {}}')
    for kind in ("RDMA", "HCCS"):
        chosen = [comm_op for comm_op in comm_ops if comm_op.route.sends and comm_op.route.transport.name == kind]
        if chosen:
            entries[kind] = _total_bandwidth(chosen, _total_distribution(chosen))
            if kind == "HCCS":
                entries["SDMA"] = _total_bandwidth(chosen, "{}")
    bandwidths = ", ".join(f'"{kind}": {text}' for kind, text in entries.items())
    return (
        f'"Total Op Info": {{"Communication Time Info": {{{_times(*times)}}}, '
        f'"Communication Bandwidth Info": {{{bandwidths}}}}}'
    )


def _total_bandwidth(comm_ops: list[CommOp], distribution: str) -> str:
    size, time = sum(comm_op.route.bytes for comm_op in comm_ops), sum(comm_op.transit for comm_op in comm_ops)
    return (
        f'{{"Transit Time(ms)": {time / 1e6}, "Transit Size(MB)": {size / 1e6}, "Size Distribution": {distribution}}}'
    )


def _total_distribution(comm_ops: list[CommOp]) -> str:
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for comm_op in comm_ops:
        for size, count, time in comm_op.route.packet_times(comm_op.transit):
            sums[size][0] += count
            sums[size][1] += time
    return "{" + ", ".join(f'"{size / 1e6}": [{count}, {time / 1e6}]' for size, (count, time) in sums.items()) + "}"


@dataclass(frozen=True)
class MatrixLink:
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


def matrix_rows(
    recording: Recording, step: int, dialect: Dialect = TORCH
) -> Iterator[tuple[str, str, str, MatrixLink]]:
    """(p2p | collective, <type>-<position>, group, link): per type the fastest, middle and slowest, and the sum."""
    by_kind: dict[tuple[str, str, str, int], list[MatrixLink]] = defaultdict(list)
    for comm_op in comm_ops_of(recording, step):
        for link in _links(comm_op):
            by_kind[(comm_op.section(dialect), MATRIX[comm_op.route.op], comm_op.group, link.target)].append(link)
    for (section, kind, group, _), links in by_kind.items():
        ranked = sorted(links, key=lambda link: -link.bandwidth)
        places = {"top1": 0, "middle": len(ranked) // 2, "bottom1": -1, "bottom2": -2, "bottom3": -3}
        for place, position in places.items():
            yield section, f"{kind}-{place}", group, ranked[max(position, -len(ranked))]
        yield section, f"{kind}-total", group, _sum(links)


def _links(comm_op: CommOp) -> Iterator[MatrixLink]:
    """The ring link, and for collectives the copy inside the card, which real recordings show as a link to itself."""
    route = comm_op.route
    if route.sends:
        yield MatrixLink(route.source, route.target, route.transport.name, route.bytes, comm_op.transit, comm_op.name)
    if not comm_op.pairwise:
        size = route.message.payload // len(route.group.ranks)
        yield MatrixLink(
            route.source, route.source, "LOCAL", size, max(10, round(size / LOCAL_RATE / 10) * 10), comm_op.name
        )


def _sum(links: list[MatrixLink]) -> MatrixLink:
    first = links[0]
    size, time = sum(link.size for link in links), sum(link.time for link in links)
    return MatrixLink(first.source, first.target, first.transport, size, time, "")


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


def _link_json(link: MatrixLink, dialect: Dialect) -> str:
    op = f', "{dialect.op_name_key}": "{link.op_name}"' if link.op_name else ""
    return (
        f'"{link.source}-{link.target}": {{"Transport Type": "{link.transport}", '
        f'"Transit Size(MB)": {link.size / 1e6}, "Transit Time(ms)": {link.time / 1e6}, '
        f'"Bandwidth(GB/s)": {link.bandwidth}{op}}}'
    )
