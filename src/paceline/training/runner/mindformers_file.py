"""A config file of MindFormers (0.8 to 2.1): what its keys are called here, and which have no meaning here."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Dict, Tuple

from paceline.core.errors import UsageError
from paceline.training.runner.config import IGNORED_KEYS

_SCHEDULES = {
    "ConstantWarmUpLR": "constant",
    "constant_with_warmup": "constant",
    "LinearWithWarmUpLR": "linear",
    "CosineWithWarmUpLR": "cosine",
    "CosineWithRestartsAndWarmUpLR": "cosine_with_restarts",
    "PolynomialWithWarmUpLR": "polynomial",
}
_RENAMED: Dict[Tuple[str, ...], str] = {
    ("lr_scheduler",): "lr_schedule",
    ("train_dataset", "dataloader"): "data_loader",
    ("eval_dataset", "dataloader"): "data_loader",
    ("model", "model_config", "hidden_dropout_rate"): "dropout",
    ("model", "model_config", "hidden_dropout"): "dropout",
    ("model", "model_config", "num_hidden_layers"): "num_layers",
    ("model", "model_config", "num_attention_heads"): "num_heads",
}
_LAYERS = {
    "query": "attention.dense1",
    "key": "attention.dense2",
    "value": "attention.dense3",
    "output": "attention.projection",
    "wide": "output.mapping",
    "narrow": "output.projection",
}
"""Linear layers of the reference model → of MindFormers' GPT-2."""


def is_mindformers_file(values: dict[str, Any]) -> bool:
    """Whether a section is there that only MindFormers has."""
    return any(name in IGNORED_KEYS for name in values)


def with_our_names(values: dict[str, Any]) -> dict[str, Any]:
    """The same config in the names of RunConfig; `values` is changed."""
    for path, name in _RENAMED.items():
        section = _section(values, path[:-1])
        if path[-1] in section:
            value = section.pop(path[-1])
            section.setdefault(name, value)
    optimizer = _section(values, ("optimizer",))
    betas = optimizer.get("betas")
    if isinstance(betas, list) and len(betas) == 2:
        optimizer.pop("betas")
        optimizer.setdefault("beta1", betas[0])
        optimizer.setdefault("beta2", betas[1])
    schedule = _section(values, ("lr_schedule",))
    if "type" in schedule:
        schedule["type"] = _SCHEDULES.get(str(schedule["type"]), schedule["type"])
    wrapper = _section(values, ("runner_wrapper",))
    if isinstance(wrapper.get("scale_sense"), (int, float)):
        wrapper["scale_sense"] = {"loss_scale_value": wrapper["scale_sense"]}
    return values


def without_nulls(values: Any) -> Any:
    """What a file leaves open has its default."""
    if isinstance(values, dict):
        return {name: without_nulls(value) for name, value in values.items() if value is not None}
    return values


def lora_targets(wanted: str | Sequence[str]) -> tuple[str, ...]:
    """Layers that get LoRA matrices: a list of names, or a regular expression for names here or in MindFormers' GPT-2.

    >>> lora_targets(".*dense1.*|.*dense3.*")
    ('query', 'value')
    """
    if not isinstance(wanted, str):
        return tuple(wanted)
    matches = _full_match(wanted)
    found = tuple(ours for ours, theirs in _LAYERS.items() if matches(ours) or matches(theirs))
    if not found:
        raise UsageError(
            f"target_modules {wanted!r} matches no layer", hint=f"layers: {', '.join(_LAYERS)}, or {_LAYERS['query']} …"
        )
    return found


def is_model_name(where: str) -> bool:
    """Whether MindFormers would take it as the name of a model to download.

    >>> is_model_name("gpt2"), is_model_name("out/gpt2"), is_model_name("gpt2.ckpt")
    (True, False, False)
    """
    return bool(re.fullmatch(r"[A-Za-z][\w-]*", where))


def _full_match(pattern: str) -> Callable[[str], bool]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"target_modules {pattern!r}: {error}") from error
    return lambda name: compiled.fullmatch(name) is not None


def _section(values: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """A section of the file; an empty one, which is not part of it, if it has none."""
    at: Any = values
    for name in path:
        at = at.get(name) if isinstance(at, dict) else None
    return at if isinstance(at, dict) else {}
