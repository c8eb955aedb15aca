"""Output of torch's profiler on GPUs: one Chrome trace per rank, NCCL kernels with the collective as arguments."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec

from paceline.simulate.cluster import Cluster
from paceline.simulate.layouts.ascend_names import shapes
from paceline.simulate.layouts.layout import has_detail_files
from paceline.simulate.memory import CAPACITY, memory_of
from paceline.simulate.model import CPU, Kernel
from paceline.simulate.recording import Recording

BASE = 1_760_000_000_000_000_000  # ns; time stamps count microseconds from here
_UPDATE_NS = 2_000_000
"""Duration of the optimizer's host span at the end of a step; its kernels are those of the step."""
COMPUTE_STREAM = 7
STREAMS = {"tp": 20, "dp": 24, "mp": 28, "next": 32, "previous": 36, "ep": 40}
NCCL = {
    "all_reduce": ("allreduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
    "all_gather": ("_allgather_base", "ncclDevKernel_AllGather_RING_LL"),
    "reduce_scatter": ("_reduce_scatter_base", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"),
    "all_to_all": ("all_to_all", "ncclDevKernel_SendRecv"),
    "send": ("send", "ncclDevKernel_SendRecv"),
    "receive": ("recv", "ncclDevKernel_SendRecv"),
}
KERNELS = {
    "MatMulV2": "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn",
    "FlashAttentionScore": "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(Flash_fwd_params)",
    "FlashAttentionScoreGrad": "void flash::flash_bwd_kernel<Flash_bwd_kernel_traits<128, 64, 8>>(Flash_bwd_params)",
}


class Kineto:
    def __init__(self, out: Path, cluster: Cluster) -> None:
        self.out, self.cluster = out, cluster

    def write(self, recording: Recording) -> Path:
        rank = recording.rank
        path = (
            self.out
            / f"{self.cluster.host_name(rank)}_{_pid(rank)}.{recording.cluster.spec.start + rank}.pt.trace.json.gz"
        )
        head = msgspec.json.encode(_head(recording))[:-1]
        # level 1: simulated traces compress well, and time matters more than size
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.write(head + b',"traceEvents":[')
            for chunk in _chunks(_events(recording)):
                file.write(chunk)
            file.write(b'],"traceName":"' + path.name.encode() + b'"}')
        return path

    def finish(self) -> None:
        """There are no files of the whole cluster."""


def _chunks(events: Iterable[str], batch: int = 20_000) -> Iterator[bytes]:
    source, separator = iter(events), ""
    while chunk := list(islice(source, batch)):
        yield (separator + ",\n".join(chunk)).encode()
        separator = ",\n"


def _head(recording: Recording) -> dict[str, object]:
    cluster, rank = recording.cluster, recording.rank
    groups = cluster.groups_of(rank)
    world: dict[str, object] = {"backend": "nccl", "rank": rank, "world_size": cluster.spec.world}
    if cluster.spec.declare_groups:
        world["pg_count"] = len(groups)
        world["pg_config"] = [
            {
                "pg_name": _number(group.id),
                "pg_desc": "default_pg" if not number else group.kind,
                "backend_config": "cuda:nccl",
                "pg_size": len(group.ranks),
                "ranks": list(group.ranks),
            }
            for number, group in enumerate(groups)
        ]
    world["nccl_version"] = "2.21.5"
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": cluster.device(rank), "name": "NVIDIA A800", "totalGlobalMem": CAPACITY}],
        "distributedInfo": world,
        "record_shapes": 1,
        "host_name": cluster.host_name(rank),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE,
    }


def _number(id: str) -> str:
    """torch numbers its process groups; the simulator's ids contain such a number."""
    return id.split("_")[2]


def _pid(rank: int) -> int:
    return 10_000 + rank


def _micros(nanoseconds: int) -> str:
    since = nanoseconds - BASE
    return f"{since // 1000}.{since % 1000:03d}"


def _events(recording: Recording) -> Iterator[str]:
    pid, device = _pid(recording.rank), recording.cluster.device(recording.rank)
    yield f'{{"name":"process_name","ph":"M","ts":0,"pid":{pid},"tid":0,"args":{{"name":"python3"}}}}'
    yield f'{{"name":"process_labels","ph":"M","ts":0,"pid":{device},"tid":0,"args":{{"labels":"GPU {device}"}}}}'
    for index, step in enumerate(recording.steps.number.tolist()):
        yield from _step(recording, index, pid)
        yield from _kernels(recording, step, device, pid)
        yield from _collectives(recording, step, device)
    if has_detail_files(recording):
        yield from _memory(recording, device, pid)


def _step(recording: Recording, index: int, pid: int) -> Iterator[str]:
    steps = recording.steps
    start, end, ready = (int(column[index]) for column in (steps.start, steps.end, steps.ready))
    where = f'"pid":{pid},"tid":{pid},"ts":{_micros(start)}'
    yield (
        f'{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{steps.number[index]}",{where},'
        f'"dur":{(end - start) / 1000},"args":{{"External id":{index},"Ev Idx":{index}}}}}'
    )
    yield (
        f'{{"ph":"X","cat":"user_annotation","name":"enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",'
        f'{where},"dur":{(ready - start) / 1000},"args":{{"External id":{index},"Ev Idx":{index}}}}}'
    )
    update = max(start, end - _UPDATE_NS)
    yield (
        f'{{"ph":"X","cat":"user_annotation","name":"Optimizer.step#Adam.step","pid":{pid},"tid":{pid},'
        f'"ts":{_micros(update)},"dur":{(end - update) / 1000},"args":{{"External id":{index},"Ev Idx":{index}}}}}'
    )


def _kernels(recording: Recording, step: int, device: int, pid: int) -> Iterator[str]:
    kernels, whole = recording.kernels.of(step), has_detail_files(recording)
    names = [
        (_kernel_name(kernel), kernel.type, _dims(kernel.loaded(recording.load(number, step))))
        for number, kernel in enumerate(recording.program.kernels)
    ]
    correlation = step * 1_000_000
    columns = (kernels.template, kernels.start, kernels.duration, kernels.wait)
    for template, start, duration, wait in zip(*(column.tolist() for column in columns), strict=True):
        correlation += 1
        name, type, dims = names[template]
        if recording.program.kernels[template].core == CPU:
            # torch has no AI CPU: such an operator runs on the host, and the device idles
            yield _operator(type, dims, start, duration, pid, correlation)
            continue
        if whole:
            yield from _launch(type, dims, start - wait, wait, pid, correlation)
        yield (
            f'{{"ph":"X","cat":"kernel","name":"{name}","pid":{device},"tid":{COMPUTE_STREAM},"ts":{_micros(start)},'
            f'"dur":{duration / 1000},"args":{{"External id":{correlation},"queued":0,"device":{device},"context":1,'
            f'"stream":{COMPUTE_STREAM},"correlation":{correlation},"registers per thread":32,"shared memory":0,'
            f'"grid":[2400,1,1],"block":[256,1,1]}}}}'
        )


def _operator(type: str, dims: str, start: int, duration: int, pid: int, correlation: int) -> str:
    return (
        f'{{"ph":"X","cat":"cpu_op","name":"aten::{type}","pid":{pid},"tid":{pid},"ts":{_micros(start)},'
        f'"dur":{duration / 1000},"args":{{"External id":{correlation},"Ev Idx":{correlation},"Input Dims":{dims},'
        f'"Fwd thread id":0,"Sequence number":{correlation}}}}}'
    )


def _launch(type: str, dims: str, start: int, duration: int, pid: int, correlation: int) -> Iterator[str]:
    yield _operator(type, dims, start, duration, pid, correlation)
    where = f'"pid":{pid},"tid":{pid},"ts":{_micros(start)}'
    yield (
        f'{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel",{where},"dur":{duration // 2 / 1000},'
        f'"args":{{"External id":{correlation},"cbid":211,"correlation":{correlation}}}}}'
    )
    yield f'{{"ph":"s","id":{correlation},{where},"cat":"ac2g","name":"ac2g"}}'


def _kernel_name(kernel: Kernel) -> str:
    return KERNELS.get(
        kernel.type, f"void at::native::vectorized_elementwise_kernel<4, at::native::{kernel.type}>(int)"
    )


def _dims(kernel: Kernel) -> str:
    return "[" + ",".join(f"[{shape}]" for shape in shapes(kernel.inputs).split(";")) + "]"


def _collectives(recording: Recording, step: int, device: int) -> Iterator[str]:
    comm_ops = recording.comm_ops.of(step)
    correlation = step * 1_000_000 + 500_000
    columns = (comm_ops.template, comm_ops.sequence, comm_ops.start, comm_ops.duration)
    for template, sequence, start, duration in zip(*(column.tolist() for column in columns), strict=True):
        correlation += 1
        route = recording.routes[template]
        called, kernel = NCCL[route.op]
        stream, group = STREAMS[route.message.axis], route.group
        ranks = ", ".join(map(str, group.ranks))
        into, out = _elements(route.op, route.message.payload, len(group.ranks))
        # torch: "Rank" is an index in the group, of the peer for send and recv; Src and Dst are global
        peer = {"send": f'"Dst Rank":{route.peer},', "receive": f'"Src Rank":{route.peer},'}.get(route.op, "")
        inside = route.target if peer else route.source
        yield (
            f'{{"ph":"X","cat":"kernel","name":"{kernel}(ncclDevKernelArgsStorage<4096ul>)","pid":{device},'
            f'"tid":{stream},"ts":{_micros(start)},"dur":{duration / 1000},"args":{{"External id":{correlation},'
            f'"queued":0,"device":{device},"context":1,"stream":{stream},"correlation":{correlation},'
            f'"Collective name":"{called}","In msg nelems":{into},"Out msg nelems":{out},'
            f'"Group size":{len(group.ranks)},"dtype":"BFloat16","In split size":"[]","Out split size":"[]",'
            f'"Process Group Name":"{_number(group.id)}","Process Group Description":"{group.kind}",'
            f'"Process Group Ranks":"[{ranks}]",'
            f'{peer}"Rank":{inside},"Seq":{sequence},"grid":[24,1,1],"block":[512,1,1]}}}}'
        )


def _elements(op: str, payload: int, ranks: int) -> tuple[int, int]:
    """Input and output elements (2 bytes each) of one rank."""
    whole = payload // 2
    return {"all_gather": (whole // ranks, whole), "reduce_scatter": (whole, whole // ranks)}.get(op, (whole, whole))


def _memory(recording: Recording, device: int, pid: int) -> Iterator[str]:
    samples = memory_of(recording)
    before = 0
    for time, allocated, reserved in zip(
        samples.time.tolist(), samples.allocated.tolist(), samples.reserved.tolist(), strict=True
    ):
        yield (
            f'{{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":{pid},"tid":{pid},"ts":{_micros(time)},'
            f'"args":{{"Total Reserved":{reserved},"Total Allocated":{allocated},"Bytes":{allocated - before},'
            f'"Addr":140000000000000,"Device Id":{device},"Device Type":1,"Ev Idx":0}}}}'
        )
        before = allocated
