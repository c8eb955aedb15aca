"""Run modes: train, finetune, eval, predict, or only writing strategy files."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.checkpoint.formats.mindformers_v2 import TRACKER
from paceline.checkpoint.strategy.strategy import read_strategy
from paceline.core.errors import UsageError
from paceline.training.monitor import Monitor, Monitored
from paceline.training.monitors.from_yaml import monitors_from_config
from paceline.training.reference.learner import Learner, Optimizer, Score, data_ranks
from paceline.training.reference.mindrecord import mindrecord_blocks, mindrecord_files
from paceline.training.reference.parallel import ParallelSizes
from paceline.training.reference.shape import Lora, ModelShape, initial_values
from paceline.training.reference.text_data import SHIPPED, VOCABULARY, TextBlocks, text_blocks
from paceline.training.runner.config import RunConfig
from paceline.training.runner.initial_weights import (
    Arrays,
    read_files,
    read_layout,
    read_own_slices,
    read_weights,
    select_resume_point,
)
from paceline.training.runner.mindformers_file import is_model_name, lora_targets
from paceline.training.runner.results import LossCurveMonitor, ThroughputMonitor, write_number
from paceline.training.runner.save_strategy import model_strategy, parallel_sizes, write_strategy_file
from paceline.training.runner.schedule import LossScaler
from paceline.training.runner.tensor_dump import TensorDump, dump_settings
from paceline.training.runner.training_loop import Batches, TrainingProgress, train
from paceline.training.session.cloud_session import CloudSession, cloud_session
from paceline.training.training_state import TrainingState

if TYPE_CHECKING:
    from paceline.profiling import Recorder

_log = logging.getLogger("paceline")
_LARGEST_EXPONENT = 700.0
_RESTART_HINT = "start a new training from its weights: --run_mode finetune --resume_training False"


def run(config: RunConfig) -> None:
    """Run one rank; its outputs are uploaded to `remote_save_url` when this returns."""
    inputs, requirements = _inputs(config), requirements_file(config.requirements)
    with cloud_session(config.output_dir or None, config.remote_save_url, inputs, requirements=requirements) as session:
        shape = model_shape(config)
        sizes = parallel_sizes(config.parallel_config, session.ranks.world_size)
        if config.only_save_strategy or not sizes.is_data_only:
            path = session.outputs.strategy / f"ckpt_strategy_rank_{session.ranks.rank}.ckpt"
            write_strategy_file(path, shape, sizes, session.ranks.rank)
            _log.info("%s written", path)
        if config.only_save_strategy:
            return
        learner = make_learner(config, shape, sizes)
        try:
            _run(config, session, learner, shape)
        finally:
            learner.close()


def requirements_file(wanted: bool | str) -> str | Path | bool:
    """Off ModelArts nothing is installed unasked: the environment is the user's."""
    if wanted is not True:
        return wanted
    code = os.environ.get("MA_JOB_DIR")
    places = [Path(code), *sorted(Path(code).glob("*/"))] if code else []
    return next((place / "requirements.txt" for place in places if (place / "requirements.txt").is_file()), False)


def model_shape(config: RunConfig) -> ModelShape:
    model = config.model.model_config
    if model.hidden_size % model.num_heads:
        raise UsageError(f"hidden_size {model.hidden_size} is not divisible by num_heads {model.num_heads}")
    if model.vocab_size < VOCABULARY:
        raise UsageError(f"vocab_size {model.vocab_size} is too small: tokens are bytes", hint=f"at least {VOCABULARY}")
    pet = model.pet_config
    lora = Lora(pet.lora_rank, pet.lora_alpha, pet.lora_dropout, lora_targets(pet.target_modules)) if pet else None
    return ModelShape(
        model.vocab_size, model.seq_length, model.hidden_size, model.num_layers, model.num_heads, model.dropout, lora
    )


def make_learner(config: RunConfig, shape: ModelShape, sizes: ParallelSizes | None = None) -> Learner:
    """The reference model for `framework`, or your own class: model.arch.type "package.module:Class"."""
    wrapper, optimizer = config.runner_wrapper, config.optimizer
    clip = wrapper.max_grad_norm if wrapper.use_clip_grad else 0.0
    adam = Optimizer(optimizer.weight_decay, optimizer.beta1, optimizer.beta2, optimizer.eps, clip)
    own = str(config.model.arch.get("type", ""))
    if sizes is not None and not sizes.is_data_only:
        return _parallel_learner(config, shape, adam, sizes)
    if ":" in own:
        return _custom_learner(own, shape, adam, config.seed)
    try:
        return _reference(config.framework)(shape, adam, config.seed)
    except ModuleNotFoundError as error:
        if error.name != config.framework:
            raise
        raise UsageError(
            f"{error.name} is not installed", hint=f"pip install {error.name}, or use --framework"
        ) from error


