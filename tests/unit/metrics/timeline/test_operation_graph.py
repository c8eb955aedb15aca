"""What each operation of the straggler study waits for, written down by hand for small pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.core.errors import PacelineError
from paceline.metrics.timeline.operation_graph import (
    Operation,
    OperationGraph,
    Recorded,
    over_replicas,
    read_operation_graph,
)
from support.fake_run import FakeRun
from support.small_pipeline import recorded, spelled


def graph(*operations: dict[Operation, Recorded]) -> OperationGraph:
    return OperationGraph({key: times for one in operations for key, times in one.items()})


def follows(made: OperationGraph) -> dict[str, set[str]]:
    return {spelled(operation): {spelled(one) for one in before} for operation, before in made.follows.items()}


def message(text: str, start: float, number: int, serves: int | None = None) -> dict[Operation, Recorded]:
    return recorded(text, start, serves=number if serves is None else serves, message=number)


def test_computing_and_each_kind_of_message_are_streams_in_order_of_time() -> None:
    """Two micro-batches on two stages, one forward and one backward in turn: the names' numbers say which batch."""
    made = graph(
        recorded("forward-compute 0 @0", 0),
        message("forward-send 0 @0", 10, 0),
        recorded("forward-compute 1 @0", 20),
        message("forward-send 1 @0", 30, 1),
        message("backward-recv 0 @0", 35, 0),
        recorded("backward-compute 0 @0", 50),
        message("backward-recv 1 @0", 52, 1),
        recorded("backward-compute 1 @0", 70),
        message("forward-recv 0 @1", 9, 0),
        recorded("forward-compute 0 @1", 20),
        recorded("backward-compute 0 @1", 30),
        message("backward-send 0 @1", 40, 0),
        message("forward-recv 1 @1", 28, 1),
        recorded("forward-compute 1 @1", 42),
        recorded("backward-compute 1 @1", 52),
        message("backward-send 1 @1", 60, 1),
    )
    assert follows(made) == {
        "forward-compute 0 @0": set(),
        "forward-compute 1 @0": {"forward-compute 0 @0"},
        "backward-compute 0 @0": {"forward-compute 1 @0", "backward-recv 0 @0"},
        "backward-compute 1 @0": {"backward-compute 0 @0", "backward-recv 1 @0"},
        "forward-send 0 @0": {"forward-compute 0 @0"},
        "forward-send 1 @0": {"forward-send 0 @0", "forward-compute 1 @0"},
        # The first of the backward pass is posted one computing before the last forward of the warm-up.
        "backward-recv 0 @0": {"forward-compute 0 @0"},
        "backward-recv 1 @0": {"backward-recv 0 @0", "backward-compute 0 @0"},
        "forward-recv 0 @1": set(),
        "forward-recv 1 @1": {"forward-recv 0 @1", "forward-compute 0 @1"},
        "forward-compute 0 @1": {"forward-recv 0 @1"},
        "backward-compute 0 @1": {"forward-compute 0 @1"},
        "forward-compute 1 @1": {"backward-compute 0 @1", "forward-recv 1 @1"},
        "backward-compute 1 @1": {"forward-compute 1 @1"},
        "backward-send 0 @1": {"backward-compute 0 @1"},
        "backward-send 1 @1": {"backward-send 0 @1", "backward-compute 1 @1"},
    }
    places = {operation: place for place, together in enumerate(made.together) for operation in together}
    assert all(places[one] < places[after] for after, before in made.follows.items() for one in before)
    assert made.stages == 2 and made.shape == (1, 1)
    together = {tuple(map(spelled, each)) for each in made.together if len(each) > 1}
    assert together == {
        ("forward-recv 0 @1", "forward-send 0 @0"),
        ("forward-recv 1 @1", "forward-send 1 @0"),
        ("backward-recv 0 @0", "backward-send 0 @1"),
        ("backward-recv 1 @0", "backward-send 1 @1"),
    }


