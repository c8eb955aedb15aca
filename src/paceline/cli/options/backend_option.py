"""The --backend option of job, bench and doctor."""

from __future__ import annotations

from typing import Optional

import typer
from typing_extensions import Annotated

BackendOption = Annotated[
    Optional[str],
    typer.Option("--backend", help="local, slurm, modelarts or an installed one, instead of the description's."),
]
