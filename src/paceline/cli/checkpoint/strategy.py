"""`paceline checkpoint strategy` and `merge-strategy`: write a strategy file from a description, or merge several."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional

import typer
from typing_extensions import Annotated

from paceline.cli.checkpoint.options import StepOption
from paceline.core.atomic_write import atomic_write_path
from paceline.core.errors import UsageError


def merge_strategy(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Strategy files of all ranks or stages.")],
    output: Annotated[
        Optional[Path], typer.Option("--output", "-o", help="[default: DIR/merged_ckpt_strategy.ckpt]")
    ] = None,
) -> None:
    """Merge the strategy files of all pipeline stages into one; written as JSON if its name ends with .json.

    Example:  paceline checkpoint merge-strategy output/strategy -o strategy.ckpt
    """
    from paceline.checkpoint.strategy.strategy import MERGED_NAME, encode_strategy, read_strategy_directory

    merged = read_strategy_directory(directory)
    target = output or Path(directory) / MERGED_NAME
    _write(target, encode_strategy(merged, merged=True, as_json=target.suffix == ".json"))
    typer.echo(f"{target}: {len(merged.names):,} parameters, {len(merged.stages)} stages of {merged.devices} devices")


def strategy(
    description: Annotated[
        str, typer.Argument(metavar="DESCRIPTION", help="Device axes, outermost first: dp=2,tp=2,pp=2,opt")
    ],
    checkpoint: Annotated[
        str, typer.Option("--like", help="Checkpoint that has the names and shapes of the parameters.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Strategy file to write (.ckpt or .json).")],
    rule: Annotated[
        Optional[List[str]], typer.Option("--rule", help='"PATTERN: AXES [@STAGES]"; may be repeated.')
    ] = None,
    rules: Annotated[Optional[Path], typer.Option("--rules", help="File with one rule per line.")] = None,
    step: StepOption = None,
) -> None:
    """Write a strategy file from a short description, for runs that saved none.

    A rule names, for each axis of a parameter, the device axis that splits it ("-" for none, "dp+tp" for both). The
    first matching rule counts; parameters without one are not split. "opt" shards optimizer states over replicas.

    Example:  paceline checkpoint strategy dp=2,tp=2 --like output/checkpoint -o strategy.ckpt \\
              --rule "*.wq.weight: tp,-" --rule "*.wo.weight: -,tp"
    """
    from paceline.checkpoint.select_step import parse_step
    from paceline.checkpoint.source_checkpoint import open_checkpoint
    from paceline.checkpoint.strategy.strategy import encode_strategy
    from paceline.checkpoint.strategy.strategy_spec import make_strategy, parse_rule, parse_spec
    from paceline.checkpoint.tensor_files import open_listing

    lines = [*(rule or []), *(_lines(rules) if rules else [])]
    with open_listing(checkpoint) as place:
        made = make_strategy(
            parse_spec(description),
            [parse_rule(line) for line in lines],
            open_checkpoint(place, step=parse_step(step) if step else None).tensors,
        )
    _write(output, encode_strategy(made, merged=len(made.stages) > 1, as_json=output.suffix == ".json"))
    split = sum(max(layout.cuts, default=1) > 1 for stage in made.stages for layout in stage.values())
    typer.echo(f"{output}: {len(made.names):,} parameters ({split:,} split), {len(made.stages)} × {made.devices} ranks")


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    return [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _write(path: Path, data: bytes) -> None:
    with atomic_write_path(path) as temporary:
        temporary.write_bytes(data)
