"""HCCL's task traces hccl_info*/<operator>/iter<k>.trace: one file per execution of a collective on one device.

Definitions (MindSpore ≤ 2.0 and msadvisor; the main stream is the largest tid, times are µs):

    transit = Σ duration of transfers on the main stream
    wait    = Σ duration of Notify Wait on the main stream - waits inside RDMA transfers
    sync    = the part of wait before the first transfer
    link    = Σ over the transfers of all streams between two ranks

An SDMA transfer is one Memcpy or Reduce Inline. An RDMA transfer is RDMASend (payload), RDMASend (notify) and the
Notify Wait for the acknowledgement, in this order on one stream and link; sends alone only notify. Tasks of a stream run
one after the other, but their recorded starts are out of order by fractions of a microsecond. Ranks are numbers inside
the communicator; 0xFFFFFFFF means "no peer". A Notify Wait has the rank it waits for as its source: with the ends
exchanged it is on the link of the sends before it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from paceline.core.errors import FormatError
from paceline.core.message import message
from paceline.formats.hccl.execution import CollectiveExecution, LinkTransfer, PacketCount, transport_of
from paceline.formats.hccl.operator_names import op_named

MAX_BYTES = 256 << 20
NO_PEER = 0xFFFFFFFF
MAX_NUMBER = 2**53
"""Larger than any timestamp (µs) or size; beyond it floats are not exact."""

ROUNDING_US = 0.02
"""Times are recorded in hundredths of a microsecond, starts and durations rounded separately."""

MAX_SPAN = 86_400e6
"""µs; no collective lasts a day."""

_COPIES = frozenset({"Memcpy", "Reduce Inline"})
_LINK_TYPES = frozenset({"HCCS", "PCIE", "SIO", "RDMA"})
_ITERATION = re.compile(r"^iter(\d+)")

Number = int | float | str | None


class _Arguments(msgspec.Struct, gc=False):
    task: str | None = msgspec.field(name="task type", default=None)
    src: Number = msgspec.field(name="src rank", default=None)
    dst: Number = msgspec.field(name="dst rank", default=None)
    transport: str | None = msgspec.field(name="transport type", default=None)
    link: str | None = msgspec.field(name="link type", default=None)
    size: Number = None
    size_bytes: Number = msgspec.field(name="size(Byte)", default=None)


class _Event(msgspec.Struct):
    tid: Number = None
    ts: Number = None
    dur: Number = None
    name: str | None = None
    args: _Arguments | None = None


class _Trace(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents")
    iteration: Number = None


_DECODER = msgspec.json.Decoder(_Trace)


def read_trace(path: Path) -> CollectiveExecution:
    """One execution, named after its directory; mindinsight/collectives.py replaces it by the operator's name in the graph."""
    if path.stat().st_size > MAX_BYTES:
        raise FormatError(message("more_refused", size=f"{MAX_BYTES >> 20} MiB"), file=path)
    try:
        trace = _DECODER.decode(path.read_bytes())
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(message("not_hccl", error=error), file=path) from error
    tasks = sorted(_tasks(trace.events), key=lambda task: task.start)
    if not tasks:
        raise FormatError(message("no_tasks"), file=path)
    if max(task.start + task.duration for task in tasks) - tasks[0].start > MAX_SPAN:
        raise FormatError(message("days_apart"), file=path)
    return _execution(path, trace, tasks)


class _Task(msgspec.Struct, frozen=True, gc=False):
    """One task on one stream, with the ranks of its link (µs)."""

    stream: int
    start: float
    duration: float
    kind: str
    transport: str
    src: int
    dst: int
    size: int | None


def _tasks(events: Iterable[_Event]) -> Iterator[_Task]:
    for event in events:
        start, duration, stream = as_number(event.ts), as_number(event.dur), as_number(event.tid)
        args = event.args
        if args is None or start is None or duration is None or stream is None or duration < 0:
            continue
        kind = (args.task or event.name or "").replace("_", " ")
        src, dst = _ends(args, kind)
        size = as_number(args.size if args.size is not None else args.size_bytes)
        yield _Task(
            int(stream),
            start,
            duration,
            kind,
            _transport(args),
            src,
            dst,
            None if size is None else int(size),
        )


def as_number(value: Number) -> float | None:
    """A number from a JSON number, decimal or hexadecimal text; None for "NULL" and other text.

    >>> as_number("0x2cfe300"), as_number("6"), as_number("NULL")
    (47178496, 6.0, None)
    """
    if not isinstance(value, str):
        return value if value is not None and -MAX_NUMBER < value < MAX_NUMBER else None
    try:
        number: float = int(value, 16) if value[:2].lower() == "0x" else float(value)
    except ValueError:
        return None
    return number if -MAX_NUMBER < number < MAX_NUMBER else None


def _ends(args: _Arguments, kind: str) -> tuple[int, int]:
    """(src, dst) of the link of a task; -1 if neither end is known. A wait is recorded on its link whatever its transport."""
    src, dst = _rank(args.src), _rank(args.dst)
    if src == NO_PEER:
        src = dst
    elif dst == NO_PEER:
        dst = src
    if src == NO_PEER:
        src = dst = -1
    return (dst, src) if args.transport == "LOCAL" or kind == "Notify Wait" else (src, dst)


def _rank(value: Number) -> int:
    number = as_number(value)
    return int(number) if number is not None and 0 <= number < NO_PEER else NO_PEER


def _transport(args: _Arguments) -> str:
    """The newer "link type" (HCCS, PCIE …) instead of SDMA."""
    recorded = args.transport or ""
    return args.link if recorded == "SDMA" and args.link in _LINK_TYPES else recorded


# -- one execution ----------------------------------------------------------------------------------------------------


