"""cloud_session: inputs in once per host, one output tree, outputs back at any end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from paceline.training.outputs import OutputTree
from paceline.training.ranks import Ranks


@dataclass
class CloudSession:
    outputs: OutputTree
    ranks: Ranks
    remote_save_url: str | None = None
    inputs: dict[str, Path] = field(default_factory=dict)
    """Name → where it lies on this host."""


@contextmanager
def cloud_session(
    output_dir: str | Path | None = None,
    remote_save_url: str | None = None,
    inputs: Mapping[str, str | Path | None] | None = None,
    *,
    ranks: Ranks | None = None,
    requirements: Path | None = None,
    deadline: float = 600.0,
    input_timeout: float = 7200.0,
    strict: bool = False,
) -> Iterator[CloudSession]:
    """Also a decorator: @cloud_session(remote_save_url="obs://…") above main(session=…) is called with the session's effect."""
    yield CloudSession(
        OutputTree(Path(output_dir or "output").absolute()), ranks or Ranks.from_environment(), remote_save_url
    )


Wrapped = Callable[..., object]
