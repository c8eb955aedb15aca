"""Record the collectives of torch.distributed by wrapping its functions.

Only names in `torch.distributed` are replaced, so what it calls internally is not recorded twice. Arguments, results and
exceptions pass through unchanged. A call that returns a Work ends when the Work is waited for (`Work.wait` is wrapped
too); the end of a Work that had finished before is not known.

Code that imported a function by name before the recorder was started keeps the original function and is not recorded.
"""

from __future__ import annotations

import zlib
from typing import Any

from paceline.recorder.collective_calls import CollectivePatches, first_tensor, original_of, size_of
from paceline.recorder.recording_state import RecordingState


class TorchHooks:
    """All wrappers of one recorder; `remove` restores the original functions."""

    def __init__(self, recorder: RecordingState, torch: Any) -> None:
        self._torch, self._dist = torch, torch.distributed
        self._recorder = recorder
        self._groups: dict[str | None, str] = {}
        self._ranks: dict[str, tuple[int, ...]] = {}
        self.patches = CollectivePatches(recorder, self)
        self.patches.wrap_module(self._dist)
        self._wrap_work_wait()
        self._wrap_p2p_batches()
        self._wrap_destroy_process_group()

    def remove(self) -> None:
        self.patches.restore()

    # -- the FrameworkAdapter protocol -------------------------------------------------------------------------------

    def group_name(self, group: Any) -> str:
        known = self._groups.get(None if group is None else group.group_name)
        return known if known is not None else self._register_group(group)

    def peer_rank(self, group: Any, rank: int | None, group_rank: int | None) -> int | None:
        if rank is not None or group_rank is None:
            return rank
        ranks = self._ranks[self.group_name(group)]
        return ranks[group_rank] if group_rank < len(ranks) else None

    def message_size(self, tensors: Any) -> tuple[int | None, bool]:
        if isinstance(tensors, self._torch.Tensor):
            return tensors.nbytes, not tensors.is_cpu
        return size_of(tensors), not getattr(first_tensor(tensors), "is_cpu", True)

    def synchronise(self) -> None:
        self._torch.accelerator.synchronize()

    def pending_handle(self, result: Any) -> Any:
        return result if isinstance(result, self._dist.Work) else None

    # -- specific to torch -------------------------------------------------------------------------------------------

    def _register_group(self, group: Any) -> str:
        """Group names are unique within one process only; a checksum of the ranks makes them unique in the job."""
        process_group = group if group is not None else self._dist.group.WORLD
        if process_group is None or not hasattr(process_group, "group_name"):
            return ""  # not initialised, or this rank is not a member: the call itself will raise
        ranks = tuple(self._dist.get_process_group_ranks(process_group))
        name = f"{process_group.group_name}@{zlib.crc32(repr(ranks).encode()):08x}"
        self._ranks[name] = ranks
        self._recorder.register_group(name, ranks, getattr(process_group, "group_desc", "") or "")
        self._groups[None if group is None else process_group.group_name] = name
        return name

    def _wrap_work_wait(self) -> None:
        original = self._dist.Work.wait
        patches = self.patches

        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            if id(work) not in patches.pending:
                return original(work, *args, **kwargs)
            return patches.wait_for(work, work.is_completed(), lambda: original(work, *args, **kwargs))

        patches.replace(self._dist.Work, "wait", wait)

    def _wrap_p2p_batches(self) -> None:
        """P2POp accepts only torch's own isend and irecv, so it gets those; the batch is recorded as a whole."""
        dist, patches = self._dist, self.patches
        make, begin, original = dist.P2POp.__new__, dist.P2POp.__init__, dist.batch_isend_irecv

        def new(kind: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
            return make(kind, original_of(op), *args, **kwargs)

        def init(self: Any, op: Any, *args: Any, **kwargs: Any) -> None:
            begin(self, original_of(op), *args, **kwargs)

        def batch_isend_irecv(p2p_op_list: list[Any]) -> Any:
            if not self._recorder.running:
                return original(p2p_op_list)
            isend = original_of(dist.isend)
            collectives = [
                patches.begin("send" if each.op is isend else "receive", each.group, each.tensor, each.peer)
                for each in p2p_op_list
                if isinstance(each, dist.P2POp)
            ]
            works = original(p2p_op_list)
            for collective, work in zip(collectives, works):
                patches.add_pending(work, collective)
            return works

        patches.replace(dist.P2POp, "__new__", staticmethod(new))
        patches.replace(dist.P2POp, "__init__", init)
        patches.replace(dist, "batch_isend_irecv", batch_isend_irecv)

    def _wrap_destroy_process_group(self) -> None:
        """Forget the groups: their names are used again after a process group was destroyed."""
        original = self._dist.destroy_process_group

        def destroy_process_group(group: Any = None) -> None:
            self._groups.clear()
            original(group)

        self.patches.replace(self._dist, "destroy_process_group", destroy_process_group)
