"""Hyperparameters of a workload, from arguments --name=value; the defaults suit a CPU."""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Callable, Dict, Sequence

from paceline.core.errors import UsageError

MODELS = ("resnet50", "bert")
_CHOICES = {
    "framework": ("torch", "mindspore"),
    "device": ("auto", "cpu"),
    "precision": ("float32", "bfloat16"),
}
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


@dataclass(frozen=True)
class WorkloadOptions:
    """The names are those of job.yaml's hyperparameters."""

    model: str
    train_url: Path = Path("output")
    framework: str = "torch"
    device: str = "auto"
    """auto: the card if the framework sees one."""
    precision: str = "float32"
    epochs: int = 4
    train_samples: int = 512
    """Of all ranks; an epoch is one pass over them."""
    eval_samples: int = 256
    batch_size: int = 16
    """Of one rank."""
    learning_rate: float = 0.002
    warmup_steps: int = 2
    """Not counted in the throughput."""
    target_accuracy: float = 0.0
    """Training ends at the evaluation that reaches it; 0: after all epochs."""
    seed: int = 1
    # ResNet-50
    image_size: int = 32
    classes: int = 10
    width: int = 8
    """Channels of the first stage; ResNet-50 has 64."""
    # BERT
    hidden_size: int = 64
    layers: int = 2
    heads: int = 4
    seq_length: int = 32
    vocab_size: int = 64
    # a recorded run
    profile: bool = False
    profile_start_step: int = 3
    profile_stop_step: int = 8


def parse_options(model: str, arguments: Sequence[str]) -> WorkloadOptions:
    """
    >>> parse_options("bert", ["--layers=3", "--profile=true"]).layers
    3
    """
    if model not in MODELS:
        raise UsageError(f"unknown workload {model!r}", hint=f"there are: {', '.join(MODELS)}")
    values = {name: _value(name, text) for name, text in _pairs(arguments).items()}
    options = WorkloadOptions(model, **values)
    if options.hidden_size % options.heads:
        raise UsageError(f"hidden_size {options.hidden_size} is not a multiple of heads {options.heads}")
    if options.image_size % 32:
        raise UsageError(f"image_size {options.image_size} is not a multiple of 32")
    return options


def _pairs(arguments: Sequence[str]) -> Dict[str, str]:
    """--name=value or --name value; `data_url` is accepted and not used: the data is made here."""
    found: Dict[str, str] = {}
    words = list(arguments)
    while words:
        name, equals, value = words.pop(0).partition("=")
        if not name.startswith("--") or not (equals or words):
            raise UsageError(f"{name}: expected --name=value")
        found[name[2:]] = value if equals else words.pop(0)
    found.pop("data_url", None)
    return found


def _value(name: str, text: str) -> Any:
    known = {field.name: field for field in fields(WorkloadOptions) if field.name != "model"}
    if name not in known:
        near = get_close_matches(name, known, 1)
        raise UsageError(f"unknown hyperparameter '{name}'" + (f", did you mean '{near[0]}'?" if near else ""))
    if name in _CHOICES and text not in _CHOICES[name]:
        raise UsageError(f"{name} {text!r}: expected one of {', '.join(_CHOICES[name])}")
    convert: Callable[[str], Any] = type(known[name].default)
    convert = Path if isinstance(known[name].default, Path) else _boolean if convert is bool else convert
    try:
        found = convert(text)
    except ValueError:
        raise UsageError(f"{name}: {text!r} is not {'true or false' if convert is _boolean else 'a number'}") from None
    if isinstance(found, int) and not isinstance(found, bool) and found < (0 if name == "warmup_steps" else 1):
        raise UsageError(f"{name}: {found} is too small")
    return found


def _boolean(text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise ValueError(text)
    return text.lower() in _TRUE