def _parallel_learner(config: RunConfig, shape: ModelShape, adam: Optimizer, sizes: ParallelSizes) -> Learner:
    if config.framework != "torch" or ":" in str(config.model.arch.get("type", "")):
        raise UsageError(
            "only the reference model in torch trains tensor- or pipeline-parallel",
            hint="set parallel_config.model_parallel and pipeline_stage to 1, or --framework torch",
        )
    if config.run_mode in ("eval", "predict") or config.do_eval:
        raise UsageError(
            f"run_mode {config.run_mode} with do_eval {config.do_eval}: a sharded model only trains here",
            hint="evaluate its checkpoint with model_parallel 1 and --src_strategy_path_or_dir STRATEGY",
        )
    from paceline.training.reference.gpt2_torch_parallel import ParallelTorchLearner

    return ParallelTorchLearner(shape, adam, config.seed, sizes)


def _reference(framework: str) -> Callable[[ModelShape, Optimizer, int], Learner]:
    if framework == "mindspore":
        from paceline.training.reference.gpt2_mindspore import MindSporeLearner

        return MindSporeLearner
    from paceline.training.reference.gpt2_torch import TorchLearner

    return TorchLearner


def _custom_learner(where: str, shape: ModelShape, optimizer: Optimizer, seed: int) -> Learner:
    module, _, name = where.partition(":")
    try:
        made: Learner = getattr(import_module(module), name)(shape, optimizer, seed)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"model.arch.type {where}: {error}", hint="expected package.module:Class, a Learner"
        ) from error
    return made


def _inputs(config: RunConfig) -> Mapping[str, str | Path | None]:
    """Inputs of this mode, by the argument names of MindFormers."""
    found: dict[str, str | Path | None] = {}
    if config.run_mode in ("train", "finetune"):
        found["train_dataset_dir"] = config.train_dataset.data_loader.dataset_dir or None
    if config.run_mode == "eval" or config.do_eval:
        # Default: evaluate on the training text.
        text = config.eval_dataset.data_loader.dataset_dir or config.train_dataset.data_loader.dataset_dir
        found["eval_dataset_dir"] = text or None
    if not config.resume_training:
        found["load_checkpoint"] = _initial_weights(config) or None
    return {name: where for name, where in found.items() if where and not config.only_save_strategy}


def _initial_weights(config: RunConfig) -> str:
    """Where weights are loaded from; as in MindFormers, run_mode train does not load model_config.checkpoint_name_or_path."""
    where = config.load_checkpoint
    if not where and config.run_mode != "train":
        where = config.model.model_config.checkpoint_name_or_path
    if is_model_name(where) and not Path(where).exists():
        raise UsageError(
            f"{where!r} is the name of a model that MindFormers downloads, and no file",
            hint="pass weights: --load_checkpoint FILE, DIRECTORY or obs://…",
        )
    return where


def _run(config: RunConfig, session: CloudSession, learner: Learner, shape: ModelShape) -> None:
    progress = _start(config, session, learner, shape)
    if config.run_mode == "predict":
        from paceline.training.runner.predict import predict

        predict(config, session.outputs.root, learner)
        return
    if config.run_mode in ("train", "finetune"):
        loader = config.train_dataset.data_loader
        blocks = _blocks(session.inputs.get("train_dataset_dir"), shape, most=loader.num_samples)
        batches = Batches(blocks, config, *data_ranks(learner))
        with _recorder(config, session, progress) as recorder:
            train(config, learner, batches, progress, _monitors(config, session, learner), recorder)
    if config.run_mode == "eval" or config.do_eval:
        _evaluate(config, session, learner, shape)


