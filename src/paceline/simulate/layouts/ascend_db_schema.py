"""Tables and constants of the Ascend SQLite output, as in real files."""

from __future__ import annotations

ANALYSIS = {
    "StepTraceTime": (
        "step TEXT, computing NUMERIC, communication_not_overlapped NUMERIC, overlapped NUMERIC, "
        "communication NUMERIC, free NUMERIC, stage NUMERIC, bubble NUMERIC, "
        "communication_not_overlapped_and_exclude_receive NUMERIC, preparing NUMERIC"
    ),
    "CommAnalyzerTime": (
        "hccl_op_name TEXT, group_name TEXT, start_timestamp NUMERIC, elapse_time NUMERIC, transit_time NUMERIC, "
        "wait_time NUMERIC, synchronization_time NUMERIC, idle_time NUMERIC, step TEXT, type TEXT"
    ),
    "CommAnalyzerBandwidth": (
        "hccl_op_name TEXT, group_name TEXT, transport_type TEXT, transit_size NUMERIC, transit_time NUMERIC, "
        "bandwidth NUMERIC, large_packet_ratio NUMERIC, package_size NUMERIC, count NUMERIC, total_duration NUMERIC, "
        "step TEXT, type TEXT"
    ),
    "CommAnalyzerMatrix": (
        "hccl_op_name TEXT, group_name TEXT, src_rank TEXT, dst_rank TEXT, transport_type TEXT, transit_size NUMERIC, "
        "transit_time NUMERIC, bandwidth NUMERIC, step TEXT, type TEXT, op_name TEXT"
    ),
}

PROFILER = {
    "SESSION_TIME_INFO": "startTimeNs INTEGER, endTimeNs INTEGER",
    "NPU_INFO": "id INTEGER, name TEXT",
    "HOST_INFO": "hostUid TEXT, hostName TEXT",
    "RANK_DEVICE_MAP": "rankId INTEGER, deviceId INTEGER",
    "META_DATA": "name TEXT, value TEXT",
    "STRING_IDS": "id INTEGER PRIMARY KEY, value TEXT",
    "STEP_TIME": "id INTEGER, startNs INTEGER, endNs INTEGER",
    "TASK": (
        "startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER, "
        "globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER"
    ),
    "COMPUTE_TASK_INFO": (
        "name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockDim INTEGER, mixBlockDim INTEGER, taskType INTEGER, "
        "opType INTEGER, inputFormats INTEGER, inputDataTypes INTEGER, inputShapes INTEGER, outputFormats INTEGER, "
        "outputDataTypes INTEGER, outputShapes INTEGER, attrInfo INTEGER"
    ),
    "COMMUNICATION_OP": (
        "opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER, groupName INTEGER, "
        "opId INTEGER PRIMARY KEY, relay INTEGER, retry INTEGER, dataType INTEGER, algType INTEGER, count NUMERIC, "
        "opType INTEGER"
    ),
    "COMMUNICATION_TASK_INFO": (
        "name INTEGER, globalTaskId INTEGER, taskType INTEGER, planeId INTEGER, groupName INTEGER, notifyId INTEGER, "
        "rdmaType INTEGER, srcRank INTEGER, dstRank INTEGER, transportType INTEGER, size INTEGER, dataType INTEGER, "
        "linkType INTEGER, opId INTEGER"
    ),
    "CANN_API": (
        "startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, connectionId INTEGER PRIMARY KEY, "
        "name INTEGER"
    ),
    "PYTORCH_API": (
        "startNs INTEGER, endNs INTEGER, globalTid INTEGER, connectionId INTEGER, name INTEGER, "
        "sequenceNumber INTEGER, fwdThreadId INTEGER, inputDtypes INTEGER, inputShapes INTEGER, callchainId INTEGER, "
        "type INTEGER"
    ),
    "OVERLAP_ANALYSIS": (
        "id INTEGER PRIMARY KEY AUTOINCREMENT, deviceId INTEGER, startNs INTEGER, endNs INTEGER, type INTEGER"
    ),
    "AICORE_FREQ": "deviceId INTEGER, timestampNs NUMERIC, freq INTEGER",
    "MEMORY_RECORD": (
        "component INTEGER, timestamp INTEGER, totalAllocated INTEGER, totalReserved INTEGER, totalActive INTEGER, "
        "streamPtr INTEGER, deviceId INTEGER"
    ),
    "NPU_MEM": "type INTEGER, ddr NUMERIC, hbm NUMERIC, timestampNs INTEGER, deviceId INTEGER",
    "OP_MEMORY": (
        "name INTEGER, size INTEGER, allocationTime INTEGER, releaseTime INTEGER, activeReleaseTime INTEGER, "
        "duration INTEGER, activeDuration INTEGER, allocationTotalAllocated INTEGER, allocationTotalReserved INTEGER, "
        "allocationTotalActive INTEGER, releaseTotalAllocated INTEGER, releaseTotalReserved INTEGER, "
        "releaseTotalActive INTEGER, streamPtr INTEGER, deviceId INTEGER"
    ),
    "ENUM_API_TYPE": "id INTEGER PRIMARY KEY, name TEXT",
    "ENUM_HCCL_DATA_TYPE": "id INTEGER PRIMARY KEY, name TEXT",
    "ENUM_HCCL_LINK_TYPE": "id INTEGER PRIMARY KEY, name TEXT",
    "ENUM_HCCL_TRANSPORT_TYPE": "id INTEGER PRIMARY KEY, name TEXT",
    "ENUM_HCCL_RDMA_TYPE": "id INTEGER PRIMARY KEY, name TEXT",
}

_UNKNOWN = ((65534, "N/A"), (65535, "INVALID_TYPE"))


def _numbered(*names: str) -> tuple[tuple[int, str], ...]:
    return (*enumerate(names), *_UNKNOWN)


ENUMS: dict[str, tuple[tuple[int, str], ...]] = {
    "ENUM_API_TYPE": (
        (5000, "runtime"),
        (5500, "hccl"),
        (10000, "node"),
        (15000, "model"),
        (20000, "acl"),
        (50001, "op"),
        (50002, "queue"),
        (50003, "trace"),
        (50004, "mstx"),
    ),
    "ENUM_HCCL_DATA_TYPE": _numbered(
        "INT8",
        "INT16",
        "INT32",
        "FP16",
        "FP32",
        "INT64",
        "UINT64",
        "UINT8",
        "UINT16",
        "UINT32",
        "FP64",
        "BFP16",
        "INT128",
    ),
    "ENUM_HCCL_LINK_TYPE": _numbered("ON_CHIP", "HCCS", "PCIE", "ROCE", "SIO", "HCCS_SW", "STANDARD_ROCE", "RESERVED"),
    "ENUM_HCCL_TRANSPORT_TYPE": _numbered("SDMA", "RDMA", "LOCAL"),
    "ENUM_HCCL_RDMA_TYPE": _numbered(
        "RDMA_SEND_NOTIFY",
        "RDMA_SEND_PAYLOAD",
        "RDMA_PAYLOAD_PREPARE",
        "RDMA_PAYLOAD_CHECK",
        "RDMA_PAYLOAD_ACK",
        "RDMA_SEND_OP",
    ),
}
