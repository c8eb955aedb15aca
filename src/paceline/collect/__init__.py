"""Collect the profiles of a cluster in one directory, and reduce them to what readers open.

    collect_data   in a training container: replaces mox.file.copy_parallel
    slim           a smaller copy with the same diagnosis

Importing this package is cheap, because training jobs import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paceline.collect.container import collect_data

if TYPE_CHECKING:
    from paceline.collect.slimming import Keep as Keep
    from paceline.collect.slimming import SlimResult as SlimResult
    from paceline.collect.slimming import slim as slim

__all__ = ["Keep", "SlimResult", "collect_data", "slim"]


def __getattr__(name: str) -> Any:
    """Slimming reads recordings, which a training job's Python may be too old for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from paceline.collect import slimming

    return getattr(slimming, name)
