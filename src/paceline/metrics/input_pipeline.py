"""The dataset pipeline: which operator is its bottleneck, and why.

Data flows from the leaves (readers) to the root (nearest to the device); an operator's output queue is its consumer's
input. With use(o) = mean length / capacity of o's output queue, and MindInsight's thresholds:

    all queues are at least 80 % full            the root (or what takes from it) is the bottleneck
    fullest input - own output > 10 points       the operator gets more than it passes on
    a leaf with use < 60 %                       it reads too slowly

Several operators may fulfil one of these. Behind a full queue nothing is late, so the search goes from the root towards
the leaves, always to the emptiest input, and stops at the first. The CPU use of one worker is shown beside it: a busy worker
means that more of them help, an idle one that it waits for a disk, a lock, or room in its queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.metrics.table import Source

ALL_FULL = 0.8
PASSES_LESS = 0.1
LEAF_LOW = 0.6

ROOT, PROCESSING, READING = "root", "processing", "reading"


@dataclass(frozen=True)
class DatasetOperator:
    """One dataset operator of one rank."""

    op_id: int
    op: str
    parent: int | None
    workers: int | None
    use: float | None
    """Of its output queue, 0 to 1."""
    cpu: float | None
    """% of one core, all workers together."""

    @property
    def cpu_per_worker(self) -> float | None:
        return None if self.cpu is None else self.cpu / max(1, self.workers or 1)


@dataclass(frozen=True)
class Bottleneck:
    stage: DatasetOperator
    why: str
    """root, processing or reading."""
    input_use: float | None
    """Of the fullest queue it takes from."""


def bottlenecks(run: Source) -> dict[int, Bottleneck]:
    """By rank, for ranks whose pipeline has one."""
    found = {rank: bottleneck(stages) for rank, stages in pipelines(run).items()}
    return {rank: one for rank, one in found.items() if one is not None}


def bottleneck(stages: Sequence[DatasetOperator]) -> Bottleneck | None:
    """The operator that holds one pipeline up, None when nothing shows that one does."""
    children: dict[int | None, list[DatasetOperator]] = defaultdict(list)
    for stage in stages:
        children[stage.parent].append(stage)
    roots = children[None]
    uses = [stage.use for stage in stages if stage.parent is not None and stage.use is not None]
    if not roots or not uses:
        return None
    if min(uses) >= ALL_FULL:
        return Bottleneck(roots[0], ROOT, _fullest(_inputs(roots[0], children)))
    return _first_suspect(roots[0], children)


def pipelines(run: Source) -> dict[int, list[DatasetOperator]]:
    """The operators of each rank's pipeline; rows per stage inside an operator are passed over."""
    rows = run.sql(
        """
        SELECT rank, op_id, any_value(op), any_value(parent), any_value(workers),
               any_value(queue_size) / nullif(any_value(queue_capacity), 0), any_value(cpu)
        FROM input_pipeline WHERE op_id IS NOT NULL AND rank IS NOT NULL GROUP BY rank, op_id ORDER BY rank, op_id
        """
    ).fetchall()
    found: dict[int, list[DatasetOperator]] = defaultdict(list)
    for rank, op_id, op, parent, workers, use, cpu in rows:
        found[rank].append(DatasetOperator(op_id, op or "?", parent, workers, use, cpu))
    return dict(found)


def _first_suspect(root: DatasetOperator, children: Mapping[int | None, list[DatasetOperator]]) -> Bottleneck | None:
    stage = root
    seen = {stage.op_id}  # a damaged file may join operators in a circle
    while inputs := [each for each in _inputs(stage, children) if each.op_id not in seen]:
        fullest = _fullest(inputs)
        if stage.use is not None and fullest is not None and fullest - stage.use > PASSES_LESS:
            return Bottleneck(stage, PROCESSING, fullest)
        stage = min(inputs, key=lambda each: 1.0 if each.use is None else each.use)
        seen.add(stage.op_id)
    return Bottleneck(stage, READING, None) if stage.use is not None and stage.use < LEAF_LOW else None


def _inputs(stage: DatasetOperator, children: Mapping[int | None, list[DatasetOperator]]) -> list[DatasetOperator]:
    """Whom an operator takes from, seen through operators without a queue (they run in their consumer's thread)."""
    found: list[DatasetOperator] = []
    waiting, seen = list(children.get(stage.op_id, ())), {stage.op_id}
    while waiting:
        each = waiting.pop(0)
        if each.op_id in seen:
            continue
        seen.add(each.op_id)
        below = children.get(each.op_id, ())
        if each.use is None and below:
            waiting += below
        else:
            found.append(each)
    return found


def _fullest(stages: Sequence[DatasetOperator]) -> float | None:
    return max((stage.use for stage in stages if stage.use is not None), default=None)
