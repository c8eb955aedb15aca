"""Use monitors in MindSpore's Model.train: model.train(epochs, data, callbacks=[as_callback(monitors)])."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline.training.monitor import Monitor
from paceline.training.monitor_calls import MonitorCalls
from paceline.training.ranks import Ranks
from paceline.training.training_state import TrainingState


def as_callback(monitors: Sequence[Monitor], *, ranks: Ranks | None = None, initial_step: int = 0) -> Any:
    """A mindspore.Callback; initial_step: global step from which training resumes (Model.train does not report it)."""
    from mindspore.train.callback import Callback

    bridge = _Bridge(list(monitors), ranks or _ranks(), initial_step)

    class PacelineCallback(Callback):  # type: ignore[misc]
        # Not begin, step_end, …: Model.fit also calls those during its evaluation.
        def on_train_begin(self, run_context: Any) -> None:
            bridge.begin(run_context.original_args())

        def on_train_step_begin(self, run_context: Any) -> None:
            bridge.step_begin()

        def on_train_step_end(self, run_context: Any) -> None:
            bridge.step_end(run_context.original_args())

        def on_train_epoch_end(self, run_context: Any) -> None:
            bridge.epoch_end(run_context.original_args())

        def on_train_end(self, run_context: Any) -> None:
            bridge.end()

        def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
            bridge.close(error)

    return PacelineCallback()


class _Bridge:
    """Translates MindSpore's callback parameters to a TrainingState."""

    def __init__(self, monitors: list[Monitor], ranks: Ranks, initial_step: int) -> None:
        self._calls = MonitorCalls(monitors)
        self._first = initial_step
        self._state = TrainingState(ranks.rank, ranks.world_size, step=initial_step, sum_over_ranks=_sum_over_ranks())
        self._parameters: Any = None

    def begin(self, parameters: Any) -> None:
        state = self._state
        self._parameters = parameters
        state.steps_per_epoch = _steps_per_epoch(parameters)
        # MindSpore counts the remaining epochs, and steps from 0.
        state.total_steps = self._first + int(parameters.get("epoch_num") or 0) * state.steps_per_epoch
        state.batch_size = _batch_size(parameters)
        if state.steps_per_epoch:
            state.epoch = self._first // state.steps_per_epoch + 1
        network = parameters.get("network")
        names = {parameter.name for parameter in network.get_parameters()} if network is not None else set()
        state.weights = lambda: self._values(names, inside=True)
        state.optimizer_state = lambda: self._values(names, inside=False)
        trainable = {p.name for p in parameters.train_network.get_parameters() if p.requires_grad}
        state.trainable = trainable.__contains__
        state.loss_of = lambda: _number(_output(self._parameters, 0))
        state.learning_rate_of = lambda: _learning_rate(self._parameters.get("optimizer"))
        self._calls.call("train_begin", state)

    def step_begin(self) -> None:
        self._calls.call("step_begin", self._state)

    def step_end(self, parameters: Any) -> None:
        self._follow(parameters)
        self._calls.call("step_end", self._state)

    def epoch_end(self, parameters: Any) -> None:
        self._follow(parameters)
        self._calls.call("epoch_end", self._state)

    def end(self) -> None:
        self._calls.call("train_end", self._state)

    def close(self, error: BaseException | None) -> None:
        try:
            if error is not None and self._parameters is not None:
                self._calls.call("train_failed", self._state, error)
        finally:
            self._calls.close()

    def _follow(self, parameters: Any) -> None:
        self._parameters = parameters
        self._state.step = self._first + int(parameters.cur_step_num)
        # A resumed training that names no initial_epoch counts its own epochs from 1.
        self._state.epoch = max(int(parameters.cur_epoch_num), self._state.epoch_of_step)
        overflow, scale = _output(parameters, 1), _output(parameters, 2)
        self._state.overflow = bool(overflow.asnumpy()) if overflow is not None else None
        self._state.loss_scale = _number(scale)

    def _values(self, names: set[str], *, inside: bool) -> Mapping[str, Any]:
        found = self._parameters.train_network.get_parameters()
        return {parameter.name: parameter for parameter in found if (parameter.name in names) == inside}


def _ranks() -> Ranks:
    from mindspore.communication import GlobalComm, get_group_size, get_rank

    own = Ranks.from_environment()
    if not GlobalComm.INITED:
        return own
    rank, world = int(get_rank()), int(get_group_size())
    local = min(own.local_size, world)
    return Ranks(rank, world, rank % local, local)


def _sum_over_ranks() -> Callable[[Sequence[float]], Sequence[float]] | None:
    from mindspore.communication import GlobalComm

    from mindspore import Tensor, float32, ops

    if not GlobalComm.INITED:
        return None
    all_reduce = ops.AllReduce()
    return lambda values: [float(each) for each in all_reduce(Tensor(list(values), float32)).asnumpy()]


def _steps_per_epoch(parameters: Any) -> int:
    """With data sinking an "epoch" is sink_size steps (batch_num); also where MindSpore ignores the sink (on a CPU)."""
    dataset = parameters.get("train_dataset")
    if parameters.get("dataset_sink_mode") or dataset is None or not hasattr(dataset, "get_dataset_size"):
        return int(parameters.get("batch_num") or 0)
    return int(dataset.get_dataset_size())


def _batch_size(parameters: Any) -> int:
    dataset = parameters.get("train_dataset")
    return int(dataset.get_batch_size()) if dataset is not None and hasattr(dataset, "get_batch_size") else 1


def _output(parameters: Any, index: int) -> Any:
    """(loss, overflow, loss scale) of a cell with loss scaling; the loss alone otherwise."""
    outputs = parameters.get("net_outputs")
    if isinstance(outputs, (tuple, list)):
        return outputs[index] if index < len(outputs) and hasattr(outputs[index], "asnumpy") else None
    return outputs if index == 0 and hasattr(outputs, "asnumpy") else None


def _number(value: Any) -> float | None:
    return float(value.asnumpy().mean()) if value is not None else None


def _learning_rate(optimizer: Any) -> float | None:
    rate = getattr(optimizer, "learning_rate", None)
    if getattr(optimizer, "dynamic_lr", False) or getattr(optimizer, "is_group_lr", False):
        return None  # a schedule: evaluating it here would run a graph
    # float32: 0.01, not 0.009999999776482582
    return float(f"{_number(rate):.7g}") if hasattr(rate, "asnumpy") else None
