"""Names of communication operators as HCCL and MindSpore record them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from paceline.core.collective_names import op_of

_STREAM = re.compile(r"^stream_(?:ops_\d+|\d+_\d+)_(?=.)")
_EXECUTION = re.compile(r"(?<=-op)(\d+)_\d+$")


def display_names(recorded: Iterable[str]) -> dict[str, str]:
    """Recorded operator name → name without its stream, if that is still unique.

    The stream of an operator differs between ranks of one stage (stream_49_0_Send-op610 on rank 0 is
    stream_36_0_Send-op610 on rank 1 of a real job), the rest of the name does not. MindSpore ≥ 2.1 writes no stream
    but the number of the execution inside a step: AllReduce-op534_0.

    >>> display_names(["stream_36_0_AllReduce-op4542", "stream_10_parallel_0"])
    {'stream_36_0_AllReduce-op4542': 'AllReduce-op4542', 'stream_10_parallel_0': 'stream_10_parallel_0'}
    """
    plain = {name: _EXECUTION.sub(r"\1", _STREAM.sub("", name)) for name in recorded}
    seen = Counter(plain.values())
    return {name: short if seen[short] == 1 else name for name, short in plain.items()}


@lru_cache(maxsize=1 << 16)
def op_named(*names: str) -> str:
    """The operation of the first name that identifies one; "other" if none does."""
    return next((op for op in map(op_of, names) if op != "other"), "other")
