"""`paceline rank-table`: generate, merge, convert and check rank tables."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, List, Optional

import typer
from typing_extensions import Annotated

from paceline.core.errors import FormatError, UsageError

if TYPE_CHECKING:
    from paceline.core.rank_tables import RankTableEntry

rank_table = typer.Typer(
    help="Rank tables (1.0) for HCCL and MindSpore: generate, merge, convert, check.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

To = Annotated[Optional[Path], typer.Option("--output", "-o", help="File to write.  [default: standard output]")]


@rank_table.command()
def generate(
    host: Annotated[
        List[str], typer.Option("--host", help="ADDRESS or ADDRESS=DEVICES (0-7 or 0,2,4); may be repeated.")
    ],
    devices: Annotated[str, typer.Option("--devices", help="Devices of every host that names none.")] = "0-7",
    device_ip: Annotated[
        Optional[List[str]], typer.Option("--device-ip", help="Addresses of the devices' ports, in rank order.")
    ] = None,
    hccn_conf: Annotated[
        Optional[Path], typer.Option("--hccn-conf", help="Read the addresses from this host's file (/etc/hccn.conf).")
    ] = None,
    output: To = None,
) -> None:
    """Write a rank table for hosts and devices; ranks are numbered in the order given.

    Example:  paceline rank-table generate --host 10.0.0.1 --host 10.0.0.2 --devices 0-7 -o hccl.json
              paceline rank-table generate --host 10.0.0.1 --hccn-conf /etc/hccn.conf -o hccl_host1.json
    """
    from paceline.core import rank_tables

    hosts = [(name, _devices(own or devices)) for name, _, own in (each.partition("=") for each in host)]
    addresses = [address.strip() for text in device_ip or [] for address in text.split(",")]
    if hccn_conf is not None:
        if len(hosts) != 1 or addresses:
            raise UsageError(
                "--hccn-conf is the file of one host",
                hint="generate one table per host, then: paceline rank-table merge",
            )
        addresses = _ports(hccn_conf, hosts[0][1])
    _out(rank_tables.rank_table_json(rank_tables.generate_rank_table(hosts, addresses)), output)


@rank_table.command()
def merge(tables: Annotated[List[Path], typer.Argument(help="Tables of single hosts.")], output: To = None) -> None:
    """Merge the tables of single hosts into one, in the order given; ranks are renumbered.

    Example:  paceline rank-table merge hccl_host1.json hccl_host2.json -o hccl.json
    """
    from paceline.core import rank_tables

    _out(rank_tables.rank_table_json(rank_tables.merge_rank_tables(_read(path) for path in tables)), output)


@rank_table.command()
def convert(
    table: Annotated[Path, typer.Argument(help="ModelArts' jobstart_hccl.json, or its directory.")],
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to wait until the table is complete.")
    ] = 1800.0,
    output: To = None,
) -> None:
    """Convert an older table to version 1.0; waits until ModelArts' table has every host.

    Example:  paceline rank-table convert /user/config/jobstart_hccl.json -o hccl.json
    """
    from paceline.core.rank_tables import rank_table_json
    from paceline.training.launcher.rank_placement import PLATFORM_TABLE, wait_for_table

    _out(rank_table_json(wait_for_table(table / PLATFORM_TABLE if table.is_dir() else table, timeout)), output)


@rank_table.command()
def check(table: Annotated[Path, typer.Argument(help="Rank table, old or new.")]) -> None:
    """Show the content of a rank table; exit code 1 if a job could not start from it.

    Example:  paceline rank-table check hccl.json
    """
    from paceline.core import rank_tables

    entries = _read(table)
    rank_tables.check_rank_table(entries, str(table))
    hosts = list(dict.fromkeys(entry.host for entry in entries))
    typer.echo(f"{table}: {len(entries)} ranks on {len(hosts)} hosts")
    for host in hosts:
        own = [entry for entry in entries if entry.host == host]
        cards = ", ".join(str(entry.device) for entry in own)
        typer.echo(f"  {host}: ranks {own[0].rank}–{own[-1].rank}, devices {cards}")


def _read(path: Path) -> tuple[RankTableEntry, ...]:
    from paceline.core.rank_tables import read_rank_table

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
            raise UsageError(f"devices {text!r}: not a list of devices", hint="examples: 0-7 or 0,2,4 or [0,8)")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    if not found:
        raise UsageError(f"devices {text!r}: the list is empty", hint="the smaller number comes first: 0-7")
    return found


def _ports(path: Path, devices: list[int]) -> list[str]:
    """Addresses of the devices, from address_N=… lines."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {os.strerror(error.errno or 0)}") from error
    known = {match[1]: match[2] for line in lines if (match := re.fullmatch(r"\s*address_(\d+)\s*=\s*(\S+)\s*", line))}
    missing = [device for device in devices if str(device) not in known]
    if missing:
        raise FormatError(f"{path}: address_{missing[0]} not found", file=path)
    return [known[str(device)] for device in devices]


def _out(text: str, output: Path | None) -> None:
    from paceline.core.atomic_write import atomic_write_text

    if output is None:
        typer.echo(text, nl=False)
    else:
        atomic_write_text(output, text)
        typer.echo(f"{output} written", err=True)
