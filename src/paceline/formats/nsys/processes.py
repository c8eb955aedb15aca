"""Which processes of a report used a device, and which ranks they are.

A report has one process per rank, or the processes of all ranks of a host. The rank is that of the environment in which
the process was started, else the number in the file's name; processes of one report are numbered in the order of their cards.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from paceline.formats.ascend_db.database import Database

RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "MV2_COMM_WORLD_RANK")
WORLD_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", "MV2_COMM_WORLD_SIZE")
PROCESS_BITS = 24
"""A global thread id is the global process id and these bits of the thread."""
_DEVICE_TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
_VARIABLE = re.compile(r'(\w+)="?([^"]*)"?$')


@dataclass(frozen=True)
class ReportProcess:
    """A process with device work; `process` is null in reports that do not tell processes apart."""

    process: int | None
    device: int
    rank: int | None
    world: int


def processes_with_device_work(database: Database, rank_in_name: int | None) -> list[ReportProcess]:
    """In the order of their cards."""
    found: dict[int | None, int] = {}
    for table in _DEVICE_TABLES:
        if database.has(table, "start", "end", "deviceId"):
            process = database.integer(f"{table}.globalPid")
            for number, device in database.rows(f"SELECT {process}, min(deviceId) FROM {table} GROUP BY 1"):
                found[number] = min(found.get(number, device), device)
    ordered = sorted(found.items(), key=lambda item: (item[1], item[0] or 0))
    environment = _environment(database)
    rank = _first(environment, RANK_VARIABLES) if len(ordered) == 1 else None
    if rank is None and len(ordered) == 1:
        rank = rank_in_name
    world = _first(environment, WORLD_VARIABLES) or 0
    return [ReportProcess(process, device, rank, world if rank is not None else 0) for process, device in ordered]


def has_device_tables(database: Database) -> bool:
    return any(table in database.columns for table in _DEVICE_TABLES)


def is_report(database: Database) -> bool:
    """Whether Nsight Systems exported it, with or without device work."""
    return database.has("StringIds", "id", "value") and (
        has_device_tables(database) or "META_DATA_CAPTURE" in database.columns or "NVTX_EVENTS" in database.columns
    )


def host_name(database: Database) -> str | None:
    if not database.has("TARGET_INFO_SYSTEM_ENV", "name", "value"):
        return None
    names = database.rows("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname' AND value <> ''")
    return str(names[0][0]) if names else None


def session_start(database: Database) -> int:
    """Nanoseconds since 1970 at which the times of the report begin; 0 if it does not say."""
    if not database.has("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"):
        return 0
    starts = database.rows(f"SELECT {database.integer('TARGET_INFO_SESSION_START_TIME.utcEpochNs')} "
                           "FROM TARGET_INFO_SESSION_START_TIME")  # fmt: skip
    start = starts[0][0] if starts else None
    return start if start is not None and 0 < start < 1 << 62 else 0


def device_memory(database: Database) -> dict[int, int]:
    """Device number → its memory, B."""
    if not database.has("TARGET_INFO_GPU", "id", "totalMemory"):
        return {}
    return {
        int(number): int(size)
        for number, size in database.rows("SELECT id, totalMemory FROM TARGET_INFO_GPU")
        if isinstance(number, int) and isinstance(size, int) and size > 0
    }


def _environment(database: Database) -> dict[str, str]:
    """Variables of the process that nsys started."""
    if not database.has("META_DATA_CAPTURE", "name", "value"):
        return {}
    texts = database.rows("SELECT value FROM META_DATA_CAPTURE WHERE name = 'PROCESS_0:ENVIRONMENT_VARIABLE'")
    matches = (_VARIABLE.match(str(text)) for (text,) in texts)
    return {match[1]: match[2] for match in matches if match}


def _first(environment: dict[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = environment.get(name, "")
        if text.isascii() and text.isdecimal() and len(text) < 8:
            return int(text)
    return None
