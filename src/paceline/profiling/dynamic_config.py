"""profiler_config.json: the documented fields, what they mean, and reading them while somebody writes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import FormatError
from paceline.profiling.choosing import NAMES, OLD_NAMES, options_from, suggestion
from paceline.profiling.compatibility import compatible
from paceline.profiling.options import Options
from paceline.profiling.warning import collected, warn

FILE_NAME = "profiler_config.json"
MOST_BYTES = 1 << 20
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
"""In the documented order. `ranks` is ours: absent or empty means all."""
_OURS = ("start_step", "stop_step", "analyse", "analyse_mode", "prof_path", "ranks")


@dataclass(frozen=True)
class Request:
    """Steps to be recorded, counted from 1, both ends included."""

    version: str
    """Of the file's content: what ranks refer to when they agree."""
    start: int
    stop: int
    options: Options
    analyse: bool = False
    asynchronous: bool = False
    output: str | None = None
    ranks: tuple[int, ...] = ()

    @property
    def asks(self) -> bool:
        return self.start > 0

    def wants(self, rank: int) -> bool:
        return not self.ranks or rank in self.ranks


def read_request(path: Path) -> tuple[Request, list[str]]:
    """What the file asks for, and what had to be corrected; FormatError when it cannot be understood (yet)."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise FormatError(f"is larger than {MOST_BYTES} bytes", file=path)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"is not valid JSON ({error})", file=path) from error
    if not isinstance(content, dict):
        raise FormatError(f"holds a {type(content).__name__}, not an object of fields", file=path)
    with collected() as corrections:
        request = request_of(content, version=hashlib.sha256(data).hexdigest()[:16])
    return request, corrections


def request_of(content: Mapping[str, Any], *, version: str) -> Request:
    options, unknown = options_from({name: value for name, value in content.items() if name not in _OURS})
    for name in unknown:
        warn(f"field '{name}' is not known and was passed over{suggestion(name, (*_OURS, *NAMES, *OLD_NAMES))}")
    start, stop = _steps(content)
    mode = _integer("analyse_mode", content.get("analyse_mode", -1))
    # The guide's example sets analyse_mode alone and means it; where `analyse` stands too, it decides.
    analyse = content.get("analyse", mode in (0, 1))
    if not isinstance(analyse, bool):
        warn(f"'analyse' should be bool, but got {type(analyse).__name__}. will be reset to default value: 'False'.")
        analyse = False
    return Request(
        version=version,
        start=start,
        stop=stop,
        options=compatible(options, scheduled=True),
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
        warn(f"start_step {start} and stop_step {stop}: needed is 1 <= start_step <= stop_step; nothing is recorded")
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
