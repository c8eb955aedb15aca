"""Who a recording says it is: by its name, by what it holds, by files beside it and by the directory of its profile.

    rank1_ascend_pt/profiler_info_1.json
    rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_7.db      its name says 7, RANK_DEVICE_MAP in it 1

What is inside a file moves with its measured times, so it is preferred to names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from paceline.core.message import Message, Sentence, listed, message

_IN_DIRECTORY = re.compile(r"rank[_-]?(\d+)", re.IGNORECASE)


def rank_in_directory(directory: str) -> int | None:
    """The number in the name of a profile's directory.

    >>> rank_in_directory("node1/rank_12_ascend_pt"), rank_in_directory("rank1/host_ascend_ms")
    (12, None)
    """
    found = _IN_DIRECTORY.search(directory.rpartition("/")[2])
    return int(found[1]) if found else None


def contradiction(claims: Mapping[Sentence, int | None], rank: int) -> Message | None:
    """What says that the recording is of another rank than `rank`; None if nothing does.

    >>> str(contradiction({"its name": 7, "profiler_info_1.json": 1, "RANK_DEVICE_MAP": None}, 1))
    'is of rank 7 by its name, of rank 1 by profiler_info_1.json'
    """
    others = [what for what, number in claims.items() if number not in (None, rank)]
    agreeing = [what for what, number in claims.items() if number == rank]
    told = [message("claims_rank", n=claims[what], what=what) for what in others + agreeing]
    return message("contradiction", claims=listed(told)) if others else None


def strangers_by_directory(directories: Sequence[str], ranks: Sequence[int | None]) -> dict[int, int]:
    """Places of recordings whose directory names another rank → that rank, if directories are named after ranks of the cluster.

    They may be named after cards of a host, or in an order of their own: then numbers repeat, or most are others.

    >>> strangers_by_directory(["rank0", "rank1", "rank2", "rank3"], [0, 1, 7, 3])
    {2: 2}
    >>> strangers_by_directory(["a/rank0", "a/rank1", "b/rank0", "b/rank1"], [0, 1, 2, 3])
    {}
    >>> strangers_by_directory(["rank1", "rank0"], [0, 1])
    {0: 1, 1: 0}
    """
    named = [rank_in_directory(directory) for directory in directories]
    of_directory = {
        (directory, number) for directory, number in zip(directories, named, strict=True) if number is not None
    }
    repeated = {number for number, count in Counter(number for _, number in of_directory).items() if count > 1}
    others = {
        place: number
        for place, (number, rank) in enumerate(zip(named, ranks, strict=True))
        if number is not None and rank is not None and number != rank
    }
    if repeated:
        return {}
    exchanged = set(others.values()) == {ranks[place] for place in others}
    return others if exchanged or 2 * len(others) <= len(of_directory) else {}
