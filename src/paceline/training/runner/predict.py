"""Generate text token by token: the most likely one, or sampled with a seed (do_sample)."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from paceline.core.errors import UsageError
from paceline.training.reference.learner import Array, Learner
from paceline.training.reference.text_data import decode, encode
from paceline.training.runner.config import RunConfig

_log = logging.getLogger("paceline")
RESULT = "text_generation_result.txt"


def predict(config: RunConfig, root: Path, learner: Learner) -> None:
    """Continue each prompt in predict_data (texts, or files with one text per line); rank 0 writes the results."""
    if learner.rank:
        return
    prompts = [line for each in config.predict_data for line in _prompts(each)]
    if not prompts:
        raise UsageError("predict_data is empty", hint='pass prompts: --predict_data "The slowest rider"')
    random = np.random.default_rng(config.seed)
    texts = [continue_text(prompt, config, learner, random) for prompt in prompts]
    root.mkdir(parents=True, exist_ok=True)
    (root / RESULT).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    for text in texts:
        _log.info("%s", text)


def continue_text(prompt: str, config: RunConfig, learner: Learner, random: np.random.Generator) -> str:
    window = config.model.model_config.seq_length
    tokens = encode(prompt)
    for _ in range(config.predict_length):
        logits = learner.next_logits(tokens[None, -window:])[0]
        tokens = np.append(tokens, _next(logits, config, random))
    return decode(tokens)


def _next(logits: Array, config: RunConfig, random: np.random.Generator) -> int:
    if not config.do_sample:
        return int(logits.argmax())
    scaled = logits.astype(np.float64) / max(config.temperature, 1e-6)
    weights = np.exp(scaled - scaled.max())
    return int(random.choice(len(weights), p=weights / weights.sum()))


def _prompts(each: str) -> list[str]:
    """Lines of a file, or the text itself; empty lines are skipped."""
    path = Path(each)
    is_file = len(each) < 256 and path.is_file()
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if is_file else [each]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"predict_data: {path}: cannot be read as text: {error}") from error
    return [line for line in lines if line]
