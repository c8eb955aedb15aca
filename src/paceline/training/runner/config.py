"""RunConfig: keys of the YAML file of a run, named as in MindFormers."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Optional, Tuple, Union

import msgspec
from typing_extensions import Annotated

IGNORED_KEYS = frozenset(
    {
        "auto_tune",
        "checkpoint",
        "autotune_per_step",
        "cpu_affinity",
        "eval_dataset_task",
        "filepath_prefix",
        "layer_decay",
        "layer_scale",
        "lr_scale",
        "lr_scale_factor",
        "metric",
        "micro_batch_interleave_num",
        "moe_config",
        "processor",
        "recompute_config",
        "swap_config",
        "training",
        "train_dataset_task",
        "trainer",
    }
)
"""Sections of MindFormers' files that do not apply to this model: listed in one warning."""


Positive = Annotated[int, msgspec.Meta(ge=1)]
Probability = Annotated[float, msgspec.Meta(ge=0, lt=1)]


class ConfigSection(msgspec.Struct, frozen=True, kw_only=True):
    """Unknown keys are rejected before conversion, with line number and the nearest known key."""


class RunnerConfig(ConfigSection, frozen=True):
    epochs: Positive = 1
    batch_size: Positive = 4
    sink_mode: bool = False
    sink_size: Positive = 1
    gradient_accumulation_steps: Positive = 1


class DataLoader(ConfigSection, frozen=True):
    type: str = "TextBlocks"
    dataset_dir: str = ""
    """A text file, a directory of text files, s3:// or obs://; empty: the text shipped with Paceline."""
    shuffle: bool = True
    num_samples: Optional[Positive] = None


class Dataset(ConfigSection, frozen=True):
    data_loader: DataLoader = DataLoader()


class PetConfig(ConfigSection, frozen=True):
    pet_type: Literal["lora"] = "lora"
    lora_rank: Positive = 8
    lora_alpha: float = 16.0
    lora_dropout: Probability = 0.0
    target_modules: Union[str, Tuple[str, ...]] = ("query", "value")
    """Names of linear layers, or a regular expression as in MindFormers."""


class ModelConfig(ConfigSection, frozen=True):
    type: str = "GPT2Config"
    vocab_size: int = 256
    seq_length: Positive = 64
    hidden_size: Positive = 64
    num_layers: Positive = 2
    num_heads: Positive = 4
    dropout: Probability = 0.1
    checkpoint_name_or_path: str = ""
    pet_config: Optional[PetConfig] = None


class ModelSection(ConfigSection, frozen=True):
    model_config: ModelConfig = ModelConfig()
    arch: Dict[str, Any] = {}


class LrSchedule(ConfigSection, frozen=True):
    type: Literal["cosine", "cosine_with_restarts", "linear", "polynomial", "constant"] = "cosine"
    """MindFormers' class names (PolynomialWithWarmUpLR, …) are accepted too."""
    learning_rate: float = 1e-3
    lr_end: float = 0.0
    warmup_steps: Annotated[int, msgspec.Meta(ge=0)] = 0
    warmup_ratio: Optional[Annotated[float, msgspec.Meta(ge=0, le=1)]] = None
    """Of the total; instead of warmup_steps."""
    warmup_lr_init: float = 0.0
    total_steps: int = -1
    """-1: those of the training."""
    power: float = 1.0
    num_cycles: float = 0.5


class OptimizerConfig(ConfigSection, frozen=True):
    type: str = "AdamW"
    weight_decay: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


class LossScale(ConfigSection, frozen=True):
    loss_scale_value: Annotated[float, msgspec.Meta(gt=0)] = 65536.0
    scale_factor: Positive = 2
    scale_window: Positive = 1000


class RunnerWrapper(ConfigSection, frozen=True):
    type: str = ""
    scale_sense: LossScale = LossScale()
    use_clip_grad: bool = True
    max_grad_norm: float = 1.0


class Parallel(ConfigSection, frozen=True):
    parallel_mode: Union[int, str] = 0
    gradients_mean: bool = True
    enable_alltoall: bool = False
    full_batch: bool = False
    search_mode: str = ""
    enable_parallel_optimizer: bool = False
    strategy_ckpt_save_file: str = ""
    strategy_ckpt_config: Dict[str, Any] = {}
    parallel_optimizer_config: Dict[str, Any] = {}


