"""Stops the ranks, with their children, that a killed launcher left behind.

Started as `python -I orphan_reaper.py GRACE`; reads "+GROUP" for each process group that was started and "-GROUP" for
each that exited from standard input. When that input ends, the launcher is gone: groups that still run get SIGTERM, and
after GRACE seconds SIGKILL. It imports almost nothing.
"""

from __future__ import annotations

import os
import signal
import sys
import time


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the launcher handles these
    grace = float(sys.argv[1])
    groups = set()
    for line in sys.stdin:
        group = int(line[1:])
        groups.add(group) if line[0] == "+" else groups.discard(group)
    send(groups, signal.SIGTERM)
    until = time.monotonic() + grace
    while groups and time.monotonic() < until:
        time.sleep(0.1)
        groups = {group for group in groups if runs(group)}
    send(groups, signal.SIGKILL)


def send(groups: set[int], number: int) -> None:
    for group in groups:
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            pass  # it exited by itself


def runs(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main()