def _start(config: RunConfig, session: CloudSession, learner: Learner, shape: ModelShape) -> TrainingProgress:
    """Load weights; returns the progress from which to continue."""
    progress = TrainingProgress(0, LossScaler.begin(config.runner_wrapper.scale_sense))
    weights: Arrays = dict(initial_values(shape, config.seed))
    if config.resume_training:
        saved = _resumed(config, session, learner)
        if saved is not None:
            _restore(learner, saved)
            _continue_from(config, learner, progress, saved)
            return progress
    elif "load_checkpoint" in session.inputs:
        where, strategy = str(session.inputs["load_checkpoint"]), config.src_strategy_path_or_dir
        own = {} if strategy or data_ranks(learner)[1] == learner.world_size else read_own_slices(where, learner.rank)
        weights |= own or read_weights(where, weights, strategy)
    elif config.run_mode != "train":
        raise UsageError(
            f"run_mode {config.run_mode} needs weights", hint="pass --load_checkpoint FILE, DIRECTORY or obs://…"
        )
    learner.load_weights(weights)
    return progress


def _restore(learner: Learner, saved: Arrays) -> None:
    learner.load_weights(saved)
    try:
        learner.load_optimizer_state(saved)
    except KeyError as error:
        raise UsageError(
            f"{error.args[0]} not found in the checkpoint: it was saved by another framework, or other parameters were trained",
            hint=_RESTART_HINT,
        ) from error


def _resumed(config: RunConfig, session: CloudSession, learner: Learner) -> Arrays | None:
    where = config.load_checkpoint
    own = not where
    if own:
        # A restarted job resumes from its own outputs: the local ones, or those it uploaded.
        local = session.outputs.root / "checkpoint"
        remote = session.remote_save_url
        markers = (local / f"rank_{learner.rank}" / "meta.json", local / TRACKER)
        has_own = any(marker.exists() for marker in markers)
        everywhere = int(learner.sum_over_ranks(np.array([float(has_own)]))[0]) == learner.world_size
        where = str(local) if everywhere or not remote else f"{remote}/checkpoint"
    choice = select_resume_point(where, learner, config.resume_training, own=own)
    if choice is None:
        _log.warning("%s: no checkpoint found; starting from scratch", where)
        return None
    strategy = config.src_strategy_path_or_dir or _strategy_beside(choice.location)
    keys = choice.files.get(learner.rank)
    if learner.rank == 0:
        _log.info("resuming from %s, checkpoint %d_%d", choice.location, choice.epoch, choice.step)
    if keys is None or len(choice.files) != learner.world_size or not _has_same_layout(config, strategy, learner):
        return read_layout(choice, strategy)
    return read_files(choice.location, keys)


def _strategy_beside(checkpoints: str) -> str:
    """The strategy files that a run with slices wrote beside its checkpoints, if this is a directory."""
    found = Path(checkpoints).parent / "strategy"
    return str(found) if any(found.glob("ckpt_strategy_rank_*")) else ""


def _has_same_layout(config: RunConfig, strategy: str, learner: Learner) -> bool:
    """Whether every rank resumes with exactly what it saved itself."""
    saved = read_strategy(strategy) if strategy else None
    data = data_ranks(learner)[1]
    if saved is None:
        return data == learner.world_size
    sizes = parallel_sizes(config.parallel_config, learner.world_size)
    return saved.stages == model_strategy(model_shape(config), sizes).stages


def _continue_from(config: RunConfig, learner: Learner, progress: TrainingProgress, saved: Arrays) -> None:
    if "global_step" not in saved:
        raise UsageError(
            "the checkpoint contains no global_step: it was not written by CheckpointMonitor", hint=_RESTART_HINT
        )
    progress.step = int(saved["global_step"])
    progress.scale.value = float(saved.get("loss_scale", progress.scale.value))
    progress.scale.good_steps = int(saved.get("loss_scale_good_steps", 0))
    runner = config.runner_config
    now = runner.batch_size * runner.gradient_accumulation_steps * data_ranks(learner)[1]
    before = int(saved.get("global_batch_size", now))
    if before != now:
        progress.step = progress.step * before // now
        _log.warning("the global batch size changed from %d to %d: continuing at step %d", before, now, progress.step)


def _monitors(config: RunConfig, session: CloudSession, learner: Learner) -> list[Monitor]:
    """Measuring monitors come first, so that they do not count the time of the others."""
    found: list[Monitor] = [ThroughputMonitor(session.outputs.root, _facts(config))]
    if session.ranks.rank == 0:
        found.append(LossCurveMonitor(session.outputs.log(0) / "loss.csv"))
    dump = dump_settings() if config.framework == "torch" else None
    if dump is not None:
        found.append(TensorDump(dump, learner.model, session.ranks.local_rank))
    return found + monitors_from_config(
        _without_idle_uploads(config.callbacks, session), session, profile=config.profile_keys
    )


