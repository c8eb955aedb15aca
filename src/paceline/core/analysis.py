"""Whether recordings can be analysed here: the Python of a training job may be too old, or have only the in-job part."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from paceline.core.errors import PacelineError

ANALYSIS_PYTHON = (3, 10)


def can_analyse() -> bool:
    here = Path(__file__).parents[1]
    return sys.version_info >= ANALYSIS_PYTHON and (here / "run").is_dir() and find_spec("duckdb") is not None


def why_no_analysis() -> str:
    if sys.version_info < ANALYSIS_PYTHON:
        ours = ".".join(map(str, sys.version_info[:2]))
        return f"analysis needs Python 3.10 or newer, this is {ours}: copy the recording to where there is one"
    return "only the in-job part of Paceline is installed: pip install paceline"


def require_analysis() -> None:
    if not can_analyse():
        raise PacelineError(why_no_analysis())
