"""`paceline demo`: simulate a cluster with a fault that the diagnosis does not know, diagnose it, and reveal the fault."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

import typer
from typing_extensions import Annotated

from paceline.cli.console.language import LanguageOption, resolve_language
from paceline.cli.diagnose import diagnose
from paceline.cli.simulate import simulate
from paceline.core.errors import UsageError
from paceline.core.i18n import text


def demo(
    out: Annotated[Path, typer.Argument(help="New directory for the recording and its report.")] = Path(
        "paceline-demo"
    ),
    fault: Annotated[
        str, typer.Option(help="Fault to inject; `paceline simulate x --fault list` lists them.")
    ] = "random",
    seed: Annotated[Optional[int], typer.Option(help="The same seed gives the same cluster.  [default: any]")] = None,
    lang: Annotated[LanguageOption, typer.Option("--lang", help="Language of the report.")] = LanguageOption.auto,
) -> None:
    """Simulate a 16-card cluster with a fault, diagnose it as if nothing were known, and compare with the truth.

    Example:  paceline demo
    """
    from paceline.simulate import TRUTH_FILE  # loads NumPy; the other commands need not wait for it

    if out.exists():
        raise UsageError(f"{out} already exists", hint="name another directory: paceline demo DIRECTORY")
    language = resolve_language(lang)
    seed = random.randrange(10_000) if seed is None else seed
    run = out / "run"
    typer.echo(text("cli.demo.simulating", language, seed=seed))
    simulate(run, fault=[fault], seed=seed)
    diagnose(run, out=out, lang=lang)
    truth = json.loads((run / TRUTH_FILE).read_bytes())
    faults = ", ".join(map(_fault_and_place, truth["faults"]))
    now, healthy = truth["step_ms"]["median"], truth["step_ms_healthy"]["median"]
    typer.echo(f"\n{text('cli.demo.truth', language, faults=faults, now=f'{now:.1f}', healthy=f'{healthy:.1f}')}")
    typer.echo(text("cli.demo.next", language, out=out))


def _fault_and_place(fault: Mapping[str, Any]) -> str:
    """A fault of the simulator's truth in the words of its commands: slow-rank 11, slow-link 3→5, slow-host node2."""
    subject = fault["subject"]
    links = [f"{link['src']}→{link['dst']}" for link in subject["links"]]
    places = links or (subject["hosts"] if len(subject["ranks"]) > 1 else subject["ranks"])
    return " ".join([fault["id"], *map(str, places)])
