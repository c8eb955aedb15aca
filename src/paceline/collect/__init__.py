"""Collect the profiles of a cluster in one directory, and reduce them to what readers open.

    collect_data   in a training container: replaces mox.file.copy_parallel
    slim           a smaller copy with the same diagnosis

Importing this package is cheap, because training jobs import it.
"""

from __future__ import annotations

from paceline.collect.container import collect_data
from paceline.collect.slimming import Keep, SlimResult, slim

__all__ = ["Keep", "SlimResult", "collect_data", "slim"]
