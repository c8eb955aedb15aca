"""Check that the client library of a store is installed."""

from __future__ import annotations

from importlib.util import find_spec

from paceline.core.errors import UsageError


def has_client(module: str) -> bool:
    return find_spec(module) is not None


def require_client(module: str, named: str = "") -> None:
    if not has_client(module):
        raise UsageError(f"{named or module} is not installed", hint="pip install 'paceline[storage]'")
