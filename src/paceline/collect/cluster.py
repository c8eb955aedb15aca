"""Gathers all hosts' profiles over SSH into one tree: concurrently, resumable, a dead host is skipped and named."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from paceline.collect.accounts import Host
from paceline.collect.layout import as_it_is, device_pattern, lay_out
from paceline.collect.state import (
    MAPPING,
    HostState,
    State,
    enlist,
    mapping_text,
    rank_table_text,
    read_state,
    write_state,
    write_whole,
)
from paceline.errors import FormatError, UsageError
from paceline.rank_tables import read_rank_table
from paceline.storage.engine import Speed
from paceline.storage.file import FileStore
from paceline.storage.report import OnProgress, Progress, Report
from paceline.storage.retry import Backoff, patiently
from paceline.storage.secret import redact
from paceline.storage.ssh import SshStore
from paceline.storage.store import StorageError
from paceline.storage.transfer import Options, transfer_between

_HOSTS_AT_A_TIME = 16
_TREE = "cluster_profiler"


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
    """Gather; with `retry` only from hosts that are not complete yet. Returned is the state of the hosts asked for."""
    if not request.hosts:
        raise UsageError("no hosts to collect from", hint="give an account file, or --host user@address")
    table = _read_table(request.rank_table) if request.rank_table is not None else None
    pattern = device_pattern(request.device_regex, request.output)
    state, named = enlist(read_state(request.target), request.hosts)
    state = replace(state, own_table=state.own_table and table is None)
    request.target.mkdir(parents=True, exist_ok=True)
    book = _Book(request.target, state, progress)
    # Written before anybody is asked: after kill -9 every host still has its own directory.
    book.write()
    write_whole(request.target / MAPPING, mapping_text(_members(state, named, request.target)))
    if table is not None:
        write_whole(request.target / "hccl.json", table)
    wanted = [name for name in named if not (retry and state.hosts[name].done)]
    with ThreadPoolExecutor(_HOSTS_AT_A_TIME) as pool:
        list(pool.map(lambda name: book.note(_gather(request, named[name], state.hosts[name], pattern, book)), wanted))
    if table is None and request.device_regex:
        book.make_table(_members(book.state, named, request.target))
    return replace(book.state, hosts={name: book.state.hosts[name] for name in named})


def _members(state: State, named: Mapping[str, Host], target: Path) -> dict[str, HostState]:
    """Hosts of this tree: those asked for now, and those of which something was gathered before."""
    place = target / _TREE
    return {name: host for name, host in state.hosts.items() if name in named or (place / str(host.number)).is_dir()}


class _Book:
    """The state on disk and the progress of all hosts together."""

    def __init__(self, target: Path, state: State, progress: OnProgress | None) -> None:
        self.state = state
        self._target, self._tell = target, progress
        self._moments: dict[str, Progress] = {}
        self._lock = threading.Lock()

    def write(self) -> None:
        write_state(self._target, self.state)

    def note(self, result: HostState) -> None:
        with self._lock:
            self.state = self.state.with_host(result)
            self.write()

    def make_table(self, hosts: Mapping[str, HostState]) -> None:
        """Without a table from the user: ranks counted through hosts and devices, in the order of the hosts."""
        place = self._target / "hccl.json"
        # Only when all are there: a table made from half the hosts would give the others' ranks away.
        if (place.exists() and not self.state.own_table) or not all(host.devices for host in hosts.values()):
            return
        self.state = replace(self.state, own_table=True)
        self.write()
        write_whole(place, rank_table_text(hosts))

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


def _gather(request: Request, host: Host, known: HostState, pattern: re.Pattern[str], book: _Book) -> HostState:
    store = SshStore(host.at(request.path), host.login)
    try:
        items = patiently(request.backoff, lambda: list(store.items()))
        layout = lay_out(items, pattern) if request.device_regex else as_it_is(items)
        if not layout.targets:
            return replace(known, done=False, reason=_nothing(request, len(items)))
        options = Options(
            rule=layout.targets.__contains__, rename=layout.targets.__getitem__,
            speed=Speed(4, request.backoff), progress=book.watch(known.name),
        )  # fmt: skip
        place = FileStore(request.target / _TREE / str(known.number))
        report = transfer_between(store, place, options, listed=[item for item in items if item.key in layout.targets])
    except StorageError as error:
        hint = f" ({error.hint})" if error.hint else ""
        # What was gathered before is still there.
        return replace(known, done=False, reason=redact(f"{error}{hint}"))
    finally:
        store.close()
    return _result(known, report, layout.devices)


def _result(host: HostState, report: Report, devices: tuple[int, ...]) -> HostState:
    files, size = report.moved + report.same, report.moved_bytes + report.same_bytes
    reason = ""
    if report.failures:
        reason = f"{len(report.failures):,} files failed: {redact(str(report.failures[0]))}"
    return replace(host, done=not reason, files=files, bytes=size, devices=devices, reason=reason)


def _nothing(request: Request, seen: int) -> str:
    wanted = f"{request.device_regex}N/{request.output or '…'}*/profiler*" if request.device_regex else "a profile"
    return f"no {wanted} below {request.path} ({seen:,} files there)"


def _read_table(path: Path) -> str:
    """As it is, once it is clear that readers will make sense of it."""
    try:
        read_rank_table(path)
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="the rank table (hccl.json) of the cluster") from error
    except FormatError as error:
        raise UsageError(f"{path}: {error}", hint="the rank table (hccl.json) of the cluster") from error
