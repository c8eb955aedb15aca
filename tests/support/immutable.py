"""The dataclasses of a package."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil


def dataclasses_of(package: str) -> list[type]:
    """Defined in its modules, in the order of their names."""
    found: dict[type, None] = {}
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == module.name:
                found[value] = None
    return list(found)
