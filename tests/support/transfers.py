"""Rows of the table `transfers`, for tests of links."""

from __future__ import annotations


def moved(src: int, dst: int, size: float, duration: float, **more: object) -> dict[str, object]:
    """One transfer over RDMA in step 1, of bytes and ns."""
    return {
        "rank": src,
        "step": 1,
        "group": "g",
        "name": "x",
        "sequence": 0,
        "src": src,
        "dst": dst,
        "scope": "global",
        "transport": "RDMA",
        "bytes": int(size),
        "duration": int(duration),
        **more,
    }
