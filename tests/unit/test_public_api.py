"""The public API of the package: these names and no others, imported without anything heavy."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import paceline

PUBLIC = {
    "Diagnosis": "class",
    "Finding": "class",
    "FormatError": "class",
    "PacelineError": "class",
    "Run": "class",
    "UsageError": "class",
    "__version__": "str",
    "breakdown": "function",
    "diagnose": "function",
    "open": "function",
}


def test_the_public_names_are_these() -> None:
    assert sorted(paceline.__all__) == sorted(PUBLIC)
    for name, kind in PUBLIC.items():
        value = getattr(paceline, name)
        made = "class" if inspect.isclass(value) else "function" if inspect.isfunction(value) else type(value).__name__
        assert made == kind, name


def test_every_public_function_takes_only_named_options() -> None:
    for name in ("open", "diagnose", "breakdown"):
        first, *options = inspect.signature(getattr(paceline, name)).parameters.values()
        assert first.name == "source" and {option.kind for option in options} == {inspect.Parameter.KEYWORD_ONLY}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'paceline' has no attribute 'Advice'"):
        _ = paceline.Advice  # type: ignore[attr-defined]


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "import sys, paceline; print(sorted({'duckdb', 'numpy', 'msgspec', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout == "[]\n"
