"""Profiler options that exclude each other: MindSpore's rules, with a warning for each correction."""

from __future__ import annotations

from dataclasses import replace

from paceline.profiling.options import AicoreMetrics, ProfilerActivity, ProfilerLevel, ProfilerOptions
from paceline.profiling.warning import warn


def resolve_conflicts(options: ProfilerOptions, *, scheduled: bool) -> ProfilerOptions:
    """The options with conflicting ones reset."""
    for rule in (_data_process, _level_none, _metrics_of_level, _shapes, _domains, _one_domain_list):
        options = rule(options, scheduled)
    return options


def _data_process(options: ProfilerOptions, scheduled: bool) -> ProfilerOptions:
    if not (scheduled and options.data_process):
        return options
    warn("When 'schedule' is set, 'data_process' will be set to False.")
    return replace(options, data_process=False)


def _level_none(options: ProfilerOptions, _: bool) -> ProfilerOptions:
    if options.mstx or options.profiler_level is not ProfilerLevel.LevelNone:
        return options
    warn(
        "when 'mstx' is disabled, 'profiler_level' cannot be set to 'ProfilerLevel.LevelNone', "
        "reset to 'ProfilerLevel.Level0'."
    )
    return replace(options, profiler_level=ProfilerLevel.Level0)


def _metrics_of_level(options: ProfilerOptions, _: bool) -> ProfilerOptions:
    low = options.profiler_level in (ProfilerLevel.LevelNone, ProfilerLevel.Level0)
    none = options.aic_metrics is AicoreMetrics.AiCoreNone
    if low == none:
        return options
    if low:
        problem, chosen = "other value except 'AicoreMetrics.AiCoreNone'", AicoreMetrics.AiCoreNone
    else:
        problem, chosen = "'AicoreMetrics.AiCoreNone'", AicoreMetrics.PipeUtilization
    warn(
        f"when 'profiler_level' is set to '{options.profiler_level}', 'aic_metrics' cannot be set to {problem}, "
        f"reset to 'AicoreMetrics.{chosen.name}'."
    )
    return replace(options, aic_metrics=chosen)


def _shapes(options: ProfilerOptions, _: bool) -> ProfilerOptions:
    if not options.record_shapes or ProfilerActivity.CPU in options.activities:
        return options
    warn(
        "when 'ProfilerActivity.CPU' is not set in 'activities', 'record_shapes' cannot be set to True, "
        "reset to 'False'."
    )
    return replace(options, record_shapes=False)


def _domains(options: ProfilerOptions, _: bool) -> ProfilerOptions:
    if options.mstx or not (options.mstx_domain_include or options.mstx_domain_exclude):
        return options
    warn(
        "when 'mstx' is set to 'False', 'mstx_domain_include' and 'mstx_domain_exclude' cannot be set, "
        "reset them to '[]'."
    )
    return replace(options, mstx_domain_include=(), mstx_domain_exclude=())


def _one_domain_list(options: ProfilerOptions, _: bool) -> ProfilerOptions:
    if not (options.mstx_domain_include and options.mstx_domain_exclude):
        return options
    warn(
        "mstx_domain_include and mstx_domain_exclude can not be set together, mstx_domain_exclude has been reset to []."
    )
    return replace(options, mstx_domain_exclude=())
