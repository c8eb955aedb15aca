"""The `callbacks:` and `eval_callbacks:` lists of a YAML file as monitors; names as in MindFormers' files, old ones too."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from paceline.errors import UsageError
from paceline.training.monitor import Monitor
from paceline.training.session import CloudSession
from paceline.training.telling import log

_MONITORS = "paceline.training.monitors"
TYPES = {
    "CheckpointMonitor": f"{_MONITORS}.checkpoint:CheckpointMonitor",
    "CheckpointMointor": f"{_MONITORS}.checkpoint:CheckpointMonitor",  # so spelt up to MindFormers r1.1
    "MFLossMonitor": f"{_MONITORS}.loss:MFLossMonitor",
    "ObsMonitor": f"{_MONITORS}.obs:ObsMonitor",
    "ProfileMonitor": f"{_MONITORS}.profile:ProfileMonitor",
    "SummaryMonitor": f"{_MONITORS}.summary:SummaryMonitor",
}
_WITHOUT_EFFECT = {
    "CheckpointMonitor": (
        "config", "keep_checkpoint_per_n_minutes", "saved_network", "enc_mode", "remove_redundancy", "embedding_size",
        "embedding_local_norm_threshold", "use_checkpoint_health_monitor", "health_ckpts_record_dir",
    ),
    "MFLossMonitor": (
        "learning_rate", "micro_batch_num", "micro_batch_interleave_num", "origin_epochs", "dataset_size",
        "initial_epoch", "initial_step", "gradient_accumulation_steps", "device_num", "calculate_per_token_loss",
        "print_separate_loss", "step_interval",
    ),
    "ObsMonitor": ("rank_id", "retry", "retry_time", "log"),
    "SummaryMonitor": (
        "collect_specified_data", "keep_default_action", "custom_lineage_data", "collect_tensor_freq",
        "max_file_size", "export_options",
    ),
}  # fmt: skip
"""Parameters of the originals that need nothing here; taken, and said once where they ask for something."""
_FROM_SESSION = ("outputs", "ranks", "uploader")
_PROFILE = {
    "profile_start_step": "start_step", "profile_stop_step": "stop_step", "profile_output": "output_path",
    "profile_rank_ids": "profile_rank_ids", "profile_communication": "profile_communication",
    "profile_memory": "profile_memory", "profiler_level": "profiler_level", "with_stack": "with_stack",
    "data_simplification": "data_simplification", "mstx": "mstx",
}  # fmt: skip


def monitors_from_config(
    callbacks: Sequence[Mapping[str, Any]], session: CloudSession, *, profile: Mapping[str, Any] | None = None
) -> list[Monitor]:
    """[{"type": "MFLossMonitor", …}, …] → monitors; `profile`: a config's profile* keys. The session closes them at its end."""
    made = [_monitor(entry, session) for entry in callbacks]
    if profile and profile.get("profile"):
        chosen = {_PROFILE[name]: value for name, value in profile.items() if name in _PROFILE and value is not None}
        made.append(_made(TYPES["ProfileMonitor"], "ProfileMonitor", chosen, session))
    session.monitors += made
    return made


def _monitor(entry: Mapping[str, Any], session: CloudSession) -> Monitor:
    options = dict(entry)
    kind = str(options.pop("type", ""))
    where = TYPES.get(kind, kind if ":" in kind else "")
    if not where:
        raise UsageError(
            f"callbacks: type {kind!r} is not known{_nearest(kind, list(TYPES))}",
            hint='one of your own: type: "package.module:Class", a paceline.training.Monitor',
        )
    return _made(where, kind.replace("Mointor", "Monitor"), options, session)


def _made(where: str, name: str, options: dict[str, Any], session: CloudSession) -> Monitor:
    module, _, attribute = where.partition(":")
    try:
        factory = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"callbacks: {where}: {error}") from error
    known = inspect.signature(factory).parameters
    anything = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values())
    for option in list(options):
        if option not in known and option in _WITHOUT_EFFECT.get(name, ()):
            if options.pop(option) not in (None, 0, False, "", "AES-GCM"):
                log.info("%s: %s has no effect here", name, option)
        elif option == "enc_key" and options[option] is None:
            del options[option]
        elif option not in known and not anything:
            public = [each for each in known if each not in _FROM_SESSION]
            raise UsageError(f"{name}: there is no parameter {option!r}{_nearest(option, public)}",
                             hint=f"known: {', '.join(public)}")  # fmt: skip
    given = {each: getattr(session, each) for each in _FROM_SESSION if each in known and each not in options}
    if options.get("target_dir") or options.get("src_dir"):
        given.pop("uploader", None)  # sent elsewhere than the session's outputs
    try:
        monitor = factory(**options, **given)
    except TypeError as error:
        raise UsageError(f"{name}: {error}") from error
    if not isinstance(monitor, Monitor):
        raise UsageError(f"callbacks: {where}: is no paceline.training.Monitor")
    return monitor


def _nearest(word: str, known: Sequence[str]) -> str:
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""
