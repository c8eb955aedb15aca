"""Which kernels communicate, by name: patterns in communication_kernels.json, and a user's own.

A user's file has the same form, {"pattern": regular expression, "op": collective operation, "library": …} each; `op` and
`library` may be left out. The environment variable PACELINE_COMMUNICATION_KERNELS names it. Its patterns come first.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path

import msgspec

from paceline.core.collective_names import op_of
from paceline.core.errors import PacelineError

USER_FILE = "PACELINE_COMMUNICATION_KERNELS"


class KernelPattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    op: str = ""
    """Collective operation; "" if the kernel's name says it."""
    library: str = ""


@dataclass(frozen=True)
class CommunicationKernels:
    """Pickled with the sections that use it; a store is read again when a pattern changes."""

    patterns: tuple[KernelPattern, ...]

    def op(self, kernel: str) -> str | None:
        """The collective operation of a kernel, "other" if it communicates but is not known to do which; else None."""
        for expression, op in self._compiled:
            if expression.search(kernel):
                return op or op_of(kernel)
        return None

    @cached_property
    def _compiled(self) -> list[tuple[re.Pattern[str], str]]:
        return [(re.compile(each.pattern, re.IGNORECASE), each.op) for each in self.patterns]

    def __getstate__(self) -> tuple[KernelPattern, ...]:
        return self.patterns

    def __setstate__(self, patterns: tuple[KernelPattern, ...]) -> None:
        object.__setattr__(self, "patterns", patterns)


def communication_kernels() -> CommunicationKernels:
    """Of the user, then ours."""
    own = os.environ.get(USER_FILE)
    return CommunicationKernels((*(_of_user(Path(own)) if own else ()), *_built_in()))


@cache
def _built_in() -> tuple[KernelPattern, ...]:
    content = files(__package__).joinpath("communication_kernels.json").read_bytes()
    return msgspec.json.decode(content, type=tuple[KernelPattern, ...])


def _of_user(path: Path) -> tuple[KernelPattern, ...]:
    try:
        patterns = msgspec.json.decode(path.read_bytes(), type=tuple[KernelPattern, ...])
        for each in patterns:
            re.compile(each.pattern)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, re.error) as error:
        raise PacelineError(
            f"{path} ({USER_FILE}): cannot be used as patterns of communication kernels ({error})",
            hint='write a JSON list like [{"pattern": "^my_all_reduce", "op": "all_reduce"}]',
        ) from error
    return patterns
