"""The rules, in the order they are asked; each is a function from a case to findings."""

from __future__ import annotations

from collections.abc import Callable

from paceline.advice.case import Case
from paceline.advice.finding import Finding
from paceline.advice.rules.communication import comm_exposed, contention, small_packets
from paceline.advice.rules.compute import slow_computing
from paceline.advice.rules.data import data_incomplete
from paceline.advice.rules.host import cpu_operators, host_bound, input_bound
from paceline.advice.rules.links import slow_links
from paceline.advice.rules.memory import memory_imbalance, memory_pressure
from paceline.advice.rules.pipeline import pipeline_bubble, stage_imbalance
from paceline.advice.rules.unsteady import unsteady

Rule = Callable[[Case], list[Finding]]

RULES: tuple[Rule, ...] = (
    slow_computing,
    stage_imbalance,
    pipeline_bubble,
    slow_links,
    small_packets,
    contention,
    comm_exposed,
    input_bound,
    host_bound,
    cpu_operators,
    unsteady,
    memory_pressure,
    memory_imbalance,
    data_incomplete,
)
