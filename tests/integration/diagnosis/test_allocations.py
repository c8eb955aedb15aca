"""A torch trace of a job whose caching allocator is off: every step frees and allocates device memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import paceline

STEPS, LAYERS = 4, 10
KERNEL, FREE, ALLOCATE, PYTHON = 300.0, 2700.0, 40.0, 10.0
"""µs per layer: 300 of work, then 2,740 in which the host is inside hipFree and hipMalloc while the device idles."""


def span(category: str, name: str, start: float, time: float, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": time, "args": args}


def trace() -> list[dict[str, Any]]:
    now, number, events = 1000.0, 0, []
    for step in range(STEPS):
        begin = now
        for _ in range(LAYERS):
            number += 1
            events.append(span("cpu_op", "aten::conv2d", now, PYTHON + KERNEL + FREE + ALLOCATE))
            events.append(span("cuda_runtime", "hipLaunchKernel", now + 1, 4, correlation=number))
            events.append(span("kernel", "conv", now + PYTHON, KERNEL, 7, correlation=number, stream=7, device=0))
            now += PYTHON + KERNEL
            events.append(span("cuda_runtime", "hipFree", now, FREE))
            events.append(span("cuda_runtime", "hipMalloc", now + FREE, ALLOCATE))
            now += FREE + ALLOCATE
        events.append(span("user_annotation", f"ProfilerStep#{step}", begin, now - begin))
    return events


def test_the_allocator_is_named(tmp_path: Path) -> None:
    (tmp_path / "rank.json").write_text(json.dumps({"traceEvents": trace()}))
    found = paceline.diagnose(paceline.open(str(tmp_path), store=tmp_path / "store"))
    first = found.findings[0]
    assert first.id == "memory-management"
    assert "hipFree" in first.title
    # 3,050 µs per layer become 310: what is left is work and Python.
    assert first.gain.step_ms_now == pytest.approx(30.5, rel=0.001)
    assert first.gain.step_ms_fixed == pytest.approx(3.1, rel=0.05)
    assert "host-bound" not in [finding.id for finding in found.findings]
