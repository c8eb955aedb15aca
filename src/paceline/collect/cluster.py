"""Gathers all hosts' profiles over SSH into one tree: concurrently, resumable, a dead host is skipped and named."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from paceline.collect.accounts import Host, mapping_text, rank_table_text
from paceline.collect.layout import as_it_is, device_pattern, lay_out
from paceline.errors import UsageError
from paceline.storage.engine import Speed
from paceline.storage.file import FileStore
from paceline.storage.report import OnProgress, Progress, Report
from paceline.storage.retry import Backoff, patiently
from paceline.storage.secret import redact
from paceline.storage.ssh import SshStore
from paceline.storage.store import StorageError
from paceline.storage.transfer import Options, transfer_between

STATE = ".paceline-collect"
"""Not .json: MindInsight takes the first .json it finds for the rank table."""
_HOSTS_AT_A_TIME = 16


class HostState(msgspec.Struct, frozen=True):
    """What is known of one host; no password is ever here."""

    name: str
    done: bool
    files: int = 0
    bytes: int = 0
    devices: tuple[int, ...] = ()
    reason: str = ""


class State(msgspec.Struct, frozen=True):
    hosts: dict[str, HostState] = {}
    schema: str = "paceline.collect/1"


@dataclass(frozen=True)
class Request:
    """What to gather from where; `device_regex` "" takes each host's tree as it is."""

    hosts: Sequence[Host]
    path: str
    target: Path
    device_regex: str = "device"
    output: str = ""
    rank_table: Path | None = None
    backoff: Backoff = field(default=Backoff(patience=60))


def collect(request: Request, *, retry: bool = False, progress: OnProgress | None = None) -> State:
    """Gather; with `retry` only from hosts that are not complete yet. Failed hosts are in the returned state."""
    if not request.hosts:
        raise UsageError("no hosts to collect from", hint="give an account file, or --host user@address")
    request.target.mkdir(parents=True, exist_ok=True)
    known = read_state(request.target)
    _write(request.target / "host_ips_mapping.txt", mapping_text(request.hosts))
    if request.rank_table is not None:
        _write(request.target / "hccl.json", _read_table(request.rank_table))
    wanted = [
        host for host in request.hosts if not (retry and host.name in known.hosts and known.hosts[host.name].done)
    ]
    book = _Book(request.target, known, progress)
    with ThreadPoolExecutor(_HOSTS_AT_A_TIME) as pool:
        list(pool.map(lambda host: book.note(_gather(request, host, book)), wanted))
    if request.rank_table is None and request.device_regex:
        _make_table(request, book.state)
    return book.state


def read_state(target: Path) -> State:
    try:
        return msgspec.json.decode((target / STATE).read_bytes(), type=State)
    except (FileNotFoundError, msgspec.DecodeError):
        return State()


class _Book:
    """The state on disk and the progress of all hosts together."""

    def __init__(self, target: Path, state: State, progress: OnProgress | None) -> None:
        self.state = state
        self._target, self._tell = target, progress
        self._moments: dict[str, Progress] = {}
        self._lock = threading.Lock()

    def note(self, result: HostState) -> None:
        with self._lock:
            self.state = State({**self.state.hosts, result.name: result})
            _write(self._target / STATE, msgspec.json.encode(self.state).decode() + "\n")

    def watch(self, host: str) -> OnProgress:
        def show(now: Progress) -> None:
            with self._lock:
                self._moments[host] = now
                all_hosts = list(self._moments.values())
                if self._tell:
                    self._tell(
                        Progress(*(sum(each) for each in zip(
                            *((m.files, m.files_total, m.bytes, m.bytes_total) for m in all_hosts), strict=True)))
                    )  # fmt: skip

        return show


def _gather(request: Request, host: Host, book: _Book) -> HostState:
    store = SshStore(host.at(request.path), host.login)
    try:
        items = patiently(request.backoff, lambda: list(store.items()))
        layout = lay_out(items, device_pattern(request.device_regex, request.output)) if request.device_regex else None
        layout = layout if layout is not None else as_it_is(items)
        if not layout.targets:
            return HostState(host.name, False, reason=_nothing(request, len(items)))
        options = Options(
            rule=layout.targets.__contains__, rename=layout.targets.__getitem__,
            speed=Speed(4, request.backoff), progress=book.watch(host.name),
        )  # fmt: skip
        place = FileStore(request.target / "cluster_profiler" / str(host.number))
        report = transfer_between(store, place, options, listed=[item for item in items if item.key in layout.targets])
    except StorageError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return HostState(host.name, False, reason=redact(f"{error}{hint}"))
    finally:
        store.close()
    return _result(host, report, layout.devices)


def _result(host: Host, report: Report, devices: tuple[int, ...]) -> HostState:
    files, size = report.moved + report.same, report.moved_bytes + report.same_bytes
    if report.failures:
        reason = f"{len(report.failures):,} files failed: {redact(str(report.failures[0]))}"
        return HostState(host.name, False, files, size, devices, reason)
    return HostState(host.name, True, files, size, devices)


def _nothing(request: Request, seen: int) -> str:
    wanted = f"{request.device_regex}N/{request.output or '…'}*/profiler*" if request.device_regex else "a profile"
    return f"no {wanted} below {request.path} ({seen:,} files there)"


def _read_table(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="the rank table (hccl.json) of the cluster") from error


def _make_table(request: Request, state: State) -> None:
    """Without a table from the user: ranks counted through hosts and devices, in the order of the hosts."""
    if (request.target / "hccl.json").exists():
        return
    devices = {
        str(host.name): list(state.hosts[host.name].devices)
        for host in request.hosts
        if host.name in state.hosts and state.hosts[host.name].devices
    }
    # Only when all are there: a table made from half the hosts would give the others' ranks away.
    if len(devices) == len(request.hosts):
        _write(request.target / "hccl.json", rank_table_text(devices))


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with partial.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.replace(partial, path)
