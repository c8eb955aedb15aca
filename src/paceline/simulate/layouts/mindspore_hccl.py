"""HCCL output of MindSpore: hccl_raw_{rank}.csv in both generations of units, and its task traces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paceline.simulate.layouts.ascend_communication import CommOp, comm_ops_of
from paceline.simulate.layouts.ascend_names import NO_RANK
from paceline.simulate.layouts.mindspore_steps import boot_micros, graph_operators
from paceline.simulate.recording import Recording
from paceline.simulate.routing import MessageRoute

HEADER = "step_num,communication_cost,wait_cost,link_info,communication_operator_cost"


@dataclass(frozen=True)
class Generation:
    """Units of hccl_raw: costs in `cost` ns, SDMA bandwidth in `bandwidth` of KB/ms (= KB/s · 1e3)."""

    cost: float
    sdma_rate: float  # factor from bytes/ns to what is written
    last_step_as_average: bool
    average_as_python: bool = False  # r1.3 wrote that cell as Python prints a dictionary, without the leading "-"


# up to 2.0: ms, KB, KB/s.  from 2.1: costs in µs, SDMA bandwidth in GB/s (RDMA still KB/s), average = last step
OLD = Generation(cost=1e6, sdma_rate=1e6, last_step_as_average=False)
OLDEST = Generation(cost=1e6, sdma_rate=1e6, last_step_as_average=False, average_as_python=True)
NEW = Generation(cost=1e3, sdma_rate=1.0, last_step_as_average=True)

LinkCost = tuple[float, float, float, float]  # ms, KB, bandwidth, ms of RDMA wait
LinkCosts = dict[tuple[str, str], LinkCost]


@dataclass(frozen=True)
class _Cost:
    communication: float
    wait: float
    links: LinkCosts


def hccl_raw(recording: Recording, generation: Generation) -> str:
    """One row per step, and one called "-"."""
    columns = {operator.message: operator.column for operator in graph_operators(recording)}
    by_step = []
    for step in recording.steps.number.tolist():
        costs = {columns[comm_op.message]: _cost(comm_op, generation) for comm_op in comm_ops_of(recording, step)}
        by_step.append((str(step), costs))
    rows = [_row(step, costs) for step, costs in by_step]
    last = by_step[-1][1] if generation.last_step_as_average else _mean([costs for _, costs in by_step])
    average = _row("-", last)
    if generation.average_as_python:
        average = average.replace('["-", ', "[").replace('""-"", ', "").replace('""', "'")
    return "\n".join([HEADER, *rows, average, ""])


def acknowledge(route: MessageRoute, time: int) -> int:
    """The part of a transfer's time spent waiting for acknowledgements."""
    return round(time * route.transport.acknowledge / 10) * 10


def _cost(comm_op: CommOp, generation: Generation) -> _Cost:
    route, links = comm_op.route, {}
    if route.sends:
        rdma = route.transport.name == "RDMA"
        rate = route.bytes / comm_op.transit * (1e6 if rdma else generation.sdma_rate)
        link = (comm_op.transit / 1e6, route.bytes / 1e3, rate, acknowledge(route, comm_op.transit) / 1e6)
        links[(f"{route.source}-{route.target}", "RDMA" if rdma else "SDMA")] = link
    return _Cost(comm_op.transit / generation.cost, comm_op.wait / generation.cost, links)


def _mean(steps: list[dict[str, _Cost]]) -> dict[str, _Cost]:
    """Element by element, bandwidth included, as the real writer does."""
    count, mean = len(steps), {}
    for name in steps[0]:
        costs = [step[name] for step in steps if name in step]
        mean[name] = _Cost(
            sum(cost.communication for cost in costs) / count,
            sum(cost.wait for cost in costs) / count,
            {key: _scaled(_sum([cost.links[key] for cost in costs]), 1 / count) for key in costs[0].links},
        )
    return mean


def _sum(links: list[LinkCost]) -> LinkCost:
    time, size, rate, wait = (sum(column) for column in zip(*links, strict=True))
    return time, size, rate, wait


def _scaled(link: LinkCost, factor: float) -> LinkCost:
    time, size, rate, wait = link
    return time * factor, size * factor, rate * factor, wait * factor


