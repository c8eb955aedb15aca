"""Outlives a launcher that was killed: stops the ranks it left behind, with their children.

Started as `python -I keeper.py GRACE`; its standard input says "+GROUP" for a process group that runs and "-GROUP" for
one that ended. The end of that input is the end of the launcher: what still runs gets SIGTERM, and after GRACE seconds
SIGKILL. It imports almost nothing, and is no child of any rank.
"""

import os
import signal
import sys
import time


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # these are the launcher's to handle
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
            pass  # it ended by itself


def runs(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main()
