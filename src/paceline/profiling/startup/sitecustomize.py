"""Run by Python at startup under `paceline run-profiled`: starts profiling, then runs the next sitecustomize."""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  # pathlib is not imported for the job


def _run_next_sitecustomize() -> None:
    """Run the sitecustomize that this one hides (e.g. of a distribution or a coverage tool)."""
    other_paths = [path for path in sys.path if os.path.abspath(path or ".") != _here]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", other_paths)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


try:
    from paceline.profiling.environment import start_from_environment

    start_from_environment()
finally:
    _run_next_sitecustomize()
