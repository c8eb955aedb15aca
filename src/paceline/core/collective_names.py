"""Names of collectives: from a recorded operator or group name to operation, sequence number and group kind."""

from __future__ import annotations

import re
from functools import lru_cache

_OPS: tuple[tuple[str, str], ...] = (
    # Order matters: "reducescatter" contains "reduce", "sendrecv" contains "send".
    ("reducescatter", "reduce_scatter"),
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("batchsendrecv", "send_receive"),
    ("sendrecv", "send_receive"),
    ("sendreceive", "send_receive"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("receive", "receive"),
    ("recv", "receive"),
    ("send", "send"),
    ("scatter", "scatter"),
    ("gather", "gather"),
    ("reduce", "reduce"),
)

_HCOM = re.compile(r"hcom_(?P<op>[A-Za-z]+?)_*_(?P<group>\d+)_(?P<sequence>\d+)(?:_(?P<part>\d+))?")

_KINDS: tuple[tuple[str, str], ...] = (
    ("default_group", "world"),
    ("default_pg", "world"),
    ("hccl_world_group", "world"),
    ("nccl_world_group", "world"),
    ("world", "world"),
    ("tensor", "tp"),
    ("tp", "tp"),
    ("pipeline", "pp"),
    ("pp", "pp"),
    ("expert", "ep"),
    ("exp", "ep"),
    ("ep", "ep"),
    ("context", "cp"),
    ("cp", "cp"),
    ("data", "dp"),
    ("dp", "dp"),
)


LAUNCHES = r"^(c10d::|record_param_comms|(nccl|rccl|hccl|xccl|ucc):)"
"""Names of host calls that return before the collective ends: they only launch it."""


@lru_cache(maxsize=65536)
def op_of(name: str) -> str:
    """The collective operation of a recorded name: all_reduce, …, or "other".

    >>> op_of("hcom_reduceScatter__612_4_1"), op_of("AllReduce-op4582"), op_of("ncclDevKernel_SendRecv(ncclDevComm*)")
    ('reduce_scatter', 'all_reduce', 'send_receive')
    """
    plain = name.lower().replace("_", "").replace("-", "").replace(" ", "")
    return next((op for spelling, op in _OPS if spelling in plain), "other")


@lru_cache(maxsize=65536)
def hccl_sequence(name: str) -> int | None:
    """The sequence number, equal on every rank of a group for the same HCCL collective; None if the name has none.

    >>> hccl_sequence("hcom_allReduce__612_4_1@5862276093215481612"), hccl_sequence("hcom_send__822_0")
    (4, 0)
    """
    found = _HCOM.search(name)
    return int(found["sequence"]) if found else None


@lru_cache(maxsize=65536)
def group_hash(group: str) -> str:
    """The number HCCL writes after "@" for a communicator id: two rolling 32-bit hashes (multipliers 29 and 131).

    >>> group_hash("group_name_0")
    '5862276093215481612'
    """
    low = high = 0
    for character in group.encode():
        high = (high * 29 + character) & 0xFFFFFFFF
        low = (low * 131 + character) & 0xFFFFFFFF
    return str(high << 32 | low)


def group_kind(name: str) -> str:
    """dp, tp, pp, ep, cp, world or other, from the framework's name of the group (dp_cp counts as dp).

    Megatron's "mp" spans tensor and pipeline parallel ranks, so it is neither.

    >>> group_kind("default_group"), group_kind("dp_cp"), group_kind("mp_exp"), group_kind("embd")
    ('world', 'dp', 'other', 'other')
    """
    plain = name.lower()
    return next((kind for prefix, kind in _KINDS if plain.startswith(prefix)), "other")
