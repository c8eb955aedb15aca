"""Run by Python at its start in jobs under `paceline run-profiled`: begins profiling, then gives way to the machine's own."""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  # nothing is imported that the job may not want


def _run_the_next() -> None:
    """A sitecustomize that this one hides (a distribution's, a coverage tool's) still has to run."""
    elsewhere = [place for place in sys.path if os.path.abspath(place or ".") != _here]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


try:
    from paceline.profiling.environment import begin

    begin()
finally:
    _run_the_next()