def test_in_an_interleaved_pipeline_the_last_stage_sends_to_the_first() -> None:
    made = graph(
        recorded("forward-compute 0 @2", 0, chunk=0),
        message("forward-send 0 @2", 1, 0),
        message("forward-recv 0 @0", 1, 0),
        recorded("forward-compute 0 @0", 3, chunk=1),
        message("backward-send 0 @0", 9, 0),
        recorded("backward-compute 0 @0", 8),
        message("backward-recv 0 @2", 9, 0),
        recorded("backward-compute 0 @2", 11),
        recorded("forward-compute 0 @1", 0),
    )
    assert spelled(made.members(Operation("forward-send", 0, 2))[0]) == "forward-recv 0 @0"
    assert spelled(made.members(Operation("backward-send", 0, 0))[0]) == "backward-recv 0 @2"


def test_a_message_without_another_side_is_alone_and_a_lost_side_is_an_error() -> None:
    alone = recorded("forward-send 0 @0", 5, serves=0)
    made = graph(recorded("forward-compute 0 @0", 0), alone, recorded("forward-compute 0 @1", 0))
    assert made.members(*alone) == tuple(alone)
    with pytest.raises(PacelineError, match="forward-recv 0 of stage 1 has no other side"):
        graph(
            recorded("forward-compute 0 @0", 0), message("forward-recv 0 @1", 5, 0), recorded("forward-compute 0 @1", 9)
        )


def warm_up(forwards: int, number: int = 0) -> set[str]:
    made = graph(
        *(recorded(f"forward-compute {n} @0", n) for n in range(forwards)),
        recorded("backward-compute 0 @0", 10),
        recorded(f"backward-send {number} @0", 20),
    )
    return follows(made)[f"backward-send {number} @0"]


@pytest.mark.parametrize(
    ("forwards", "before"), [(1, set()), (2, {"forward-compute 0 @0"}), (3, {"forward-compute 1 @0"})]
)
def test_the_first_message_of_the_backward_pass_is_posted_before_the_last_forward(
    forwards: int, before: set[str]
) -> None:
    assert warm_up(forwards) == before
    assert warm_up(forwards, number=1) == set()


def test_without_a_backward_pass_no_message_opens_it() -> None:
    forwards = [recorded(f"forward-compute {n} @0", n) for n in range(3)]
    assert follows(graph(*forwards, recorded("backward-recv 0 @0", 5)))["backward-recv 0 @0"] == set()


def test_the_first_forward_of_each_chunk_needs_all_parameters_of_that_chunk() -> None:
    made = graph(
        recorded("params-all-gather 0 @0", 0, chunk=0),
        recorded("params-all-gather 1 @0", 2, chunk=0),
        recorded("params-all-gather 2 @0", 4, chunk=1),
        recorded("forward-compute 0 @0", 6, chunk=0),
        recorded("forward-compute 1 @0", 8, chunk=0),
        recorded("forward-compute 2 @0", 10, chunk=1),
    )
    found = follows(made)
    assert found["params-all-gather 2 @0"] == {"params-all-gather 1 @0"}
    assert found["forward-compute 0 @0"] == {"params-all-gather 1 @0"}
    assert found["forward-compute 1 @0"] == {"forward-compute 0 @0"}
    assert found["forward-compute 2 @0"] == {"forward-compute 1 @0", "params-all-gather 2 @0"}


END = [
    recorded("gc 0 @0", 40),
    recorded("layernorm-grads-all-reduce 0 @0", 42),
    recorded("embedding-grads-all-reduce 0 @0", 44),
    recorded("optimizer-clip-main-grad 0 @0", 50),
    recorded("optimizer 0 @0", 60),
]


