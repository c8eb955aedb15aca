"""`paceline rank-table`: made, merged, converted and checked."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.errors import FormatError, UsageError

if TYPE_CHECKING:
    from paceline.rank_tables import TableEntry

rank_table = typer.Typer(
    help="Rank tables (1.0) for HCCL and MindSpore: generate, merge, convert, check.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

To = Annotated[Path | None, typer.Option("--output", "-o", help="File to write.  [default: standard output]")]


@rank_table.command()
def generate(
    host: Annotated[
        list[str], typer.Option("--host", help="ADDRESS or ADDRESS=DEVICES (0-7 or 0,2,4); again for more.")
    ],
    devices: Annotated[str, typer.Option("--devices", help="Of every host that does not say its own.")] = "0-7",
    device_ip: Annotated[
        list[str] | None, typer.Option("--device-ip", help="Addresses of the devices' ports, in the order of ranks.")
    ] = None,
    hccn_conf: Annotated[
        Path | None, typer.Option("--hccn-conf", help="Take them from this host's file instead (/etc/hccn.conf).")
    ] = None,
    output: To = None,
) -> None:
    """Write a table for hosts and devices; ranks count through in the order given.

    Example:  paceline rank-table generate --host 10.0.0.1 --host 10.0.0.2 --devices 0-7 -o hccl.json
              paceline rank-table generate --host 10.0.0.1 --hccn-conf /etc/hccn.conf -o hccl_host1.json
    """
    from paceline import rank_tables

    hosts = [(name, _devices(own or devices)) for name, _, own in (each.partition("=") for each in host)]
    addresses = [address.strip() for text in device_ip or [] for address in text.split(",")]
    if hccn_conf is not None:
        if len(hosts) != 1 or addresses:
            raise UsageError(
                "--hccn-conf is one host's file", hint="make a table per host, then paceline rank-table merge"
            )
        addresses = _ports(hccn_conf, hosts[0][1])
    _out(rank_tables.write(rank_tables.generate(hosts, addresses)), output)


@rank_table.command()
def merge(tables: Annotated[list[Path], typer.Argument(help="Tables of single hosts.")], output: To = None) -> None:
    """One table of several hosts' own, in the order given; ranks are renumbered.

    Example:  paceline rank-table merge hccl_host1.json hccl_host2.json -o hccl.json
    """
    from paceline import rank_tables

    _out(rank_tables.write(rank_tables.merge(_read(path) for path in tables)), output)


@rank_table.command()
def convert(
    table: Annotated[Path, typer.Argument(help="ModelArts' jobstart_hccl.json, or its directory.")],
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait until it is complete.")] = 1800.0,
    output: To = None,
) -> None:
    """Any older table as version 1.0; ModelArts' own is waited for until every host is in it.

    Example:  paceline rank-table convert /user/config/jobstart_hccl.json -o hccl.json
    """
    from paceline.rank_tables import write
    from paceline.training.placement import PLATFORM_TABLE, wait_for_table

    _out(write(wait_for_table(table / PLATFORM_TABLE if table.is_dir() else table, timeout)), output)


@rank_table.command()
def check(table: Annotated[Path, typer.Argument(help="Rank table, old or new.")]) -> None:
    """Say what a table holds; exit code 1 when a job could not start from it.

    Example:  paceline rank-table check hccl.json
    """
    from paceline import rank_tables

    entries = _read(table)
    rank_tables.check(entries, str(table))
    hosts = list(dict.fromkeys(entry.host for entry in entries))
    typer.echo(f"{table}: {len(entries)} ranks on {len(hosts)} hosts")
    for host in hosts:
        own = [entry for entry in entries if entry.host == host]
        cards = ", ".join(str(entry.device) for entry in own)
        typer.echo(f"  {host}: ranks {own[0].rank}–{own[-1].rank}, devices {cards}")


def _read(path: Path) -> tuple[TableEntry, ...]:
    from paceline.rank_tables import read_rank_table

    try:
        return read_rank_table(path)
    except OSError as error:
        raise UsageError(f"{path}: {os.strerror(error.errno or 0)}") from error
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error


def _devices(text: str) -> list[int]:
    """0-7, 0,2,4; and hccl_tools' half-open [0,8)."""
    found: list[int] = []
    half_open = re.fullmatch(r"\[(\d{1,3}),(\d{1,3})\)", text.replace(" ", ""))
    if half_open:
        found = list(range(int(half_open[1]), int(half_open[2])))
    for part in () if half_open else text.split(","):
        match = re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", part.strip())
        if not match:
            raise UsageError(f"devices {text!r}", hint="as in 0-7, 0,2,4 or [0,8)")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    if not found:
        raise UsageError(f"devices {text!r} are none", hint="the smaller number first: 0-7")
    return found


def _ports(path: Path, devices: list[int]) -> list[str]:
    """address_N=… lines."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {os.strerror(error.errno or 0)}") from error
    known = {match[1]: match[2] for line in lines if (match := re.fullmatch(r"\s*address_(\d+)\s*=\s*(\S+)\s*", line))}
    missing = [device for device in devices if str(device) not in known]
    if missing:
        raise FormatError(f"{path}: no address_{missing[0]} there", file=path)
    return [known[str(device)] for device in devices]


def _out(text: str, output: Path | None) -> None:
    from paceline.whole import write_whole

    if output is None:
        typer.echo(text, nl=False)
    else:
        write_whole(output, text)
        typer.echo(f"{output} written", err=True)
