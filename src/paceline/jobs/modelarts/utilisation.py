"""How a job used its nodes, from the metrics that ModelArts records: one mean per minute, in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from paceline.jobs.backend import WorkerUtilisation

_CARDS = ("npuUtil", "gpuUtil")
_CARD_MEMORY = ("npuMemUsage", "gpuMemUsage")


def worker_utilisation(task: str, metrics: Mapping[str, Sequence[float]]) -> WorkerUtilisation | None:
    """Means over the job, 0 to 1; a minute without a value is -1 there. None if nothing was recorded.

    >>> worker_utilisation("worker-0", {"npuUtil": [50.0, 60.0, -1.0], "memUsage": [-1.0]})
    WorkerUtilisation(name='worker-0', cpu=None, memory=None, cards=0.55, card_memory=None, samples=2)
    """
    known = {name: [each for each in values if each >= 0] for name, values in metrics.items()}

    def values(*names: str) -> list[float]:
        """Of the first of these metrics that was recorded."""
        return next((known[name] for name in names if known.get(name)), [])

    found = WorkerUtilisation(
        task,
        cpu=_share(values("cpuUsage")),
        memory=_share(values("memUsage")),
        cards=_share(values(*_CARDS)),
        card_memory=_share(values(*_CARD_MEMORY)),
        samples=len(values(*_CARDS, "cpuUsage")),
    )
    return found if any(known.values()) else None


def _share(percent: Sequence[float]) -> float | None:
    return fmean(percent) / 100 if percent else None
