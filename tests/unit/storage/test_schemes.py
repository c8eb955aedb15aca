"""The table of our own stores and the entry points of pyproject.toml are the same."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import tomllib

from paceline.storage.schemes import BUILT_IN_STORES, STORES_GROUP

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_our_stores_are_registered_as_entry_points_too() -> None:
    registered = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["entry-points"][STORES_GROUP]
    assert registered == BUILT_IN_STORES


@pytest.mark.parametrize("target", sorted(set(BUILT_IN_STORES.values())))
def test_every_factory_exists(target: str) -> None:
    module, _, name = target.partition(":")
    assert callable(getattr(import_module(module), name))
