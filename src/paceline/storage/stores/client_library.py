"""Check that the client library of a store is installed."""

from __future__ import annotations

from importlib.util import find_spec

from paceline.core.errors import UsageError


def require_client(module: str) -> None:
    if find_spec(module) is None:
        raise UsageError(f"{module} is not installed", hint="pip install 'paceline[storage]'")
