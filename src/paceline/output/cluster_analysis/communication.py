"""cluster_communication.json: times, bytes and packet sizes of every operator on every rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from paceline.output.cluster_analysis.operator_keys import KEYED, TOTAL, entry_key, rounded_ratio

TRANSPORTS = ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")
LARGE_PACKET_BYTES = {"HCCS": 32 << 20, "PCIE": 32 << 20, "SIO": 32 << 20, "RDMA": 1 << 19}
"""From this size on a packet counts as large, as CANN's parser has it."""

COLLECTIVES = f"""
    WITH
    named AS (
        SELECT *, {KEYED.format(spelled="spelled_op(op)")} AS entry
        FROM collectives JOIN exported_groups ON coalesce("group", '@' || name) = tie
        WHERE duration IS NOT NULL
    ),
    numbered AS (
        SELECT *, row_number() OVER (PARTITION BY tie, step, entry, rank ORDER BY start, duration) AS copy FROM named
    ),
    moved AS (
        SELECT rank, coalesce(step, -1) AS at_step, coalesce("group", '@' || name) AS tie, name,
               coalesce(sequence, -1) AS number, list((transport, packet_bytes, count, duration)) AS packets
        FROM packets GROUP BY ALL
    )
    SELECT members, 'step' || coalesce(step::VARCHAR, ''), label,
           entry || if(copy > 1, '#' || copy, '') AS entry, numbered.rank,
           start + coalesce(clock_offset, 0) AS recorded, duration, transit, wait, sync, idle, bytes, packets
    FROM numbered
    LEFT JOIN ranks USING (rank)
    LEFT JOIN moved ON moved.rank = numbered.rank AND moved.tie = numbered.tie AND moved.name = numbered.name
        AND moved.at_step = coalesce(numbered.step, -1) AND moved.number = coalesce(numbered.sequence, -1)
    -- By length first: 2 before 10. Ranks may count the same operator differently, so not by sequence.
    ORDER BY members, step, label, length(numbered.entry), numbered.entry, copy, numbered.rank
"""


@dataclass
class _Moved:
    """What went over one transport."""

    bytes: int = 0
    time: int = 0
    packets: dict[int, list[int]] = field(default_factory=dict)
    """Packet size → [count, ns]."""

    def add(self, other: _Moved) -> None:
        self.bytes += other.bytes
        self.time += other.time
        for size, (count, duration) in other.packets.items():
            entry = self.packets.setdefault(size, [0, 0])
            entry[0] += count
            entry[1] += duration


@dataclass
class _Operation:
    times: dict[str, int]
    moved: dict[str, _Moved]

    def add(self, other: _Operation) -> None:
        for name, value in other.times.items():
            self.times[name] = self.times.get(name, 0) + value
        for transport, moved in other.moved.items():
            self.moved.setdefault(transport, _Moved()).add(moved)


_TIMES = ("Elapse Time(ms)", "Transit Time(ms)", "Wait Time(ms)", "Synchronization Time(ms)", "Idle Time(ms)")


def operator_entries(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[tuple[str, ...], str]]:
    """(ranks, step, operator, rank) → JSON, with each group's totals behind its operators."""
    for (members, step, label), group in groupby(rows, key=lambda row: row[:3]):
        totals: dict[int, _Operation] = {}
        for _, _, _, entry, rank, start, *numbers in group:
            operation = _operation(*numbers)
            totals.setdefault(rank, _Operation({}, {})).add(operation)
            yield (members, step, entry_key(entry, label), str(rank)), _operation_json(operation, start, total=False)
        for rank, total in sorted(totals.items()):
            yield (members, step, entry_key(TOTAL, label), str(rank)), _operation_json(total, None, total=True)


def _operation(
    duration: int,
    transit: int | None,
    wait: int | None,
    sync: int | None,
    idle: int | None,
    size: int | None,
    packets: list[tuple[str, int, int, int]] | None,
) -> _Operation:
    known = zip(_TIMES, (duration, transit, wait, sync, idle), strict=True)
    return _Operation({name: value for name, value in known if value is not None}, _moved(size, transit, packets))


def _moved(size: int | None, transit: int | None, packets: list[tuple[str, int, int, int]] | None) -> dict[str, _Moved]:
    """By transport; SDMA is the sum of what is not RDMA, as CANN has it. Nothing where no size is known."""
    if size is None and not packets:
        return {}
    moved = {transport: _Moved() for transport in TRANSPORTS}
    for transport, packet, count, duration in packets or ():
        if transport in moved:
            moved[transport].add(_Moved(packet * count, duration or 0, {packet: [count, duration or 0]}))
    if not packets and size:
        moved["SDMA"] = _Moved(size, transit or 0)
    for part in ("HCCS", "PCIE", "SIO"):
        moved["SDMA"].add(_Moved(moved[part].bytes, moved[part].time))
    return moved


def _operation_json(operation: _Operation, start: int | None, *, total: bool) -> str:
    times = [f'"Start Timestamp(us)": {start // 1000}.{start % 1000:03d}'] if start is not None else []
    times += [f'"{name}": {value / 1e6}' for name, value in operation.times.items()]
    if "Transit Time(ms)" in operation.times:
        transit = operation.times["Transit Time(ms)"]
        for name, ratio in (
            ("Wait Time(ms)", "Wait Time Ratio"),
            ("Synchronization Time(ms)", "Synchronization Time Ratio"),
        ):
            if name in operation.times:
                times.append(f'"{ratio}": {rounded_ratio(operation.times[name], operation.times[name] + transit)}')
    links = ", ".join(
        f'"{transport}": {_moved_json(transport, moved, total)}' for transport, moved in operation.moved.items()
    )
    return f'{{"Communication Time Info": {{{", ".join(times)}}}, "Communication Bandwidth Info": {{{links}}}}}'


def _moved_json(transport: str, moved: _Moved, total: bool) -> str:
    large = f'"Large Packet Ratio": {_large_share(transport, moved)}, ' if not total else ""
    sizes = ", ".join(f'"{size / 1e6}": [{count}, {ns / 1e6}]' for size, (count, ns) in moved.packets.items())
    return (
        f'{{"Transit Size(MB)": {moved.bytes / 1e6}, "Transit Time(ms)": {moved.time / 1e6}, '
        f'"Bandwidth(GB/s)": {rounded_ratio(moved.bytes, moved.time)}, {large}"Size Distribution": {{{sizes}}}}}'
    )


def _large_share(transport: str, moved: _Moved) -> float:
    large = LARGE_PACKET_BYTES.get(transport)
    if large is None:
        return 0
    return rounded_ratio(
        sum(count for size, (count, _) in moved.packets.items() if size >= large),
        sum(count for count, _ in moved.packets.values()),
    )
