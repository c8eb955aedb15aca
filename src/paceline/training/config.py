"""The `callbacks:` list of a YAML file as monitors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.training.monitor import Monitor
from paceline.training.session import CloudSession


def monitors_from_config(
    callbacks: Sequence[Mapping[str, Any]], session: CloudSession, *, profile: Mapping[str, Any] | None = None
) -> list[Monitor]:
    """[{"type": "MFLossMonitor", …}, …] → monitors; `profile` are a config's profile* keys."""
    raise NotImplementedError
