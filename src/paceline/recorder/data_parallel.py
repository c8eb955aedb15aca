"""Record the gradient all-reduces of torch's DistributedDataParallel through a communication hook.

DDP starts them inside torch's C++ reducer, where no Python function can be wrapped. The hook computes exactly what the
reducer computes without one:

    gradient sum of a bucket = all_reduce(bucket · (1 / world size))

multiplied by the reciprocal, as the reducer does, so results are bit-identical.
"""

from __future__ import annotations

import sys
from typing import Any

from paceline.core.errors import UsageError
from paceline.recorder.recording_state import RecordingState
from paceline.recorder.step import CollectiveRecord
from paceline.recorder.torch_hooks import TorchHooks


def record_buckets(recorder: RecordingState, hooks: TorchHooks, model: Any) -> None:
    """Record the gradient all-reduces of a DistributedDataParallel model."""
    register = getattr(model, "register_comm_hook", None)
    if register is None:
        raise UsageError(
            f"{type(model).__name__} is not a DistributedDataParallel model", hint="pass the model that DDP returned"
        )
    dist: Any = sys.modules["torch.distributed"]
    group, share = model.process_group, 1.0 / model.process_group.size()
    name = hooks.group_name(group)

    def reduce_bucket(_: object, bucket: Any) -> Any:
        buffer = bucket.buffer()
        collective = CollectiveRecord("all_reduce", name, buffer.nbytes, queued=not buffer.is_cpu)
        recorder.current.add_collective(collective)
        last = bucket.is_last()
        work = group.allreduce([buffer.mul_(share)], _sum_options(dist))

        def finish(future: Any) -> Any:
            collective.finish()
            if not last:
                collective.blocked = 0  # backward continues in parallel; only the last bucket is waited for
            return future.value()[0]

        return work.get_future().then(finish)

    reduce_bucket.__annotations__.clear()  # torch rejects annotations that are not its own types
    try:
        register(None, reduce_bucket)
    except RuntimeError as error:
        raise UsageError(f"the model already has a communication hook ({error})") from error


def _sum_options(dist: Any) -> Any:
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.SUM
    return options