def _row(step: str, costs: dict[str, _Cost]) -> str:
    """link_info of a step is the sum over its operators, bandwidths included (a known defect of the format)."""
    whole: dict[tuple[str, str], list[LinkCost]] = {}
    for cost in costs.values():
        for key, link in cost.links.items():
            whole.setdefault(key, []).append(link)
    links = {key: _sum(parts) for key, parts in whole.items()}
    operators = ", ".join(
        f'"{name}": ["{step}", {round(cost.communication, 6)}, {round(cost.wait, 6)}, {_json(cost.links)}]'
        for name, cost in costs.items()
    )
    communication = round(sum(cost.communication for cost in costs.values()), 6)
    wait = round(sum(cost.wait for cost in costs.values()), 6)
    return f"{step},{communication},{wait},{_quoted(_json(links))},{_quoted('{' + operators + '}')}"


def _json(links: LinkCosts) -> str:
    parts = []
    for (ends, kind), (time, size, rate, wait) in links.items():
        values = [round(time, 6), round(size, 3), rate] + ([round(wait, 6)] if kind == "RDMA" else [])
        parts.append(f'"{ends}": {{"{kind}": [{", ".join(map(str, values))}]}}')
    return "{" + ", ".join(parts) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def iteration_trace(recording: Recording, comm_op: CommOp, iteration: int) -> str:
    """hccl_info_{rank}/<operator>/iter<k>.trace: the tasks of one execution, in µs of the card's counter."""
    device = recording.cluster.device(recording.rank)
    events = ", ".join(
        f'{{"tid": 1, "pid": "{device}", "ts": {boot_micros(recording, start)}, "dur": {duration / 1000}, "ph": "X", '
        f'"name": "{name}", "args": {{"notify id": 0, "duration estimated": {duration / 1000}, "stage": 0, "step": 0, '
        f'"bandwidth": {round(size / duration, 6) if size else _NULL}, "stream id": 24, "task id": {number}, '
        f'"task type": "{name}", "src rank": {source}, "dst rank": {target}, "transport type": "{kind}", '
        f'"size": {size if size is not None else "null"}}}}}'
        for number, (name, start, duration, source, target, kind, size) in enumerate(hccl_tasks(comm_op), start=1)
    )
    return f'{{"device id": "{device}", "iteration": {iteration}, "traceEvents": [{events}]}}'


_NULL = '"NULL"'
Task = tuple[str, int, int, int, int, str, "int | None"]  # name, start, duration, src, dst, transport, bytes


def hccl_tasks(comm_op: CommOp) -> Iterator[Task]:
    """Wait for the last arrival, one task per packet, wait for the ring."""
    route, clock = comm_op.route, comm_op.start
    if comm_op.sync:
        yield "Notify Wait", clock, comm_op.sync, NO_RANK, route.source, "LOCAL", None
    clock += comm_op.sync
    if route.sends:
        for size, count, time in route.packet_times(comm_op.transit):
            for part in _shares(time, count):
                yield from _packet(route, clock, part, size)
                clock += part
    if comm_op.wait > comm_op.sync:
        yield "Notify Wait", clock, comm_op.wait - comm_op.sync, NO_RANK, route.source, "LOCAL", None


def _shares(time: int, count: int) -> Iterator[int]:
    """Split `time` into `count` parts of whole ticks."""
    done = 0
    for number in range(1, count + 1):
        upto = time // 10 * number // count * 10
        yield upto - done
        done = upto


def _packet(route: MessageRoute, start: int, duration: int, size: int) -> Iterator[Task]:
    """SDMA: one copy.  RDMA: payload, notification, and the wait for the acknowledgement."""
    ends = (route.source, route.target)
    if route.transport.name != "RDMA":
        name = "Reduce Inline" if "reduce" in route.op else "Memcpy"
        yield name, start, duration, *ends, "SDMA", size
        return
    wait = acknowledge(route, duration)
    notify = min(20, duration - wait)
    payload = duration - wait - notify
    yield "RDMASend", start, payload, *ends, "RDMA", size
    yield "RDMASend", start + payload, notify, *ends, "RDMA", 0
    yield "Notify Wait", start + payload + notify, wait, route.target, route.source, "LOCAL", None
