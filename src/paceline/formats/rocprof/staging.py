"""Records of rocprofv3 as the table `trace`, with the categories that torch's traces have."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from paceline.formats.base import Sink
from paceline.formats.kineto.tables import create_trace_table
from paceline.formats.rocprof.results import Record, Results

_COLUMNS = ("name", "pid", "tid", "cat", "ts", "dur", "correlation", "stream", "device", "bytes")
_Row = tuple[str, str, str, str, int, int, int, int | None, int | None, str | None]


def stage_results(results: Results, sink: Sink) -> None:
    create_trace_table(sink)
    rows = [*_device_work(results), *_host_calls(results)]
    if not rows:
        return
    texts = ("name", "pid", "tid", "cat", "bytes")
    columns = {
        name: np.array(values, dtype=object) if name in texts else _numbers(values)
        for name, values in zip(_COLUMNS, zip(*rows, strict=True), strict=True)
    }
    sink.connection.register("rocprof_rows", columns)
    sink.connection.execute(
        "INSERT INTO trace BY NAME SELECT 'X' AS ph, * REPLACE (nullif(stream, -1) AS stream, nullif(device, -1) AS device) "
        "FROM rocprof_rows"
    )
    sink.connection.unregister("rocprof_rows")


def _numbers(values: Iterable[object]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([-1 if value is None else value for value in values], dtype=np.int64)


def _device_work(results: Results) -> Iterable[_Row]:
    devices, kernels = results.devices(), results.kernel_names()
    for record in _whole(results.buffer_records.kernel_dispatch):
        if record.dispatch_info is not None:
            device = devices.get(record.dispatch_info.agent_id.handle)
            queue = record.dispatch_info.queue_id.handle
            stream = record.stream_id.handle if record.stream_id.handle > 0 else queue
            yield _row(record, kernels.get(record.dispatch_info.kernel_id, "?"), "kernel", device, stream)
    for record in _whole(results.buffer_records.memory_copy):
        ends = record.dst_agent_id.handle, record.src_agent_id.handle
        device = next((devices[end] for end in ends if end in devices), None)
        yield _row(record, "Memcpy " + results.name_of(record), "gpu_memcpy", device, record.stream_id.handle)


def _host_calls(results: Results) -> Iterable[_Row]:
    records = results.buffer_records
    for calls, category, before in (
        (records.hip_api, "hip_runtime", ""),
        (records.hsa_api, "hsa_runtime", ""),
        (records.rccl_api, "user_annotation", "rccl:"),
    ):
        for record in _whole(calls):
            yield _row(record, before + results.name_of(record), category)
    said = {marker.key: marker.value for marker in results.strings.marker_api}
    for record in _whole(records.marker_api):
        name = said.get(record.correlation_id.internal) or results.name_of(record)
        yield _row(record, name, "nvtx")


def _whole(records: list[Record]) -> Iterable[Record]:
    """Those that began and ended."""
    return (each for each in records if 0 < each.start_timestamp <= each.end_timestamp)


def _row(record: Record, name: str, category: str, device: int | None = None, stream: int | None = None) -> _Row:
    on_device = category in ("kernel", "gpu_memcpy")
    track = (f"GPU {device}", f"stream {stream}") if on_device else ("host", str(record.thread_id))
    start, end = record.start_timestamp, record.end_timestamp
    size = None if record.bytes is None else str(record.bytes)
    return (name, *track, category, start, end - start, record.correlation_id.internal, stream, device, size)
