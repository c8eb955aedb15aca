"""Options that several `paceline checkpoint` commands share, and how sizes such as 512M are read."""

from __future__ import annotations

import re
from typing import Optional

import typer
from typing_extensions import Annotated

from paceline.core.errors import UsageError

STRATEGY_HELP = "Strategy file, or a directory of them to merge; none: full weights."
SourceArgument = Annotated[
    str, typer.Argument(metavar="CHECKPOINT", help="rank_* directories, a directory, a file, s3:// or obs://.")
]
StrategyOption = Annotated[Optional[str], typer.Option("--strategy", help=STRATEGY_HELP)]
StepOption = Annotated[
    Optional[str], typer.Option("--step", help="EPOCH_STEP in the file names.  [default: the newest complete one]")
]
NoReplicasOption = Annotated[
    bool,
    typer.Option(
        "--remove_redundancy", help="The source was saved without replicas (detected by itself for safetensors)."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def parse_size(text: str) -> int:
    """Bytes of 512M, 1G, 3GiB.

    >>> parse_size("512M") == 512 << 20, parse_size("1.5GiB") == 3 << 29
    (True, True)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    size = int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " ")) if found else 0
    if not size:
        raise UsageError(f"{text}: not a size above 0", hint="examples: 512M, 1G")
    return size