def test_gradients_are_summed_after_the_last_backward() -> None:
    computing = [recorded("forward-compute 0 @0", 0), recorded("backward-compute 0 @0", 20)]
    found = follows(graph(*computing, *END, recorded("grads-reduce-scatter 0 @0", 46)))
    assert {name: before for name, before in found.items() if "compute" not in name} == {
        "gc 0 @0": {"backward-compute 0 @0"},
        "layernorm-grads-all-reduce 0 @0": {"gc 0 @0"},
        "embedding-grads-all-reduce 0 @0": {"layernorm-grads-all-reduce 0 @0"},
        "grads-reduce-scatter 0 @0": {"embedding-grads-all-reduce 0 @0"},
        "optimizer-clip-main-grad 0 @0": {"grads-reduce-scatter 0 @0"},
        "optimizer 0 @0": {"optimizer-clip-main-grad 0 @0"},
    }
    without = follows(graph(*computing, recorded("grads-all-reduce 0 @0", 46), recorded("optimizer 0 @0", 60)))
    assert without["grads-all-reduce 0 @0"] == {"backward-compute 0 @0"}
    assert without["optimizer 0 @0"] == {"grads-all-reduce 0 @0"}


@pytest.mark.parametrize(("one", "other"), [(1, 0), (0, 1)])
def test_where_only_the_rest_is_summed_last_gradients_follow_the_backward_of_their_chunk(one: int, other: int) -> None:
    found = follows(
        graph(
            recorded("forward-compute 0 @0", 0),
            recorded("backward-compute 0 @0", 10, chunk=one),
            recorded("backward-compute 1 @0", 12, chunk=other),
            recorded("backward-compute 2 @0", 14, chunk=one),
            recorded("grads-reduce-scatter 0 @0", 18, chunk=one),
            recorded("grads-reduce-scatter 1 @0", 19, chunk=one),
            recorded("backward-compute 3 @0", 20, chunk=other),
            recorded("grads-reduce-scatter 2 @0", 30, chunk=other),
            *END[1:],
            recorded("separate-grads-all-reduce 0 @0", 48),
        )
    )
    assert found["grads-reduce-scatter 0 @0"] == {"backward-compute 2 @0"}
    assert found["grads-reduce-scatter 1 @0"] == {"grads-reduce-scatter 0 @0"}
    assert found["grads-reduce-scatter 2 @0"] == {"grads-reduce-scatter 1 @0", "backward-compute 3 @0"}
    assert found["layernorm-grads-all-reduce 0 @0"] == {"backward-compute 3 @0", "grads-reduce-scatter 2 @0"}
    assert found["separate-grads-all-reduce 0 @0"] == {"embedding-grads-all-reduce 0 @0"}
    assert found["optimizer-clip-main-grad 0 @0"] == {"separate-grads-all-reduce 0 @0"}


def test_a_receive_is_posted_after_the_computing_before_the_one_that_needs_it() -> None:
    forwards = [recorded(f"forward-compute {n} @0", 10 * n + 5) for n in range(3)]
    receives = [recorded(f"forward-recv {n} @0", 10 * n, serves=n) for n in range(3)]
    found = follows(graph(*forwards, *receives))
    assert found["forward-recv 2 @0"] == {"forward-recv 1 @0", "forward-compute 1 @0"}
    assert found["forward-recv 0 @0"] == set() and "forward-recv 2 @0" in found["forward-compute 2 @0"]


