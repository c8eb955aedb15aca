"""Names in Ascend files: operators, group hashes, times."""

from __future__ import annotations

from functools import lru_cache

from paceline.simulate.recording import Recording
from paceline.simulate.routing import MessageRoute

HCOM = {
    "all_reduce": "allReduce",
    "all_gather": "allGather",
    "reduce_scatter": "reduceScatter",
    "all_to_all": "alltoall",
    "send": "send",
    "receive": "receive",
}
# MindSpore's names of the same operators in a graph
GRAPH = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_to_all": "AlltoAll",
    "send": "Send",
    "receive": "Receive",
}
# communication_matrix.json: the real tool lists reduceScatter under "reduce" (its pattern matches that first)
MATRIX = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reduce",
    "all_to_all": "alltoall",
    "send": "send",
    "receive": "receive",
}

NO_RANK = 4294967295


@lru_cache(maxsize=65536)
def group_hash(group: str) -> str:
    """Two rolling 32-bit hashes, primes 29 (high half) and 131 (low half).

    >>> group_hash("group_name_0")
    '5862276093215481612'
    """
    high = low = 0
    for letter in group:
        high = (high * 29 + ord(letter)) % 2**32
        low = (low * 131 + ord(letter)) % 2**32
    return str(high * 2**32 + low)


def hcom_name(route: MessageRoute, sequence: int) -> str:
    """hcom_allReduce__612_4_1: op, last three digits of the group's hash, sequence, 1."""
    return f"hcom_{HCOM[route.op]}__{group_hash(route.group.id)[-3:]}_{sequence}_1"


def graph_name(recording: Recording, message: int) -> str:
    """AllReduce-op12: the same on all ranks of a stage, once per step."""
    return f"{GRAPH[recording.program.messages[message].op]}-op{message + 1}"


def micros(nanoseconds: int) -> str:
    """1763208000000000.120: microseconds without the rounding of a double."""
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def shapes(tensors: tuple[tuple[int, ...], ...]) -> str:
    """4096,8192;8192,1280"""
    return ";".join(",".join(map(str, tensor)) for tensor in tensors)


def worker(recording: Recording) -> str:
    """{host}_{pid}_{time stamp of 17 digits}"""
    cluster, rank = recording.cluster, recording.rank
    return f"{cluster.host_name(rank)}_{10_000 + rank}_20251115120000{rank % 1000:03d}"