class ParallelConfig(ConfigSection, frozen=True):
    data_parallel: Optional[Positive] = None
    model_parallel: Positive = 1
    pipeline_stage: Positive = 1
    micro_batch_num: int = 1
    vocab_emb_dp: bool = True
    expert_parallel: int = 1
    gradient_aggregation_group: int = 4
    use_seq_parallel: bool = False
    optimizer_shard: bool = False


class Context(ConfigSection, frozen=True):
    mode: int = 0
    device_target: str = "CPU"
    device_id: int = 0
    max_device_memory: str = ""
    max_call_depth: int = 0
    enable_graph_kernel: bool = False
    save_graphs: bool = False
    save_graphs_path: str = ""


class RunConfig(ConfigSection, frozen=True):
    framework: Literal["torch", "mindspore"] = "torch"
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    requirements: Union[bool, str] = True
    """A file for pip, once per host; True: requirements.txt of ModelArts' code directory, if it has one; False: none."""
    run_mode: Literal["train", "finetune", "eval", "predict"] = "train"
    output_dir: str = ""
    """Empty: ./output, or the large disk of ModelArts."""
    load_checkpoint: str = ""
    src_strategy_path_or_dir: str = ""
    auto_trans_ckpt: bool = False
    only_save_strategy: bool = False
    resume_training: Union[bool, str] = False
    """True, False, or the name of a checkpoint file."""
    remote_save_url: str = ""
    use_parallel: bool = False
    do_eval: bool = False
    runner_config: RunnerConfig = RunnerConfig()
    model: ModelSection = ModelSection()
    lr_schedule: LrSchedule = LrSchedule()
    optimizer: OptimizerConfig = OptimizerConfig()
    runner_wrapper: RunnerWrapper = RunnerWrapper()
    train_dataset: Dataset = Dataset()
    eval_dataset: Dataset = Dataset()
    callbacks: List[Dict[str, Any]] = []
    eval_callbacks: List[Dict[str, Any]] = []
    parallel: Parallel = Parallel()
    parallel_config: ParallelConfig = ParallelConfig()
    context: Context = Context()
    record: bool = False
    """Turn on the light recorder; cheap enough to be always on."""
    profile: bool = False
    profile_start_step: int = 1
    profile_stop_step: int = 10
    init_start_profile: bool = False
    profile_communication: bool = False
    profile_memory: bool = True
    profile_output: str = ""
    profiler_level: int = 0
    with_stack: bool = False
    data_simplification: bool = True
    profile_rank_ids: Optional[List[int]] = None
    profile_pipeline: bool = False
    mstx: bool = False
    predict_data: List[str] = []
    predict_batch_size: Positive = 1
    predict_length: Positive = 64
    do_sample: bool = False
    temperature: float = 1.0
    strategy_load_checkpoint: str = ""

    @property
    def profile_keys(self) -> dict[str, Any]:
        """Keys for ProfileMonitor: the steps, and options that differ from the defaults."""
        always = ("profile", "profile_start_step", "profile_stop_step")
        asked = [name for name in _PROFILE if getattr(self, name) != getattr(_DEFAULTS, name)]
        return {name: getattr(self, name) for name in (*always, *asked)}


_DEFAULTS = RunConfig()
_PROFILE = (
    "init_start_profile",
    "profile_communication",
    "profile_memory",
    "profile_output",
    "profiler_level",
    "with_stack",
    "data_simplification",
    "profile_rank_ids",
    "profile_pipeline",
    "mstx",
)
KEYS_WITHOUT_EFFECT = (
    "context.device_id",
    "context.device_target",
    "context.enable_graph_kernel",
    "context.max_call_depth",
    "context.max_device_memory",
    "context.mode",
    "context.save_graphs",
    "context.save_graphs_path",
    "init_start_profile",
    "model.model_config.type",
    "optimizer.type",
    "parallel.enable_alltoall",
    "parallel.enable_parallel_optimizer",
    "parallel.full_batch",
    "parallel.gradients_mean",
    "parallel.parallel_mode",
    "parallel.search_mode",
    "parallel.strategy_ckpt_save_file",
    "parallel_config.gradient_aggregation_group",
    "parallel_config.micro_batch_num",
    "parallel_config.optimizer_shard",
    "parallel_config.use_seq_parallel",
    "parallel_config.vocab_emb_dp",
    "predict_batch_size",
    "profile_pipeline",
    "runner_config.sink_mode",
    "runner_config.sink_size",
    "runner_wrapper.type",
    "strategy_load_checkpoint",
    "train_dataset.data_loader.type",
)
"""Keys of MindFormers for features the reference model does not have: accepted, with a warning if they are changed."""
