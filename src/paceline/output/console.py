"""The one console: rich, with control sequences of names taken out of everything that it prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from paceline.core.text_encoding import without_controls


class Console(rich.console.Console):
    @property
    def file(self) -> IO[str]:
        """The stream below all those that stand before it (rich's own during progress, cli/console/output_streams.py)."""
        stream = super().file
        while inner := getattr(stream, "rich_proxied_file", None):
            stream = inner
        return stream

    @file.setter
    def file(self, stream: IO[str]) -> None:
        self._file = stream

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            safe = segment.text if segment.control else without_controls(segment.text)
            yield segment if safe is segment.text else Segment(safe, segment.style)
