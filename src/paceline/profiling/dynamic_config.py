"""profiler_config.json: its fields, and parsing it into a request, also while it is being written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.core.errors import FormatError
from paceline.profiling.option_conflicts import resolve_conflicts
from paceline.profiling.option_parsing import NAMES, OLD_NAMES, parse_options, suggestion
from paceline.profiling.options import ProfilerOptions
from paceline.profiling.warning import collect_warnings, warn

FILE_NAME = "profiler_config.json"
MAX_BYTES = 1 << 20
DEFAULTS: dict[str, Any] = {
    "start_step": -1,
    "stop_step": -1,
    "aic_metrics": "AiCoreNone",
    "profiler_level": "Level0",
    "analyse_mode": -1,
    "activities": ["CPU", "NPU"],
    "export_type": ["text"],
    "profile_memory": False,
    "mstx": False,
    "parallel_strategy": False,
    "with_stack": False,
    "data_simplification": True,
    "l2_cache": False,
    "analyse": False,
    "record_shapes": False,
    "prof_path": "./",
    "mstx_domain_include": [],
    "mstx_domain_exclude": [],
    "host_sys": [],
    "sys_io": False,
    "sys_interconnection": False,
}
"""In the documented order. `ranks` is an extension: absent or empty means all."""
_OWN_KEYS = ("start_step", "stop_step", "analyse", "analyse_mode", "prof_path", "ranks")


@dataclass(frozen=True)
class RecordRequest:
    """Steps to record, counted from 1, first and last included."""

    version: str
    """Hash of the file's content, by which ranks refer to the request."""
    start: int
    stop: int
    options: ProfilerOptions
    analyse: bool = False
    asynchronous: bool = False
    output: str | None = None
    ranks: tuple[int, ...] = ()

    @property
    def is_active(self) -> bool:
        return self.start > 0

    def includes(self, rank: int) -> bool:
        return not self.ranks or rank in self.ranks


def read_request(path: Path) -> tuple[RecordRequest, list[str]]:
    """The request in the file, and the corrections made; FormatError if the file is invalid (or not complete yet)."""
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise FormatError(f"is larger than {MAX_BYTES} bytes", file=path)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"is not valid JSON ({error})", file=path) from error
    if not isinstance(content, dict):
        raise FormatError(f"contains a {type(content).__name__}, not an object", file=path)
    with collect_warnings() as corrections:
        request = parse_request(content, version=hashlib.sha256(data).hexdigest()[:16])
    return request, corrections


def parse_request(content: Mapping[str, Any], *, version: str) -> RecordRequest:
    options, unknown = parse_options({name: value for name, value in content.items() if name not in _OWN_KEYS})
    for name in unknown:
        warn(f"unknown field '{name}' was ignored{suggestion(name, (*_OWN_KEYS, *NAMES, *OLD_NAMES))}")
    start, stop = _steps(content)
    mode = _integer("analyse_mode", content.get("analyse_mode", -1))
    # The guide's example sets only analyse_mode to request analysis; if `analyse` is given too, it decides.
    analyse = content.get("analyse", mode in (0, 1))
    if not isinstance(analyse, bool):
        warn(f"'analyse' should be bool, but got {type(analyse).__name__}. will be reset to default value: 'False'.")
        analyse = False
    return RecordRequest(
        version=version,
        start=start,
        stop=stop,
        options=resolve_conflicts(options, scheduled=True),
        analyse=analyse,
        asynchronous=mode == 1,
        output=_output(content.get("prof_path", "./")),
        ranks=_ranks(content.get("ranks", [])),
    )


def _steps(content: Mapping[str, Any]) -> tuple[int, int]:
    start, stop = (_integer(name, content.get(name, -1)) for name in ("start_step", "stop_step"))
    if (start, stop) == (-1, -1):
        return -1, -1
    if not 1 <= start <= stop:
        warn(f"start_step {start} and stop_step {stop}: must satisfy 1 <= start_step <= stop_step; nothing is recorded")
        return -1, -1
    return start, stop


def _integer(name: str, value: object) -> int:
    if type(value) is int:
        return value
    warn(f"'{name}' should be int, but got {type(value).__name__}. will be reset to default value: '-1'.")
    return -1


def _output(value: object) -> str | None:
    if isinstance(value, str):
        return None if value in ("", "./", ".") else value
    warn(f"'prof_path' should be str, but got {type(value).__name__}. will be reset to default value: './'.")
    return None


def _ranks(value: object) -> tuple[int, ...]:
    if isinstance(value, list) and all(type(each) is int and each >= 0 for each in value):
        return tuple(sorted(set(value)))
    warn(f"'ranks' should be a list of ranks, but got {value!r}; all ranks are recorded.")
    return ()
