"""Cluster simulator: training runs with chosen faults, written in every format the readers read."""

from __future__ import annotations

from paceline.simulate.cluster import ClusterSpec
from paceline.simulate.faults import KINDS
from paceline.simulate.ground_truth import TRUTH_FILE, FaultTruth, StepTime, Truth
from paceline.simulate.layouts import LAYOUTS
from paceline.simulate.simulation import simulate

__all__ = ["KINDS", "LAYOUTS", "TRUTH_FILE", "ClusterSpec", "FaultTruth", "StepTime", "Truth", "simulate"]
