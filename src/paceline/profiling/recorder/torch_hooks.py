"""The collectives of torch.distributed, recorded by standing in front of its functions.

Only names in `torch.distributed` are replaced: what it calls inside itself is not recorded twice. Arguments, results
and exceptions pass through untouched. A call that returns a Work ends when somebody waits for it (`Work.wait` is
replaced too); what was done before anybody waited has no known end.

Who imported a function by its own name before the recorder was started keeps the plain one.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from paceline.profiling.recorder.calls import Calls, first_of, plain_of, size_of

if TYPE_CHECKING:
    from paceline.profiling.recorder.recorder import Recorder


class TorchHooks:
    """All stand-ins of one recorder; `remove` puts the plain functions back."""

    def __init__(self, recorder: Recorder, torch: Any) -> None:
        self._torch, self._dist = torch, torch.distributed
        self._recorder = recorder
        self._groups: dict[str | None, str] = {}
        self._ranks: dict[str, tuple[int, ...]] = {}
        self.calls = Calls(recorder, self)
        self.calls.watch(self._dist)
        self._watch_works()
        self._watch_batches()
        self._forget_groups()

    def remove(self) -> None:
        self.calls.restore()

    # -- the Framework protocol --------------------------------------------------------------------------------------

    def group_of(self, group: Any) -> str:
        known = self._groups.get(None if group is None else group.group_name)
        return known if known is not None else self._meet(group)

    def peer_of(self, group: Any, rank: int | None, group_rank: int | None) -> int | None:
        if rank is not None or group_rank is None:
            return rank
        ranks = self._ranks[self.group_of(group)]
        return ranks[group_rank] if group_rank < len(ranks) else None

    def message(self, tensors: Any) -> tuple[int | None, bool]:
        if isinstance(tensors, self._torch.Tensor):
            return tensors.nbytes, not tensors.is_cpu
        return size_of(tensors), not getattr(first_of(tensors), "is_cpu", True)

    def synchronise(self) -> None:
        self._torch.accelerator.synchronize()

    def handle_of(self, result: Any) -> Any:
        return result if isinstance(result, self._dist.Work) else None

    # -- what is special about torch ---------------------------------------------------------------------------------

    def _meet(self, group: Any) -> str:
        """Names of groups are unique in one process only: the ranks make them so everywhere."""
        process_group = group if group is not None else self._dist.group.WORLD
        if process_group is None or not hasattr(process_group, "group_name"):
            return ""  # not initialised, or this rank is no member: the call itself will say so
        ranks = tuple(self._dist.get_process_group_ranks(process_group))
        name = f"{process_group.group_name}@{zlib.crc32(repr(ranks).encode()):08x}"
        self._ranks[name] = ranks
        self._recorder.know_group(name, ranks, getattr(process_group, "group_desc", "") or "")
        self._groups[None if group is None else process_group.group_name] = name
        return name

    def _watch_works(self) -> None:
        plain = self._dist.Work.wait
        calls = self.calls

        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            if id(work) not in calls.unwaited:
                return plain(work, *args, **kwargs)
            return calls.waited(work, work.is_completed(), lambda: plain(work, *args, **kwargs))

        calls.replace(self._dist.Work, "wait", wait)

    def _watch_batches(self) -> None:
        """P2POp insists on torch's own isend and irecv: it gets them; the batch is recorded as a whole."""
        dist, calls = self._dist, self.calls
        make, begin, plain = dist.P2POp.__new__, dist.P2POp.__init__, dist.batch_isend_irecv

        def new(kind: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
            return make(kind, plain_of(op), *args, **kwargs)

        def init(self: Any, op: Any, *args: Any, **kwargs: Any) -> None:
            begin(self, plain_of(op), *args, **kwargs)

        def batch_isend_irecv(p2p_op_list: list[Any]) -> Any:
            if not self._recorder.running:
                return plain(p2p_op_list)
            sends = plain_of(dist.isend)
            talks = [
                calls.begin("send" if each.op is sends else "receive", each.group, each.tensor, each.peer)
                for each in p2p_op_list
                if isinstance(each, dist.P2POp)
            ]
            works = plain(p2p_op_list)
            for talk, work in zip(talks, works, strict=False):
                calls.expect(work, talk)
            return works

        calls.replace(dist.P2POp, "__new__", staticmethod(new))
        calls.replace(dist.P2POp, "__init__", init)
        calls.replace(dist, "batch_isend_irecv", batch_isend_irecv)

    def _forget_groups(self) -> None:
        """Names are used again after a process group was destroyed."""
        plain = self._dist.destroy_process_group

        def destroy_process_group(group: Any = None) -> None:
            self._groups.clear()
            plain(group)

        self.calls.replace(self._dist, "destroy_process_group", destroy_process_group)
