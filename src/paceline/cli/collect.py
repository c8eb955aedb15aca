"""`paceline collect`: all hosts' profiles, or a bucket's {rank} tree, in one place."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.moving import progress_bar, summary, tell
from paceline.errors import PacelineError, UsageError
from paceline.storage.location import is_remote, parse

if TYPE_CHECKING:
    from paceline.collect.cluster import Request

_ORIGINAL = "HCCL_JSON ACCOUNTS_JSON CLUSTER_DIR HOST_DIR DEVICE_REGEX OUTPUT"


def collect(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[URL | SIX ARGUMENTS]", help=f"s3:// or obs:// tree, or {_ORIGINAL}.")
    ] = None,
    host: Annotated[list[str] | None, typer.Option("--host", help="user@host[:port]; again for each host.")] = None,
    accounts: Annotated[Path | None, typer.Option("--accounts", help="The original account file (JSON).")] = None,
    path: Annotated[str, typer.Option("--path", help="Directory on every host that holds the devices' data.")] = "",
    device_regex: Annotated[
        str, typer.Option("--device-regex", help='What comes before the device number; "" takes the tree as it is.')
    ] = "device",
    output: Annotated[str, typer.Option("--output", help="The profiler's output directory in a device's.")] = "",
    rank_table: Annotated[Path | None, typer.Option("--rank-table", help="hccl.json of the cluster.")] = None,
    into: Annotated[Path | None, typer.Option("--into", "-o", help="Where the cluster tree goes.")] = None,
    ranks: Annotated[int | None, typer.Option("--ranks", min=1, help="Ranks a bucket's tree must have.")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Only hosts that were not complete last time.")] = False,
    key: Annotated[str | None, typer.Option("--key", help="SSH key file.  [default: ~/.ssh and the agent]")] = None,
    known_hosts: Annotated[str | None, typer.Option("--known-hosts", help="[default: ~/.ssh/known_hosts]")] = None,
    ask_password: Annotated[bool, typer.Option("--ask-password", help="Prompt for one password for all.")] = False,
    patience: Annotated[
        float, typer.Option("--patience", min=0, help="Seconds to keep trying a host or bucket.")
    ] = 60.0,
) -> None:
    """Gather a cluster's profiles over SSH or from a bucket; a dead host is named and skipped, --retry completes it.

    Example:  paceline collect --host root@10.0.0.1 --host root@10.0.0.2 --path /home/summary -o runs/job7

    Example:  paceline collect obs://bucket/profiler --ranks 24 -o runs/job7
    """
    words = words or []
    if len(words) == 1 and is_remote(words[0]) and not words[0].startswith("ssh:"):
        _from_bucket(words[0], into, ranks, patience)
        return
    if len(words) == 6:
        rank_table, accounts, into, path, device_regex, output = (
            Path(words[0]), Path(words[1]), Path(words[2]), words[3], words[4], words[5]
        )  # fmt: skip
    elif words:
        raise UsageError(f"{len(words)} arguments", hint=f"give a bucket's URL, or {_ORIGINAL}, or --host and --path")
    if into is None or not path:
        raise UsageError("where from and where to?", hint="--path on the hosts, --into here")
    from paceline.collect.accounts import named_hosts, read_accounts, with_login
    from paceline.collect.cluster import Request
    from paceline.storage.retry import Backoff
    from paceline.storage.secret import Secret

    _need_file(key, "the key to log in with")
    _need_file(known_hosts, "the hosts' public keys: ssh-keyscan HOST >> FILE, then check their fingerprints")
    hosts = read_accounts(accounts) if accounts else named_hosts(host or [])
    password = Secret(getpass.getpass("password for all hosts: ")) if ask_password else None
    hosts = with_login(hosts, key=key, known_hosts=known_hosts, password=password)
    request = Request(
        hosts, path, into, device_regex=device_regex, output=output, rank_table=rank_table,
        backoff=Backoff(patience=patience),
    )  # fmt: skip
    _from_hosts(request, retry)


def _need_file(name: str | None, what: str) -> None:
    """Said at once: no host would be reached however often it was tried."""
    if name is not None and not Path(name).expanduser().is_file():
        raise UsageError(f"{name}: no such file", hint=what)


def _from_hosts(request: Request, retry: bool) -> None:
    from paceline.collect.cluster import collect as gather

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
    from paceline.storage.engine import Speed
    from paceline.storage.retry import Backoff

    target = into or Path(parse(url).name)
    with progress_bar("collecting") as show:
        speed = Speed(backoff=Backoff(patience=patience))
        gathered = collect_ranks(url, target, ranks=ranks, speed=speed, progress=show)
    typer.echo(summary(gathered.report))
    tell(gathered.report, quiet=True)
    if gathered.missing:
        shown = ", ".join(map(str, gathered.missing[:20])) + (" …" if len(gathered.missing) > 20 else "")
        raise PacelineError(
            f"{url}: nothing of {len(gathered.missing)} of {ranks} ranks: {shown}",
            hint="the others are complete; run again when they have uploaded",
        )
