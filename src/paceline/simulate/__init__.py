"""A cluster that can be broken on purpose, writing every format the readers read."""

from __future__ import annotations

from paceline.simulate.cluster import ClusterSpec
from paceline.simulate.faults import KINDS
from paceline.simulate.layouts import LAYOUTS
from paceline.simulate.simulation import simulate
from paceline.simulate.truth import TRUTH_FILE, FaultTruth, StepTime, Truth

__all__ = ["KINDS", "LAYOUTS", "TRUTH_FILE", "ClusterSpec", "FaultTruth", "StepTime", "Truth", "simulate"]
