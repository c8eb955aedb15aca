"""Collect the profiles of all hosts over SSH into one tree: in parallel, resumable; unreachable hosts are reported."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from paceline.collect.accounts import ClusterHost
from paceline.collect.layout import device_pattern, map_device_files, map_unchanged
from paceline.collect.state import (
    MAPPING,
    CollectState,
    HostState,
    add_hosts,
    mapping_text,
    rank_table_text,
    read_state,
    write_state,
)
from paceline.core.atomic_write import atomic_write_text
from paceline.core.errors import FormatError, UsageError
from paceline.core.rank_tables import read_rank_table
from paceline.storage.secret import redact
from paceline.storage.store_errors import StorageError
from paceline.storage.stores.local import FileStore
from paceline.storage.stores.ssh import SshStore
from paceline.storage.transfer.retry import Backoff, retry_call
from paceline.storage.transfer.transfer import TransferOptions, transfer_between
from paceline.storage.transfer.transfer_pool import TransferLimits
from paceline.storage.transfer.transfer_report import OnProgress, TransferProgress, TransferReport

_HOSTS_AT_A_TIME = 16
_TREE = "cluster_profiler"


@dataclass(frozen=True)
class CollectRequest:
    """What to collect from where; with an empty `device_regex` each host's tree is copied unchanged."""

    hosts: Sequence[ClusterHost]
    path: str
    target: Path
    device_regex: str = "device"
    output: str = ""
    rank_table: Path | None = None
    backoff: Backoff = field(default=Backoff(patience=60))


def collect_hosts(request: CollectRequest, *, retry: bool = False, progress: OnProgress | None = None) -> CollectState:
    """Collect from all hosts, or with `retry` only from those that are not complete; returns the state of these hosts."""
    if not request.hosts:
        raise UsageError("no hosts to collect from", hint="pass an account file, or --host user@address")
    table = _read_table(request.rank_table) if request.rank_table is not None else None
    pattern = device_pattern(request.device_regex, request.output)
    state, named = add_hosts(read_state(request.target), request.hosts)
    state = replace(state, own_table=state.own_table and table is None)
    request.target.mkdir(parents=True, exist_ok=True)
    status = _CollectionStatus(request.target, state, progress)
    # Written before connecting: after kill -9 every host still has its own directory.
    status.write()
    atomic_write_text(request.target / MAPPING, mapping_text(_members(state, named, request.target)))
    if table is not None:
        atomic_write_text(request.target / "hccl.json", table)
    wanted = [name for name in named if not (retry and state.hosts[name].done)]

    def collect_one(name: str) -> None:
        status.update(_collect_host(request, named[name], known=state.hosts[name], pattern=pattern, status=status))

    with ThreadPoolExecutor(_HOSTS_AT_A_TIME) as pool:
        list(pool.map(collect_one, wanted))
    if table is None and request.device_regex:
        status.write_rank_table(_members(status.state, named, request.target))
    return replace(status.state, hosts={name: status.state.hosts[name] for name in named})


def _members(state: CollectState, named: Mapping[str, ClusterHost], target: Path) -> dict[str, HostState]:
    """Hosts of this tree: those requested now, and those collected before."""
    tree = target / _TREE
    return {name: host for name, host in state.hosts.items() if name in named or (tree / str(host.number)).is_dir()}


class _CollectionStatus:
    """The state file, and the progress of all hosts together."""

    def __init__(self, target: Path, state: CollectState, progress: OnProgress | None) -> None:
        self.state = state
        self._target, self._on_progress = target, progress
        self._progress: dict[str, TransferProgress] = {}
        self._lock = threading.Lock()

    def write(self) -> None:
        write_state(self._target, self.state)

    def update(self, result: HostState) -> None:
        with self._lock:
            self.state = self.state.with_host(result)
            self.write()

    def write_rank_table(self, hosts: Mapping[str, HostState]) -> None:
        """If the user gave none: ranks numbered over hosts and devices, in the order of the hosts."""
        path = self._target / "hccl.json"
        # Only when all hosts are complete: with half of them, ranks would be given to the wrong devices.
        if (path.exists() and not self.state.own_table) or not all(host.devices for host in hosts.values()):
            return
        self.state = replace(self.state, own_table=True)
        self.write()
        atomic_write_text(path, rank_table_text(hosts))

    def progress_of(self, host: str) -> OnProgress:
        def update(now: TransferProgress) -> None:
            with self._lock:
                self._progress[host] = now
                if self._on_progress:
                    self._on_progress(_sum_of(self._progress.values()))

        return update


def _sum_of(hosts: Iterable[TransferProgress]) -> TransferProgress:
    numbers = [(host.files, host.files_total, host.bytes, host.bytes_total) for host in hosts]
    return TransferProgress(*map(sum, zip(*numbers)))


def _collect_host(
    request: CollectRequest, host: ClusterHost, *, known: HostState, pattern: re.Pattern[str], status: _CollectionStatus
) -> HostState:
    store = SshStore(host.url(request.path), host.login)
    try:
        items = retry_call(request.backoff, lambda: list(store.list_files()))
        layout = map_device_files(items, pattern) if request.device_regex else map_unchanged(items)
        if not layout.targets:
            return replace(known, done=False, reason=_nothing_found(request, len(items)))
        options = TransferOptions(
            file_filter=layout.targets.__contains__,
            rename=layout.targets.__getitem__,
            limits=TransferLimits(4, request.backoff),
            progress=status.progress_of(known.name),
        )
        target = FileStore(request.target / _TREE / str(known.number))
        report = transfer_between(store, target, options, listed=[item for item in items if item.key in layout.targets])
    except StorageError as error:
        hint = f" ({error.hint})" if error.hint else ""
        # Files, bytes and devices of an earlier run stay in the state.
        return replace(known, done=False, reason=redact(f"{error}{hint}"))
    finally:
        store.close()
    return _result(known, report, layout.devices)


def _result(host: HostState, report: TransferReport, devices: tuple[int, ...]) -> HostState:
    files, size = report.moved + report.same, report.moved_bytes + report.same_bytes
    reason = ""
    if report.failures:
        reason = f"{len(report.failures):,} files failed: {redact(str(report.failures[0]))}"
    return replace(host, done=not reason, files=files, bytes=size, devices=devices, reason=reason)


def _nothing_found(request: CollectRequest, seen: int) -> str:
    wanted = f"{request.device_regex}N/{request.output or '…'}*/profiler*" if request.device_regex else "profile"
    return f"no {wanted} found below {request.path} ({seen:,} files there)"


def _read_table(path: Path) -> str:
    """The text of the rank table, after checking that readers can parse it."""
    try:
        read_rank_table(path)
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="pass the rank table (hccl.json) of the cluster") from error
    except FormatError as error:
        raise UsageError(f"{path}: {error}", hint="pass the rank table (hccl.json) of the cluster") from error
