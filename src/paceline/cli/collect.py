"""`paceline collect`: download the profiles of all hosts, or of a bucket's {rank} tree, into one directory."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, List, Optional

import typer
from typing_extensions import Annotated

from paceline.cli.console.transfer_output import print_report, progress_bar, summary
from paceline.core.errors import PacelineError, UsageError
from paceline.storage.url import is_remote, parse_url

if TYPE_CHECKING:
    from paceline.collect.cluster import CollectRequest

_ORIGINAL = "HCCL_JSON ACCOUNTS_JSON CLUSTER_DIR HOST_DIR DEVICE_REGEX OUTPUT"


def collect(
    words: Annotated[
        Optional[List[str]],
        typer.Argument(metavar="[URL | SIX ARGUMENTS]", help=f"s3:// or obs:// tree, or {_ORIGINAL}."),
    ] = None,
    host: Annotated[Optional[List[str]], typer.Option("--host", help="user@host[:port]; may be repeated.")] = None,
    accounts: Annotated[
        Optional[Path], typer.Option("--accounts", help="Account file of the original tool (JSON).")
    ] = None,
    path: Annotated[str, typer.Option("--path", help="Directory on every host with the devices' data.")] = "",
    device_regex: Annotated[
        str,
        typer.Option(
            "--device-regex", help='Regular expression before the device number; "" copies the tree as it is.'
        ),
    ] = "device",
    output: Annotated[
        str, typer.Option("--output", help="Output directory of the profiler within a device's directory.")
    ] = "",
    rank_table: Annotated[Optional[Path], typer.Option("--rank-table", help="hccl.json of the cluster.")] = None,
    into: Annotated[Optional[Path], typer.Option("--into", "-o", help="Directory for the cluster tree.")] = None,
    ranks: Annotated[
        Optional[int], typer.Option("--ranks", min=1, help="Number of ranks expected in a bucket's tree.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Only hosts that were incomplete last time.")] = False,
    key: Annotated[Optional[str], typer.Option("--key", help="SSH key file.  [default: ~/.ssh and the agent]")] = None,
    known_hosts: Annotated[Optional[str], typer.Option("--known-hosts", help="[default: ~/.ssh/known_hosts]")] = None,
    ask_password: Annotated[
        bool, typer.Option("--ask-password", help="Prompt for one password for all hosts.")
    ] = False,
    patience: Annotated[
        float,
        typer.Option("--patience", min=0, help="Give up on a host or bucket after this many seconds without progress."),
    ] = 60.0,
) -> None:
    """Collect the profiles of a cluster over SSH or from a bucket; unreachable hosts are skipped, --retry completes them.

    Example:  paceline collect --host root@10.0.0.1 --host root@10.0.0.2 --path /home/summary -o runs/job7

    Example:  paceline collect obs://bucket/profiler --ranks 24 -o runs/job7
    """
    words = words or []
    if len(words) == 1 and is_remote(words[0]) and not words[0].startswith("ssh:"):
        _from_bucket(words[0], into, ranks, patience)
        return
    if len(words) == 6:
        rank_table, accounts, into, path, device_regex, output = (
            Path(words[0]),
            Path(words[1]),
            Path(words[2]),
            words[3],
            words[4],
            words[5],
        )
    elif words:
        raise UsageError(
            f"expected 1 or 6 arguments, got {len(words)}",
            hint=f"give a bucket's URL, or {_ORIGINAL}, or --host and --path",
        )
    if into is None or not path:
        raise UsageError(
            "--path and --into are required", hint="--path: directory on the hosts; --into: directory on this machine"
        )
    from paceline.collect.accounts import parse_hosts, read_accounts, with_login
    from paceline.collect.cluster import CollectRequest
    from paceline.storage.secret import Secret
    from paceline.storage.transfer.retry import Backoff

    _need_file(key, "the key to log in with")
    _need_file(known_hosts, "the hosts' public keys: ssh-keyscan HOST >> FILE, then check their fingerprints")
    hosts = read_accounts(accounts) if accounts else parse_hosts(host or [])
    password = Secret(getpass.getpass("password for all hosts: ")) if ask_password else None
    hosts = with_login(hosts, key=key, known_hosts=known_hosts, password=password)
    request = CollectRequest(
        hosts,
        path,
        into,
        device_regex=device_regex,
        output=output,
        rank_table=rank_table,
        backoff=Backoff(patience=patience),
    )
    _from_hosts(request, retry)


def _need_file(name: str | None, what: str) -> None:
    """Checked before connecting: no host could be reached without it."""
    if name is not None and not Path(name).expanduser().is_file():
        raise UsageError(f"{name}: file not found", hint=what)


def _from_hosts(request: CollectRequest, retry: bool) -> None:
    from paceline.collect.cluster import collect_hosts as gather

    with progress_bar("collecting") as show:
        state = gather(request, retry=retry, progress=show)
    for name, result in state.hosts.items():
        if result.done:
            typer.echo(f"{name}: {result.files:,} files, {result.bytes / 1e6:,.1f} MB")
        else:
            typer.echo(f"failed:  {name}: {result.reason}", err=True)
    failed = [name for name, result in state.hosts.items() if not result.done]
    if failed:
        others = "" if len(failed) == len(state.hosts) else "the others are complete; "
        raise PacelineError(
            f"{len(failed)} of {len(state.hosts)} hosts are incomplete: {', '.join(failed)}",
            hint=f"{others}run the same command with --retry",
        )


def _from_bucket(url: str, into: Path | None, ranks: int | None, patience: float) -> None:
    from paceline.collect.rank_tree import collect_ranks
    from paceline.storage.transfer.retry import Backoff
    from paceline.storage.transfer.transfer_pool import TransferLimits

    target = into or Path(parse_url(url).name)
    with progress_bar("collecting") as show:
        speed = TransferLimits(backoff=Backoff(patience=patience))
        gathered = collect_ranks(url, target, ranks=ranks, limits=speed, progress=show)
    typer.echo(summary(gathered.report))
    print_report(gathered.report, quiet=True)
    if gathered.missing:
        shown = ", ".join(map(str, gathered.missing[:20])) + (" …" if len(gathered.missing) > 20 else "")
        raise PacelineError(
            f"{url}: no data of {len(gathered.missing)} of {ranks} ranks: {shown}",
            hint="the others are complete; run again when they have uploaded",
        )
