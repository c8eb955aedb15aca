"""Read ais-bench's config.json: the tester server that results are sent to."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from typing import Any

import msgspec

from paceline.core.errors import UsageError

_LARGEST = 256 * 1024
_NAMES = {
    "testid": "test_id",
    "test_id": "test_id",
    "mode": "mode",
    "model": "model",
    "divsion": "division",
    "division": "division",
    "scenario": "scenario",
    "test_object_type": "test_object_type",
    "tester_server_ip": "tester_server_ip",
    "tester_server_port": "tester_server_port",
    "tester_server_https": "tester_server_https",
}


class TesterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of ais-bench's ConfigInfo."""

    test_id: str
    mode: str = "training"
    model: str = ""
    division: str = ""
    scenario: str = ""
    test_object_type: str = ""
    tester_server_ip: str = "127.0.0.1"
    tester_server_port: int = 9527
    tester_server_https: bool = False

    @property
    def url(self) -> str:
        host = f"[{self.tester_server_ip}]" if ":" in self.tester_server_ip else self.tester_server_ip
        return f"{'https' if self.tester_server_https else 'http'}://{host}:{self.tester_server_port}"

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.tester_server_ip).is_loopback
        except ValueError:
            return self.tester_server_ip == "localhost"


def load_tester(path: Path) -> TesterConfig:
    """Keys in any case, "Divsion" as ais-bench spells it; other keys are ignored."""
    known = {_NAMES[key.lower()]: value for key, value in read_object(path).items() if key.lower() in _NAMES}
    try:
        config = msgspec.convert(known, TesterConfig, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{path}: {error}", hint="testid, tester_server_ip and tester_server_port are needed"
        ) from None
    if not 0 < config.tester_server_port < 65536:
        raise UsageError(f"{path}: tester_server_port {config.tester_server_port} is not a port")
    return config


def read_object(path: Path) -> dict[str, Any]:
    """A small JSON object: config.json, system.json."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > _LARGEST:
        raise UsageError(f"{path}: larger than {_LARGEST:,} bytes")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: broken JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path}: a JSON object was expected")
    return value