def test_collectives_over_stages_are_one_and_those_over_replicas_are_told() -> None:
    made = graph(*(recorded(f"{name} 0 @{stage}", 1) for name, stage in [
        ("embedding-grads-all-reduce", 0), ("embedding-grads-all-reduce", 2), ("layernorm-grads-all-reduce", 0),
        ("layernorm-grads-all-reduce", 1), ("optimizer-clip-main-grad", 0), ("optimizer-clip-main-grad", 1),
    ]))  # fmt: skip
    joined = {tuple(map(spelled, each)) for each in made.together}
    assert ("embedding-grads-all-reduce 0 @0", "embedding-grads-all-reduce 0 @2") in joined
    assert ("optimizer-clip-main-grad 0 @0", "optimizer-clip-main-grad 0 @1") in joined
    assert ("layernorm-grads-all-reduce 0 @0",) in joined
    names = ["grads-reduce-scatter", "grads-all-reduce", "separate-grads-all-reduce", "params-all-gather"]
    assert all(over_replicas(Operation(name, 0, 0)) for name in [*names, "optimizer-clip-main-grad"])
    alone = ["embedding-grads-all-reduce", "layernorm-grads-all-reduce", "forward-send", "forward-compute"]
    assert not any(over_replicas(Operation(name, 0, 0)) for name in alone)


def test_operations_that_wait_for_each_other_are_refused() -> None:
    """The receive serves the first computing of its stage, and its send the second: each comes before the other."""
    with pytest.raises(PacelineError, match="in a circle"):
        graph(
            message("forward-recv 0 @0", 0, 0),
            recorded("forward-compute 0 @0", 1),
            message("forward-send 0 @0", 2, 1, serves=0),
            message("forward-recv 0 @1", 0, 1, serves=0),
            recorded("forward-compute 0 @1", 1),
            message("forward-send 0 @1", 2, 0, serves=0),
        )


# -- reading -----------------------------------------------------------------------------------------------------------


def row(rank: int, step: int | None, name: str, start: int, duration: int) -> dict[str, Any]:
    return {"rank": rank, "step": step, "name": name, "start": start, "duration": duration}


RANKS = [{"rank": rank, "stage": stage} for rank, stage in ((0, 0), (1, 0), (2, 1), (3, 1), (9, None))]


