"""Create monitors from the `callbacks:` and `eval_callbacks:` lists of a MindFormers YAML file."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any

from paceline.core.errors import UsageError
from paceline.training.monitor import Monitor

if TYPE_CHECKING:
    from paceline.training.session.cloud_session import CloudSession
    from paceline.training.session.output_tree import OutputTree

_log = logging.getLogger("paceline.training")

_MONITORS = "paceline.training.monitors"
TYPES = {
    "CheckpointMonitor": f"{_MONITORS}.checkpoint:CheckpointMonitor",
    "CheckpointMointor": f"{_MONITORS}.checkpoint:CheckpointMonitor",  # misspelt up to MindFormers r1.1
    "MFLossMonitor": f"{_MONITORS}.loss:MFLossMonitor",
    "ObsMonitor": f"{_MONITORS}.obs:ObsMonitor",
    "ProfileMonitor": f"{_MONITORS}.profile:ProfileMonitor",
    "RecorderMonitor": f"{_MONITORS}.recorder:RecorderMonitor",
    "SummaryMonitor": f"{_MONITORS}.summary:SummaryMonitor",
}
_WITHOUT_EFFECT = {
    "CheckpointMonitor": (
        "config",
        "keep_checkpoint_per_n_minutes",
        "saved_network",
        "enc_mode",
        "remove_redundancy",
        "embedding_size",
        "embedding_local_norm_threshold",
        "use_checkpoint_health_monitor",
        "health_ckpts_record_dir",
    ),
    "MFLossMonitor": (
        "learning_rate",
        "micro_batch_num",
        "micro_batch_interleave_num",
        "origin_epochs",
        "dataset_size",
        "initial_epoch",
        "initial_step",
        "gradient_accumulation_steps",
        "device_num",
        "calculate_per_token_loss",
        "print_separate_loss",
        "step_interval",
    ),
    "ObsMonitor": ("rank_id", "retry", "retry_time", "log"),
    "SummaryMonitor": (
        "collect_specified_data",
        "keep_default_action",
        "custom_lineage_data",
        "collect_tensor_freq",
        "max_file_size",
        "export_options",
    ),
}
"""Parameters of MindFormers' monitors that have no effect here; accepted, and logged if they are set."""
_UNSET = (None, 0, False, "", "AES-GCM")
"""Values that count as not set."""
_FROM_SESSION = ("outputs", "ranks", "uploader")
"""Parameters that the session provides."""
_PROFILE = {
    "profile_start_step": "start_step",
    "profile_stop_step": "stop_step",
    "profile_output": "output_path",
    "profile_rank_ids": "profile_rank_ids",
    "profile_communication": "profile_communication",
    "profile_memory": "profile_memory",
    "profiler_level": "profiler_level",
    "with_stack": "with_stack",
    "data_simplification": "data_simplification",
    "mstx": "mstx",
}


def monitors_from_config(
    callbacks: Sequence[Mapping[str, Any]], session: CloudSession, *, profile: Mapping[str, Any] | None = None
) -> list[Monitor]:
    """Monitors from [{"type": "MFLossMonitor", …}, …]; `profile`: a config's profile* keys. The session closes them on exit."""
    monitors = [_from_entry(entry, session) for entry in callbacks]
    if profile and profile.get("profile"):
        options = {_PROFILE[name]: value for name, value in profile.items() if name in _PROFILE and value is not None}
        monitors.append(_create(TYPES["ProfileMonitor"], "ProfileMonitor", options, session))
    session.monitors += monitors
    return monitors


def monitor_from_entry(entry: Mapping[str, Any], *, outputs: OutputTree) -> Monitor:
    """One monitor without a session, for callbacks of other frameworks."""
    return _from_entry(entry, None, {"outputs": outputs})


def _from_entry(
    entry: Mapping[str, Any], session: CloudSession | None, given: Mapping[str, Any] | None = None
) -> Monitor:
    options = dict(entry)
    kind = str(options.pop("type", ""))
    where = TYPES.get(kind, kind if ":" in kind else "")
    if not where:
        raise UsageError(
            f"callbacks: unknown type {kind!r}{_nearest(kind, list(TYPES))}",
            hint='for your own class use type: "package.module:Class", a paceline.training.Monitor',
        )
    return _create(where, kind.replace("Mointor", "Monitor"), options, session, given)


def _create(
    where: str,
    name: str,
    options: Mapping[str, Any],
    session: CloudSession | None,
    given: Mapping[str, Any] | None = None,
) -> Monitor:
    factory = _import(where)
    parameters = inspect.signature(factory).parameters
    accepted = _without_ignored(name, options, parameters)
    _check_known(name, accepted, parameters)
    try:
        own = _from_session(accepted, parameters, session) if session else _accepted(given or {}, accepted, parameters)
        monitor = factory(**accepted, **own)
    except TypeError as error:
        raise UsageError(f"{name}: {error}") from error
    if not isinstance(monitor, Monitor):
        raise UsageError(f"callbacks: {where} is not a paceline.training.Monitor")
    return monitor


def _import(where: str) -> Any:
    module, _, attribute = where.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"callbacks: {where}: {error}") from error


def _without_ignored(name: str, options: Mapping[str, Any], parameters: Collection[str]) -> dict[str, Any]:
    """Drop parameters of MindFormers' monitors that have no effect here; log those that are set."""
    accepted = {}
    for option, value in options.items():
        if option not in parameters and option in _WITHOUT_EFFECT.get(name, ()):
            if value not in _UNSET:
                _log.info("%s: %s has no effect here", name, option)
        elif not (option == "enc_key" and value is None):
            accepted[option] = value
    return accepted


def _check_known(name: str, options: Collection[str], parameters: Mapping[str, inspect.Parameter]) -> None:
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    public = [each for each in parameters if each not in _FROM_SESSION]
    for option in options:
        if option not in parameters:
            raise UsageError(
                f"{name}: unknown parameter {option!r}{_nearest(option, public)}", hint=f"known: {', '.join(public)}"
            )


def _accepted(given: Mapping[str, Any], options: Collection[str], parameters: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in parameters and name not in options}


def _from_session(options: Mapping[str, Any], parameters: Collection[str], session: CloudSession) -> dict[str, Any]:
    given = {each: getattr(session, each) for each in _FROM_SESSION if each in parameters and each not in options}
    if options.get("target_dir") or options.get("src_dir"):
        given.pop("uploader", None)  # other files or another target than the session's
    return given


def _nearest(word: str, known: Sequence[str]) -> str:
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    return f", did you mean {close[0]!r}?" if close else ""
