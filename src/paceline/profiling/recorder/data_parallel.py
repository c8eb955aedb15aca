"""DistributedDataParallel sums gradients from inside torch, where no function can be stood in for: its buckets are
recorded through a communication hook that does exactly what it would do without one.

    gradient sum of a bucket = all_reduce(bucket · (1 / world size))

multiplied by the reciprocal as torch's reducer does, so the results are the same to the bit.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from paceline.errors import UsageError
from paceline.profiling.recorder.step import Talk

if TYPE_CHECKING:
    from paceline.profiling.recorder.recorder import Recorder
    from paceline.profiling.recorder.torch_hooks import TorchHooks


def record_buckets(recorder: Recorder, hooks: TorchHooks, model: Any) -> None:
    """Record the gradient sums of a DistributedDataParallel model."""
    register = getattr(model, "register_comm_hook", None)
    if register is None:
        raise UsageError(f"{type(model).__name__} is no DistributedDataParallel model")
    dist: Any = sys.modules["torch.distributed"]
    group, share = model.process_group, 1.0 / model.process_group.size()
    name = hooks.group_of(group)

    def sum_up(_: object, bucket: Any) -> Any:
        buffer = bucket.buffer()
        talk = Talk("all_reduce", name, buffer.nbytes, later=not buffer.is_cpu)
        recorder.current.take(talk)
        last = bucket.is_last()
        work = group.allreduce([buffer.mul_(share)], _sum(dist))

        def done(future: Any) -> Any:
            talk.finish()
            if not last:
                talk.blocked = 0  # backward goes on beside it; only the last bucket is waited for
            return future.value()[0]

        return work.get_future().then(done)

    sum_up.__annotations__.clear()  # torch compares them with its own types, or takes none
    try:
        register(None, sum_up)
    except RuntimeError as error:
        raise UsageError(f"the model has a communication hook already ({error})") from error


def _sum(dist: Any) -> Any:
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.SUM
    return options
