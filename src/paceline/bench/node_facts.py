"""What the nodes of a run reported about themselves, from the job's logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from paceline.bench.result import NodeFacts
from paceline.jobs.node.node_facts import MARK, VARIABLE

__all__ = ["VARIABLE", "read_node_facts"]
_LARGEST_LINE = 100_000


def read_node_facts(logs: Sequence[str]) -> tuple[NodeFacts, ...]:
    """One for every log of a node, in their order; an empty one where a node reported nothing."""
    return tuple(_first(Path(log)) for log in logs)


def _first(log: Path) -> NodeFacts:
    try:
        with log.open("rb") as file:
            for line in file:
                if line.startswith(MARK.encode()) and len(line) < _LARGEST_LINE:
                    return msgspec.json.decode(line[len(MARK) :], type=NodeFacts)
    except (OSError, msgspec.DecodeError):
        pass  # a line that another process wrote into is not worth a failed benchmark
    return NodeFacts()
