"""`paceline simulate`: write the profile of a simulated cluster, with injected faults."""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional

import typer
from rich.progress import Progress
from typing_extensions import Annotated

from paceline.output.console import Console


def simulate(
    out: Annotated[Path, typer.Argument(help="New directory to write the recording to.")],
    hosts: Annotated[int, typer.Option(help="Hosts.")] = 2,
    devices: Annotated[int, typer.Option(help="Cards per host.")] = 8,
    dp: Annotated[Optional[int], typer.Option(help="Data parallel size.  [default: what tp and pp leave]")] = None,
    tp: Annotated[int, typer.Option(help="Tensor parallel size.")] = 2,
    pp: Annotated[int, typer.Option(help="Pipeline stages.")] = 2,
    steps: Annotated[int, typer.Option(help="Steps to record.")] = 5,
    layers: Annotated[int, typer.Option(help="Layers of the model.")] = 8,
    micro_batches: Annotated[int, typer.Option(help="Micro-batches per step.")] = 8,
    sharded: Annotated[
        bool, typer.Option(help="Spread the weights over the data parallel ranks (FSDP); pp 1.")
    ] = False,
    experts: Annotated[
        int, typer.Option(help="Data parallel neighbours that share the experts of a layer; layout kineto.")
    ] = 1,
    chunks: Annotated[int, typer.Option(help="Parts of the model per stage, which take turns (interleaved).")] = 1,
    buffered_sends: Annotated[bool, typer.Option(help="A send does not wait for its receiver.")] = False,
    cards_per_nic: Annotated[int, typer.Option(help="Cards of a host that share a network card.")] = 1,
    noise: Annotated[float, typer.Option(help="Relative spread of one kernel or transfer.")] = 0.007,
    heavy_tails: Annotated[bool, typer.Option(help="Give that spread heavy tails.")] = False,
    layout: Annotated[str, typer.Option(help="Format to write; `--layout list` lists them.")] = "ascend-text",
    fault: Annotated[
        Optional[List[str]],
        typer.Option(help="Fault, e.g. slow-rank:5:1.3; may be repeated; `--fault list` lists them."),
    ] = None,
    detail_ranks: Annotated[
        Optional[int], typer.Option(help="Ranks that get timelines and kernels.  [default: all]")
    ] = None,
    clock_skew: Annotated[bool, typer.Option(help="Give each host its own clock.")] = True,
    declare_groups: Annotated[bool, typer.Option(help="Record which ranks form which group.")] = True,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 1,
) -> None:
    """Simulate a training cluster and write its profile in any format, with injected faults.

    Example:  paceline simulate demo/run --fault slow-rank:5:1.3 --fault slow-link:3-5:2
    """
    from paceline import simulate as simulator  # loads NumPy; the other commands need not wait for it

    if layout == "list":
        typer.echo("\n".join(simulator.LAYOUTS))
        return
    if "list" in (fault or []):
        typer.echo("\n".join(f"{kind.usage:42} {kind.about}" for kind in simulator.KINDS))
        return
    if dp is None:
        dp = max(1, hosts * devices // max(1, tp * pp))
    spec = simulator.ClusterSpec(
        hosts=hosts,
        devices=devices,
        dp=dp,
        tp=tp,
        pp=pp,
        steps=steps,
        layers=layers,
        micro_batches=micro_batches,
        sharded=sharded,
        experts=experts,
        chunks=chunks,
        buffered_sends=buffered_sends,
        cards_per_nic=cards_per_nic,
        noise=noise,
        heavy_tails=heavy_tails,
        seed=seed,
        detail_ranks=detail_ranks,
        clock_skew=clock_skew,
        declare_groups=declare_groups,
    )
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("writing ranks", total=spec.world)
        simulator.simulate(
            out, spec, fault or [], layout, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )
    typer.echo(
        f"{out}: {spec.world} ranks, {steps} steps, {layout}; injected faults: {out / simulator.TRUTH_FILE}", err=True
    )
