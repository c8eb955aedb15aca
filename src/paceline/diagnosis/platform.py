"""What advice must fit: the device and framework of a recording, and whether a finding's links leave the host.

    device     ascend, nvidia, amd, intel, cpu (the host trained by itself)
    framework  torch, mindspore, mindspore-1 (r0.5 to r2.3: the releases that MindInsight read)
    reach      inside (a host), network (between hosts)

What cannot be told is left out, and advice for any value of it stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from paceline.diagnosis.finding import DirectedLink
from paceline.metrics.undisturbed import trains_on_processors
from paceline.run.run import Run

DEVICES = frozenset({"ascend", "nvidia", "amd", "cpu"})
OTHER_DEVICES = frozenset({"intel"})
"""Known, without advice of their own: what is for another device is not for them."""
FRAMEWORKS = frozenset({"torch", "mindspore", "mindspore-1"})
REACHES = frozenset({"inside", "network"})
TAGS = DEVICES | FRAMEWORKS | REACHES
ORDER = (*sorted(DEVICES), *sorted(FRAMEWORKS), *sorted(REACHES))

_ASCEND_FORMATS = ("ascend", "msprof", "mindinsight", "cluster-analysis")
_INSIDE = frozenset({"HCCS", "HCCS_SW", "PCIE", "SDMA", "SIO", "NVLINK", "P2P", "LOCAL"})
_NETWORK = frozenset({"RDMA", "ROCE", "IB"})
_CARDS_OF = {
    "ascend": "ascend|^910|^310",
    "amd": "amd|radeon|instinct|^gfx|mi[0-9]{2,3}",
    "intel": "intel|arc",
    "nvidia": "nvidia|tesla|geforce|quadro|titan|rtx|[abhv]100|[bhl]200|gb[0-9]{3}",
}
"""Models of cards, lower case."""
_CALLS_OF = {"amd": "^(hip|hsa_)[A-Z_]", "nvidia": "^cu(da)?[A-Z]", "intel": "^(ur|ze)[A-Z]"}
"""Calls of the device's runtime."""
_KERNELS_OF = {
    "amd": "name LIKE 'Cijk\\_%' ESCAPE '\\'",
    "nvidia": "regexp_matches(name, '(^|_)sm[0-9]{2}_|^(maxwell|volta|turing|ampere)_|cutlass|cudnn')",
}
"""Matrix products of rocBLAS and hipBLASLt; of cuBLAS, CUTLASS and cuDNN."""


def platform(run: Run) -> frozenset[str]:
    """Device and framework, as far as formats, paths, kernels and calls tell them."""
    return frozenset(tag for tag in (_device(run), _framework(run)) if tag)


def reach(links: Iterable[DirectedLink]) -> frozenset[str]:
    """Where links lie, by their transport."""
    transports = {link.transport.upper() for link in links}
    inside, network = bool(transports & _INSIDE), bool(transports & _NETWORK)
    return frozenset({"inside"} if inside and not network else {"network"} if network and not inside else ())


def fits(tags: frozenset[str], facts: frozenset[str]) -> bool:
    """Whether advice with these tags fits: of every kind of tag it names, the known value must be among them."""
    kinds = (DEVICES | OTHER_DEVICES, FRAMEWORKS, REACHES)
    return all(not (tags & kind and facts & kind) or tags & facts & kind for kind in kinds)


def _recorded_formats(run: Run) -> set[str]:
    """As the ranks were recorded: an export of the tables keeps what they were read from."""
    return {name for (name,) in run.sql("SELECT DISTINCT format FROM ranks WHERE format IS NOT NULL").fetchall()}


def _device(run: Run) -> str | None:
    formats = _recorded_formats(run)
    if any(name.startswith(_ASCEND_FORMATS) for name in formats):
        return "ascend"
    if "nsys" in formats:
        return "nvidia"
    cards = [card.lower() for (card,) in run.sql("SELECT DISTINCT card FROM ranks WHERE card IS NOT NULL").fetchall()]
    for device, pattern in _CARDS_OF.items():
        if any(re.search(pattern, card) for card in cards):
            return device
    return _device_by_work(run) or ("cpu" if trains_on_processors(run) else None)


def _device_by_work(run: Run) -> str | None:
    run.load(["kernels", "host_calls"])
    for device, pattern in _CALLS_OF.items():
        called = f"layer = 'runtime' AND regexp_matches(name, '{pattern}')"
        if run.sql(f"SELECT 1 FROM host_calls WHERE {called} LIMIT 1").fetchall():
            return device
    for device, condition in _KERNELS_OF.items():
        if run.sql(f"SELECT 1 FROM kernels WHERE {condition} LIMIT 1").fetchall():
            return device
    return None


def _framework(run: Run) -> str | None:
    formats = _recorded_formats(run)
    if "mindinsight" in formats:
        return "mindspore-1"
    if "kineto" in formats:
        return "torch"
    paths = [path or "" for (path,) in run.sql("SELECT path FROM ranks").fetchall()]
    if any("_ascend_ms" in path for path in paths):
        return "mindspore"
    return "torch" if any("_ascend_pt" in path for path in paths) else None