def _facts(config: RunConfig) -> dict[str, object]:
    """Of the reference GPT-2: FLOPs per token, forward and backward = 3 · (layers · (24 · h² + 4 · s · h) + 2 · h · V)."""
    model = config.model.model_config
    if ":" in str(config.model.arch.get("type", "")):
        return {"framework": config.framework, "seed": config.seed}  # a class of the user's own
    hidden, length = model.hidden_size, model.seq_length
    per_token = model.num_layers * (24.0 * hidden * hidden + 4.0 * length * hidden) + 2.0 * hidden * model.vocab_size
    return {
        "model": "gpt2",
        "framework": config.framework,
        "seed": config.seed,
        "tokens_per_sample": length,
        "flops_per_sample": 3 * length * per_token,
    }


def _without_idle_uploads(callbacks: Sequence[Mapping[str, Any]], session: CloudSession) -> list[Mapping[str, Any]]:
    """Drop ObsMonitors without a target, if the session uploads nothing either."""
    return [each for each in callbacks if session.remote_save_url or not _is_upload(each)]


@contextmanager
def _recorder(config: RunConfig, session: CloudSession, progress: TrainingProgress) -> Iterator[Recorder | None]:
    """The light recorder; analyse with paceline diagnose output/light."""
    if not config.record:
        yield None
        return
    from paceline.profiling import Recorder

    ranks = session.ranks
    path = session.outputs.root / "light"
    with Recorder(path, rank=ranks.rank, world_size=ranks.world_size, first_step=progress.step + 1) as recorder:
        yield recorder


def _is_upload(callback: Mapping[str, object]) -> bool:
    return callback.get("type") == "ObsMonitor" and not callback.get("target_dir")


def _evaluate(config: RunConfig, session: CloudSession, learner: Learner, shape: ModelShape) -> None:
    blocks = _blocks(session.inputs.get("eval_dataset_dir"), shape, part="valid")
    monitors = monitors_from_config(_without_idle_uploads(config.eval_callbacks, session), session)
    score = _score(blocks, learner, config.runner_config.batch_size, monitors)
    loss, accuracy = score.loss / score.tokens, score.correct / score.tokens
    if learner.rank == 0:
        perplexity = math.exp(loss) if loss < _LARGEST_EXPONENT else math.inf
        _log.info(
            "eval: loss %.4f, perplexity %.3f, accuracy %.2f %% of %d tokens",
            loss,
            perplexity,
            100 * accuracy,
            score.tokens,
        )
        root = session.outputs.root
        write_number(root / "accuracy.json", accuracy)
        result = {"loss": loss, "perplexity": perplexity, "accuracy": accuracy, "tokens": score.tokens}
        (root / "eval_result.json").write_text(json.dumps(result) + "\n")


def _score(blocks: TextBlocks, learner: Learner, batch: int, monitors: Sequence[Monitor]) -> Score:
    """Score every block once, distributed over the ranks; for eval_callbacks, each batch is a step."""
    own = np.arange(learner.rank, blocks.count, learner.world_size)
    sums = np.zeros(3)
    state = TrainingState(learner.rank, learner.world_size, total_steps=-(-len(own) // batch), batch_size=batch)
    with Monitored(monitors, state) as loop:
        for first in range(0, len(own), batch):
            loop.step_begin()
            score = learner.score(blocks.take(own[first : first + batch]))
            sums += (score.loss, score.correct, score.tokens)
            loop.step_end(loss=score.loss / score.tokens)
        loop.epoch_end()
    loss, correct, tokens = learner.sum_over_ranks(sums)
    return Score(float(loss), int(correct), int(tokens))


def _blocks(where: Path | None, shape: ModelShape, *, part: str = "train", most: int | None = None) -> TextBlocks:
    if where is None:
        _log.info("no dataset_dir is set: using the text that is shipped with Paceline")
    records = mindrecord_files(where) if where is not None else []
    if records:
        return mindrecord_blocks(records, shape.seq_length, shape.vocab_size, most)
    return text_blocks(where or SHIPPED, shape.seq_length, part=part, most=most)