def workers_of(
    step: int, begin: int, *, leave_out: int | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """On every worker forward, a message (received 60 later), and a sum; times differ by replica."""
    kernels, calls = [], []
    for rank in range(4):
        stage, replica = divmod(rank, 2)
        at = begin + replica
        kernels.append(row(rank, step, "forward-compute", at + 200 * stage, 100))
        calls.append(row(rank, step, ("forward-send", "forward-recv")[stage], at + (100 if stage == 0 else 60), 50))
        if rank != leave_out:
            calls.append(row(rank, step, "grads-all-reduce", at + 400, 30 + replica))
    return kernels, calls


def read(**more: list[dict[str, Any]]) -> OperationGraph:
    (first, first_calls), (second, second_calls) = workers_of(5, 1000), workers_of(7, 3000)
    tables: dict[str, list[dict[str, Any]]] = {"kernels": first + second, "collectives": first_calls + second_calls}
    for name, rows in more.items():
        tables[name] = tables.get(name, []) + rows
    return read_operation_graph(FakeRun(ranks=RANKS, **tables))


def test_operations_are_read_by_replica_and_step_from_the_begin_of_their_step() -> None:
    made = read(kernels=[row(0, None, "warm-up", 0, 1)], collectives=[row(0, None, "warm-up", 0, 1)])
    assert {spelled(operation) for operation in made.operations} == {
        "forward-compute 0 @0",
        "forward-compute 0 @1",
        "forward-send 0 @0",
        "forward-recv 0 @1",
        "grads-all-reduce 0 @0",
        "grads-all-reduce 0 @1",
    }
    sums, forward = (
        made.operations[Operation("grads-all-reduce", 0, 1)],
        made.operations[Operation("forward-compute", 0, 1)],
    )
    assert sums.start.tolist() == [[400, 400], [401, 401]] and sums.end.tolist() == [[430, 430], [432, 432]]
    assert sums.communicates and not forward.communicates and forward.start.tolist() == [[200, 200], [201, 201]]
    assert made.steps is not None and made.steps.numbers == (5, 7) and made.steps.begins.tolist() == [1000, 3000]
    assert made.steps.ranks == {(0, 0): 0, (0, 1): 1, (1, 0): 2, (1, 1): 3}
    send = made.operations[Operation("forward-send", 0, 0)]
    assert (send.serves, send.message, send.chunk) == (0, 0, 0) and made.shape == (2, 2)
    assert made.members(Operation("forward-send", 0, 0)) == (
        Operation("forward-recv", 0, 1),
        Operation("forward-send", 0, 0),
    )


def test_a_step_counts_when_every_worker_recorded_everything() -> None:
    kernels, calls = workers_of(9, 5000, leave_out=3)
    made = read(kernels=kernels, collectives=calls)
    assert made.steps is not None and made.steps.numbers == (5, 7)
    with pytest.raises(PacelineError, match="no step holds all operations"):
        read_operation_graph(FakeRun(ranks=RANKS))


def test_operations_of_a_name_are_numbered_by_their_begin_and_chunks_follow_the_name() -> None:
    kernels = [row(0, 1, name, start, 5) for name, start in (("forward-compute #1", 40), ("forward-compute #0", 20))]
    run = FakeRun(ranks=RANKS[:1], kernels=kernels)
    found = read_operation_graph(run).operations
    assert {spelled(key): (times.start[0, 0], times.chunk) for key, times in found.items()} == {
        "forward-compute 0 @0": (0, 0),
        "forward-compute 1 @0": (20, 1),
    }


@pytest.mark.parametrize(("at", "read_in"), [(99, set()), (100, {1}), (199, {1}), (200, {2}), (299, {2}), (300, set())])
def test_collecting_garbage_belongs_to_the_step_it_begins_in(at: int, read_in: set[int]) -> None:
    """Where only some steps collect, only these are whole."""
    steps = [{"rank": 0, "step": number, "start": 100 * number, "end": 100 * number + 100} for number in (1, 2)]
    kernels = [row(0, number, "forward-compute", 100 * number, 50) for number in (1, 2)]
    events = [{"rank": 0, "name": name, "start": at, "duration": 7} for name in ("gc", "dataloader")]
    made = read_operation_graph(FakeRun(ranks=RANKS[:1], steps=steps, kernels=kernels, events=events))
    assert made.steps is not None and set(made.steps.numbers) == (read_in or {1, 2})
    if read_in:
        collected = made.operations[Operation("gc", 0, 0)]
        assert not collected.communicates and float((collected.end - collected.start)[0, 0]) == 7
    assert np.isfinite(next(iter(made.operations.values())).start).all()


def test_messages_at_the_edges_of_an_interleaved_model_have_no_other_side() -> None:
    """Two stages hold two chunks each: chunk 0 of stage 0 receives nothing, chunk 1 of stage 1 sends nothing."""
    kernels = [
        row(rank, 1, f"forward-compute #{chunk}", 100 * (2 * chunk + rank), 50) for rank in (0, 1) for chunk in (0, 1)
    ]
    calls = []
    for rank in (0, 1):
        for chunk in (0, 1):
            at = 100 * (2 * chunk + rank)
            calls += [
                row(rank, 1, f"forward-recv #{chunk}", at - 20, 20),
                row(rank, 1, f"forward-send #{chunk}", at + 50, 20),
            ]
    ranks = [{"rank": rank, "stage": rank} for rank in (0, 1)]
    made = read_operation_graph(FakeRun(ranks=ranks, kernels=kernels, collectives=calls))
    numbers = {spelled(key): times.message for key, times in made.operations.items() if "compute" not in key.name}
    assert numbers == {
        "forward-recv 0 @0": None,
        "forward-recv 1 @0": 0,
        "forward-send 0 @0": 0,
        "forward-send 1 @0": 1,
        "forward-recv 0 @1": 0,
        "forward-recv 1 @1": 1,
        "forward-send 0 @1": 0,
        "forward-send 1 @1": None,
    }
    assert Operation("forward-recv", 1, 0) in made.members(Operation("forward-send", 0, 1))
