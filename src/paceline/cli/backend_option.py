"""The --backend option of job, bench and doctor."""

from __future__ import annotations

from typing import Annotated

import typer

BackendOption = Annotated[
    str | None,
    typer.Option("--backend", help="local, slurm, modelarts or an installed one, instead of the description's."),
]