class _Transfer(msgspec.Struct, frozen=True, gc=False):
    stream: int
    src: int
    dst: int
    transport: str
    duration: float
    wait: float
    size: int | None
    packet: int | None


def _execution(path: Path, trace: _Trace, tasks: Sequence[_Task]) -> CollectiveExecution:
    main = max(task.stream for task in tasks)
    transfers = [*_copies(tasks), *_rdma_transfers(tasks)]
    waits = [task for task in tasks if task.stream == main and task.kind == "Notify Wait"]
    first = min((task.start for task in tasks if task.stream == main and _moves(task)), default=None)
    mine = [transfer for transfer in transfers if transfer.stream == main]
    start = min(task.start for task in tasks)
    end = max(task.start + task.duration for task in tasks)
    op = op_named(path.parent.name)
    return CollectiveExecution(
        name=path.parent.name,
        op=op,
        sequence=_iteration(trace, path),
        start=_ns(start),
        duration=_ns(end) - _ns(start),
        transit=_ns(sum(transfer.duration for transfer in mine)),
        wait=_ns(sum(task.duration for task in waits) - sum(transfer.wait for transfer in mine)),
        sync=_ns(sum(task.duration for task in waits if first is None or task.start < first)),
        links=tuple(_links(transfers, op)),
        packets=tuple(_packets(transfers, op)),
    )


def _moves(task: _Task) -> bool:
    return task.kind in _COPIES or task.kind.startswith("RDMASend")


def _copies(tasks: Iterable[_Task]) -> Iterator[_Transfer]:
    for task in tasks:
        if task.kind in _COPIES and task.transport not in ("RDMA", "LOCAL"):
            yield _Transfer(task.stream, task.src, task.dst, task.transport, task.duration, 0.0, task.size, task.size)


def _rdma_transfers(tasks: Iterable[_Task]) -> Iterator[_Transfer]:
    chains: dict[tuple[int, int, int], list[_Task]] = defaultdict(list)
    for task in tasks:
        if task.transport in ("RDMA", "LOCAL") and task.kind != "Notify Record":
            chains[task.stream, task.src, task.dst].append(task)
    for chain in chains.values():
        yield from _rdma_of_chain(chain)


def _rdma_of_chain(chain: Sequence[_Task]) -> Iterator[_Transfer]:
    sends = [at for at, task in enumerate(chain) if _is_send(task)]
    taken = -1
    for first, second in pairwise(sends):
        if first <= taken or not _is_payload(chain, first, second):
            continue
        after = (at for at in range(first + 1, len(chain)) if at != second and _follows(chain[at], chain[second]))
        acknowledged = next((at for at in after if chain[at].kind == "Notify Wait" or _is_send(chain[at])), None)
        if acknowledged is not None and not _is_send(chain[acknowledged]):
            taken = max(second, acknowledged)
            yield _rdma(chain[first], chain[second], chain[acknowledged])


def _is_payload(chain: Sequence[_Task], first: int, second: int) -> bool:
    """Whether these two successive sends are a payload and its notification.

    A notification carries a few bytes, fewer than what it announces, and follows at once: the stream does not wait between
    the two. A lone notification (the other side's acknowledgement is answered so) is followed by a wait.
    """
    payload, notify = chain[first], chain[second]
    if payload.size is not None and notify.size is not None and payload.size < notify.size:
        return False
    return not any(_follows(task, payload) and _follows(notify, task) for task in chain[first + 1 : second])


def _follows(task: _Task, earlier: _Task) -> bool:
    """Whether a task came after another one of its stream, on which tasks do not overlap.

    Recorded starts are out of order by fractions of a microsecond: a task that "starts" before the other one has ended did
    not run after it.
    """
    return task.start >= earlier.start + earlier.duration - ROUNDING_US


def _is_send(task: _Task) -> bool:
    """RDMASend; in the vendor's guide also RDMASendPayload and RDMASendNotify."""
    return task.transport == "RDMA" and task.kind.startswith("RDMASend")


def _rdma(payload: _Task, notify: _Task, acknowledgement: _Task) -> _Transfer:
    size = None if payload.size is None else payload.size + (notify.size or 0)
    duration = payload.duration + notify.duration + acknowledgement.duration
    return _Transfer(
        payload.stream, payload.src, payload.dst, "RDMA", duration, acknowledgement.duration, size, payload.size
    )


def _links(transfers: Iterable[_Transfer], op: str) -> Iterator[LinkTransfer]:
    by_link: dict[tuple[int, int, str], list[_Transfer]] = defaultdict(list)
    for transfer in transfers:
        if transfer.src >= 0:
            by_link[transfer.src, transfer.dst, transfer.transport].append(transfer)
    for (src, dst, transport), members in by_link.items():
        sizes = [member.size for member in members if member.size is not None]
        yield LinkTransfer(
            src,
            dst,
            transport_of(transport, src, dst, op),
            sum(sizes) if len(sizes) == len(members) else None,
            _ns(sum(member.duration for member in members)),
            _ns(sum(member.wait for member in members)),
        )


def _packets(transfers: Iterable[_Transfer], op: str) -> Iterator[PacketCount]:
    by_size: dict[tuple[str, int], list[float]] = defaultdict(list)
    for one in transfers:
        if one.packet is not None and transport_of(one.transport, one.src, one.dst, op) != "LOCAL":
            by_size[one.transport, one.packet].append(one.duration)
    for (transport, size), durations in by_size.items():
        yield PacketCount(transport, size, len(durations), _ns(sum(durations)))


def _iteration(trace: _Trace, path: Path) -> int:
    """Number of the execution of its operator, from 1."""
    recorded = as_number(trace.iteration)
    named = _ITERATION.match(path.name)
    return int(recorded) if recorded is not None else int(named[1]) if named else 1


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)
