"""Bring a cluster's profiles to one place; leave what nobody reads behind.

    collect_data   in a training container: the drop-in for mox.file.copy_parallel
    slim           a smaller copy that gives the same diagnosis

Importing this is cheap: it is done inside training jobs.
"""

from __future__ import annotations

from paceline.collect.container import collect_data
from paceline.collect.slimming import Keep, Slimmed, slim

__all__ = ["Keep", "Slimmed", "collect_data", "slim"]
