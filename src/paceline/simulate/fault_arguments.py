"""Parse the arguments of a fault (`slow-rank:5:1.3`) one by one, and check them against the cluster."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from paceline.core.errors import UsageError
from paceline.simulate.cluster import Cluster, Floats

FAULTS = 5  # stream of random numbers
_MAX_VALUE = 1e6  # so that nanoseconds stay exact integers


@dataclass(frozen=True)
class When:
    """How much of a fault each step has, from 0 to 1."""

    share: Floats

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that have any of it; none if all have all of it."""
        return () if (self.share == 1.0).all() else tuple((np.flatnonzero(self.share) + 1).tolist())


class FaultArguments:
    """An argument that is omitted or empty is chosen by the seed or has a default."""

    def __init__(self, text: str, usage: str, cluster: Cluster) -> None:
        self.text, self.usage, self.cluster = text, usage, cluster
        self.words = text.split(":")[1:]
        self.random = np.random.default_rng((cluster.spec.seed, FAULTS, *text.split(":")[0].encode()))

    def done(self) -> None:
        if self.words:
            self._reject(f"unexpected argument after {':'.join(self.text.split(':')[: -len(self.words)])!r}")

    def number(self, default: float, *, above: float, what: str) -> float:
        word = self._next()
        if not word:
            return default
        try:
            value = float(word)
        except ValueError:
            value = math.nan
        if not above < value <= _MAX_VALUE:
            self._reject(f"{what} must be a number above {above:g}, at most {_MAX_VALUE:g}, not {word!r}")
        return value

    def factor(self, default: float) -> float:
        return self.number(default, above=1.0, what="the factor")

    def ranks(self) -> tuple[int, ...]:
        """5, 5+9, or all; one rank chosen by the seed if left out."""
        return self._indices("rank", self.cluster.spec.world, (self._random_index(self.cluster.spec.world),))

    def ranks_or_all(self) -> tuple[int, ...]:
        return self._indices("rank", self.cluster.spec.world, tuple(range(self.cluster.spec.world)))

    def host(self) -> int:
        return self._indices("host", self.cluster.spec.hosts, (self._random_index(self.cluster.spec.hosts),))[0]

    def stage(self) -> int:
        return self._indices("stage", self.cluster.spec.pp, (self._random_index(self.cluster.spec.pp),))[0]

    def step(self, default: int | None = None) -> int:
        """A step number (from 1); the seed chooses the first step only if there is no other."""
        steps = self.cluster.spec.steps
        word = self._next()
        if not word:
            return default or (2 + self._random_index(steps - 1) if steps > 1 else 1)
        if not word.isdigit() or not 1 <= int(word) <= steps:
            self._reject(f"steps are 1 to {steps}, not {word!r}")
        return int(word)

    def when(self) -> When:
        """since3, grows3, every2, some2 (as many steps, drawn) or nothing: always."""
        count = self.cluster.spec.steps
        word = self._next()
        match = re.fullmatch(r"(since|grows|every|some)([1-9][0-9]*)", word)
        if word and (not match or int(match[2]) > count):
            self._reject(f"when is since, grows, every or some and a number up to {count}, not {word!r}")
        numbers = np.arange(1, count + 1)
        pattern, number = (match[1], int(match[2])) if match else ("since", 1)
        match pattern:
            case "since":
                return When((numbers >= number).astype(np.float64))
            case "grows":
                return When(np.maximum(numbers - number + 1, 0) / (count - number + 1))
            case "every":
                return When((numbers % number == self._random_index(number)).astype(np.float64))
            case _:
                return When(np.isin(numbers, self.random.choice(numbers, number, replace=False)).astype(np.float64))

    def choice(self, possible: Iterable[str], what: str, default: str = "") -> str:
        options = list(possible)
        word = self._next()
        if word and word not in options:
            self._reject(f"{what} is one of {', '.join(options)}, not {word!r}")
        return word or default or options[self._random_index(len(options))]

    def link(self, possible: list[tuple[int, int]]) -> tuple[int, int]:
        word = self._next()
        if not word:
            return possible[self._random_index(len(possible))]
        parts = word.split("-")
        link = (int(parts[0]), int(parts[1])) if len(parts) == 2 and all(p.isdigit() for p in parts) else None
        if link is None or link not in possible:
            some = ", ".join(f"{source}-{target}" for source, target in possible[:12])
            more = ", …" if len(possible) > 12 else ""
            self._reject(f"link {word!r} carries no data; links in use: {some}{more}")
        return link

    def _indices(self, what: str, count: int, default: tuple[int, ...]) -> tuple[int, ...]:
        word = self._next()
        if not word:
            return default
        if word == "all":
            return tuple(range(count))
        parts = [part.removeprefix("node") for part in word.split("+")] if what == "host" else word.split("+")
        shift = 1 if what == "host" and word.startswith("node") else 0
        if not all(part.isdigit() and 0 <= int(part) - shift < count for part in parts):
            self._reject(f"{what}s are 0 to {count - 1}, not {word!r}")
        return tuple(sorted({int(part) - shift for part in parts}))

    def _random_index(self, count: int) -> int:
        return int(self.random.integers(0, count))

    def _next(self) -> str:
        return self.words.pop(0) if self.words else ""

    def _reject(self, why: str) -> NoReturn:
        raise UsageError(f"fault {self.text!r}: {why}", hint=f"usage: {self.usage}")
