"""Wrong tokens make the next try wait: twice as long each time, for the address they came from."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

FIRST_SECONDS, LONGEST_SECONDS = 0.5, 60.0
FREE_TRIES = 10
MOST_ADDRESSES = 1024


class LoginDelay:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """Address → wrong tokens so far, and when the next may be tried."""

    def seconds_left(self, address: str) -> float:
        return max(0.0, self._wrong.get(address, (0, 0.0))[1] - self._clock())

    def note_wrong(self, address: str) -> None:
        count = self._wrong.pop(address, (0, 0.0))[0] + 1
        delay = 0.0 if count <= FREE_TRIES else min(LONGEST_SECONDS, FIRST_SECONDS * 2 ** min(count - FREE_TRIES, 16))
        self._wrong[address] = (count, self._clock() + delay)
        if len(self._wrong) > MOST_ADDRESSES:
            self._wrong.popitem(last=False)

    def note_right(self, address: str) -> None:
        self._wrong.pop(address, None)
