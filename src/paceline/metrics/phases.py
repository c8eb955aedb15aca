"""The phases of a step as MindInsight names them, where a recording marks the first forward and the last backward operator.

iteration interval  = start of the step → first forward operator       `data`
forward_backward    = first forward → last backward operator; communication and waiting in between included
tail                = last backward operator → end of the step         `tail`
"""

from __future__ import annotations


def rank_phases(chosen: str) -> str:
    """SELECT over `steps`: rank, forward_backward, phase_tail (ms per step), means over the steps chosen (SQL on `step`)."""
    return f"""
        SELECT rank, avg(forward_backward) / 1e6 AS forward_backward, avg(tail) / 1e6 AS phase_tail
        FROM steps WHERE {chosen} GROUP BY rank
    """
